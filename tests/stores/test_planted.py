"""Whatever stands where a store looks for something of its own, in whichever order it is asked: nothing gets out."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stores.errors import BlobCorrupt, StoreDenied, StoreError
from stores.filesystem import FilesystemNamespace, FilesystemStore
from stores.names import mint_name
from tests.attacks.outside import MARK, Outside, differences
from tests.stores.files import INNER, NAME, OUTER
from tests.stores.plants import PLANTS, Plant, plant_directory

NEW: Final = "p" * 32
OURS: Final = b"of our own" * 10
#: Where something may be planted, and what is looked for there.
LEVELS: Final = {"outer": OUTER, "inner": f"{OUTER}/{INNER}", "file": f"{OUTER}/{INNER}/{NAME}",
                 "new file": f"{OUTER}/{INNER}/{NEW}", "trash": "trash"}  # fmt: skip
#: What is no directory of ours in place of one. A directory would be taken for one, as it should.
NO_DIRECTORIES: Final = [plant for plant in PLANTS if plant is not plant_directory]


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    outside = Outside(tmp_path / "outside")
    outside.fill({(OUTER, INNER, NAME): len(OURS)})
    return outside


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemStore]:
    store = FilesystemStore(tmp_path / "root")
    yield store
    store.close()


@pytest.mark.case(14, 18, 19, 89)
@pytest.mark.parametrize("plant", NO_DIRECTORIES)
@pytest.mark.parametrize("level", ["outer", "inner"])
def test_what_stands_in_place_of_a_directory_is_refused_at_once_and_nothing_goes_through_it(
    store: FilesystemStore, tmp_path: Path, outside: Outside, level: str, plant: Plant
) -> None:
    path = tmp_path / "root" / LEVELS[level]
    path.parent.mkdir(mode=0o700, exist_ok=True)
    plant(path, Path(outside.file(NAME)))
    before, room = outside.snapshot(), store.namespace(OUTER, INNER)
    began = time.perf_counter()
    with pytest.raises(BlobCorrupt):
        room.get(NAME, size_bytes=len(OURS))
    for call in (lambda: room.put(NEW, OURS), lambda: room.delete(NAME), lambda: list(room.list())):
        with pytest.raises(StoreDenied):
            call()
    assert list(store.namespaces()) == []
    assert time.perf_counter() - began < 5
    if level == "inner":
        room.destroy()
        assert not os.path.lexists(path)
    else:
        with pytest.raises(StoreDenied):
            room.destroy()
    assert outside.snapshot() == before


@pytest.mark.case(18, 19)
@pytest.mark.parametrize("plant", NO_DIRECTORIES)
def test_what_stands_in_place_of_the_trash_is_refused_and_nothing_goes_through_it(
    store: FilesystemStore, tmp_path: Path, outside: Outside, plant: Plant
) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, OURS)
    plant(tmp_path / "root" / "trash", Path(outside.file(NAME)))
    before = outside.snapshot()
    for call in (room.destroy, store.sweep):
        with pytest.raises(StoreDenied):
            call()
    assert room.get(NAME, size_bytes=len(OURS)) == OURS
    assert outside.snapshot() == before


@pytest.mark.case(19)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_name_in_the_trash_that_somebody_foresaw_is_not_written_over(
    tmp_path: Path, outside: Outside, plant: Plant
) -> None:
    chances = itertools.count()
    store = FilesystemStore(tmp_path / "root", random_bytes=lambda count: next(chances).to_bytes(count, "big"))
    room = store.namespace(OUTER, INNER)
    room.put(NAME, OURS)
    (tmp_path / "root" / "trash").mkdir(mode=0o700)
    plant(tmp_path / "root" / "trash" / mint_name(bytes), Path(outside.file(NAME)))
    before = outside.snapshot()
    room.destroy()
    assert outside.snapshot() == before
    assert next(chances) > 1
    # Nothing is left of the room, nor of what stood in its way.
    assert [path.name for path in (tmp_path / "root").rglob("*")] == ["trash"]
    store.close()


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Room:
    """A room below a folder of its own, for one example."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.outside = Outside(folder / "outside")
        self.outside.fill({(OUTER, INNER, NAME): len(OURS)})
        self.before = self.outside.snapshot()
        self.store = FilesystemStore(self.root, durability="process", open_directories=1)
        self.room.put(NAME, OURS)

    @property
    def room(self) -> FilesystemNamespace:
        return self.store.namespace(OUTER, INNER)

    def plant(self, level: str, plant: Plant) -> None:
        path = self.root / LEVELS[level]
        if os.path.realpath(path.parent) == str(path.parent) and path.parent.is_dir():
            remove(path)
            plant(path, Path(self.outside.file(NAME)))

    def get(self) -> None:
        assert self.room.get(NAME, size_bytes=len(OURS)) == OURS

    def look_for_what_is_empty(self) -> None:
        assert self.room.get(NAME, size_bytes=0) == b""

    def put(self) -> None:
        self.room.put(NEW, OURS)

    def put_again(self) -> None:
        self.room.delete(NAME)
        self.room.put(NAME, OURS)
        self.get()

    def go_through(self) -> None:
        assert {blob.size_bytes for blob in self.room.list()} <= {len(OURS)}
        assert set(self.store.namespaces()) <= {(OUTER, INNER)}

    def delete(self) -> None:
        self.room.delete(NAME)

    def destroy(self) -> None:
        self.room.destroy()

    def sweep(self) -> None:
        self.store.sweep()

    def let_go(self) -> None:
        self.store._directories.forget((OUTER, INNER))


CALLS: Final[list[Callable[[Room], None]]] = [
    Room.get, Room.look_for_what_is_empty, Room.put, Room.put_again, Room.go_through, Room.delete, Room.destroy,
    Room.sweep, Room.let_go,
]  # fmt: skip


@pytest.mark.case(14, 16, 17, 18, 19, 23, 89)
@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.one_of(st.sampled_from(CALLS), st.tuples(st.sampled_from(list(LEVELS)), st.sampled_from(PLANTS))),
        min_size=2,
        max_size=12,
    )
)
def test_whatever_is_planted_in_whichever_order_nothing_gets_in_or_out_and_nothing_hangs(
    steps: list[Callable[[Room], None] | tuple[str, Plant]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        room = Room(Path(folder).resolve())
        for step in steps:
            if isinstance(step, tuple):
                room.plant(*step)
                continue
            began = time.perf_counter()
            with suppress(StoreError):
                step(room)
            assert time.perf_counter() - began < 5
            assert differences(room.before, room.outside.snapshot()) == []
        for level in ("trash", "outer"):
            # Somebody sees to it, as the refusals asked for.
            remove(room.root / LEVELS[level])
        room.let_go()
        room.destroy()
        room.put()
        assert room.room.get(NEW, size_bytes=len(OURS)) == OURS
        assert [blob.name for blob in room.room.list()] == [NEW]
        assert MARK not in b"".join(path.read_bytes() for path in room.root.rglob("*") if path.is_file())
        assert differences(room.before, room.outside.snapshot()) == []
        room.store.close()
