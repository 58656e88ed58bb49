"""How a room ends: moved aside in one rename, then emptied at a pace, following nothing."""

import errno
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stores.errors import StoreDenied
from stores.filesystem import FilesystemStore
from stores.names import mint_name
from stores.trash import PAUSE_SECONDS, UNLINKS_AT_ONCE
from tests.stores.files import INNER, NAME, OUTER, files_below, record_calls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> Iterator[FilesystemStore]:
    store = FilesystemStore(root, durability="process")
    yield store
    store.close()


def test_nothing_of_a_destroyed_room_stays_on_disk(store: FilesystemStore, root: Path) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.namespace(OUTER, INNER).destroy()
    assert [path.name for path in root.rglob("*")] == ["trash"]


def test_the_directory_above_stays_while_there_is_another_room_in_it(store: FilesystemStore, root: Path) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.namespace(OUTER, "j" * 32).put(NAME, b"x")
    store.namespace(OUTER, INNER).destroy()
    assert sorted(path.name for path in root.iterdir()) == [OUTER, "trash"]
    assert files_below(root) == [f"{OUTER}/{'j' * 32}/{NAME}"]


@pytest.mark.case(23, 89)
def test_links_are_removed_themselves_and_their_targets_never(
    store: FilesystemStore, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"stays")
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"x")
    place = root / OUTER / INNER
    (place / "slash").symlink_to("/")
    (place / "folder").symlink_to(outside)
    (place / "file").symlink_to(outside / "file")
    (place / "dangling").symlink_to(outside / "missing")
    (place / "other room").symlink_to(root / OUTER)
    os.link(outside / "file", place / "hard")
    room.destroy()
    assert files_below(root) == []
    assert (outside / "file").read_bytes() == b"stays"
    assert (outside / "file").stat().st_nlink == 1


@pytest.mark.case(23, 89)
def test_directories_somebody_planted_go_too_however_deep(store: FilesystemStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"stays")
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"x")
    descriptor = os.open(root / OUTER / INNER, os.O_RDONLY)
    for _ in range(1_050):  # deeper than Python recurses and than a path is long
        os.mkdir("deeper", dir_fd=descriptor)
        os.symlink(outside, "link", dir_fd=descriptor)
        below = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    room.destroy()
    assert [path.name for path in root.iterdir()] == ["trash"]
    assert list((root / "trash").iterdir()) == []
    assert (outside / "file").read_bytes() == b"stays"


def test_what_an_interruption_left_goes_with_the_next_destruction(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for inner in (INNER, "j" * 32):
        store.namespace(OUTER, inner).put(NAME, b"x")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.namespace(OUTER, INNER).destroy()
    assert len(list((root / "trash").iterdir())) == 1
    assert list(store.namespace(OUTER, INNER).list()) == []
    store.namespace(OUTER, "j" * 32).destroy()
    assert list((root / "trash").iterdir()) == []


def test_a_sweep_empties_the_trash_and_touches_nothing_else(store: FilesystemStore, root: Path) -> None:
    store.sweep()
    store.namespace(OUTER, INNER).put(NAME, b"x")
    (root / "trash").mkdir(mode=0o700)
    (root / "trash" / "anything").write_bytes(b"x")
    (root / "trash" / ("a" * 32) / "deep").mkdir(parents=True)
    (root / "trash" / ("a" * 32) / "deep" / "file").write_bytes(b"x")
    (root / "trash" / "link").symlink_to(root / OUTER)
    store.sweep()
    assert files_below(root) == [f"{OUTER}/{INNER}/{NAME}"]
    assert list((root / "trash").iterdir()) == []


@pytest.mark.case(89)
def test_a_trash_that_leads_elsewhere_is_refused(store: FilesystemStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_bytes(b"stays")
    (root / "trash").symlink_to(outside)
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"x")
    with pytest.raises(StoreDenied):
        room.destroy()
    with pytest.raises(StoreDenied):
        store.sweep()
    assert room.get(NAME, size_bytes=1) == b"x"
    assert [path.name for path in outside.iterdir()] == ["file"]


@pytest.mark.case(19)
def test_what_stands_in_the_way_in_the_trash_is_not_replaced(root: Path, tmp_path: Path) -> None:
    # Forced chance: the first name is taken, the second is free.
    chances = [b"\0" * 32, b"\1" * 32]
    store = FilesystemStore(root, random_bytes=lambda _: chances.pop(0))
    store.namespace(OUTER, INNER).put(NAME, b"x")
    (root / "trash").mkdir(mode=0o700)
    (root / "trash" / mint_name(lambda _: b"\0" * 32)).symlink_to(tmp_path)
    store.namespace(OUTER, INNER).destroy()
    assert chances == []
    assert [path.name for path in root.rglob("*")] == ["trash"]
    assert tmp_path.exists()
    store.close()


def test_a_large_room_is_emptied_at_a_pace(root: Path) -> None:
    pauses: list[float] = []
    store = FilesystemStore(root, durability="process", sleep=pauses.append)
    room = store.namespace(OUTER, INNER)
    for _ in range(2 * UNLINKS_AT_ONCE + 1):
        room.put(mint_name(), b"")
    room.destroy()
    assert pauses == [PAUSE_SECONDS, PAUSE_SECONDS]
    assert files_below(root) == []
    store.close()


@pytest.mark.parametrize("files", [0, 1, 50])
def test_a_room_takes_one_call_for_each_file_and_few_others(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    # There is a trash, and another room beside this one.
    for inner in ("j" * 32, "k" * 32, INNER):
        store.namespace(OUTER, inner).put(NAME, b"x")
    store.namespace(OUTER, "j" * 32).destroy()
    room = store.namespace(OUTER, INNER)
    room.delete(NAME)
    for _ in range(files):
        room.put(mint_name(), b"x")
    with monkeypatch.context() as patch:
        calls = record_calls(patch)
        room.destroy()
        made = Counter(calls)
    assert made.pop("unlink", 0) == files
    # The directory above, the trash twice, and the room, which this process had open as well; its own directory, and
    # the attempt to remove the one above; what is in the room, and what else is in the trash.
    assert made == {"open": 4, "fstat": 3, "close": 5, "rename": 1, "rmdir": 2, "listdir": 2}


def test_many_workers_empty_rooms_and_trash_at_once(root: Path) -> None:
    stores = [FilesystemStore(root, durability="process") for _ in range(4)]
    pairs = [(outer * 32, mint_name()) for outer in "ab" for _ in range(10)]
    for pair in pairs:
        for _ in range(20):
            stores[0].namespace(*pair).put(mint_name(), b"x")

    def work(number: int) -> None:
        for pair in pairs[number:] + pairs[:number]:
            stores[number % 4].namespace(*pair).destroy()
            stores[number % 4].sweep()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    stores[0].sweep()
    assert [path.name for path in root.rglob("*")] == ["trash"]
    for store in stores:
        store.close()


def test_rooms_are_made_while_their_neighbours_are_destroyed(store: FilesystemStore) -> None:
    def work(number: int) -> None:
        for _ in range(40):
            room = store.namespace(OUTER, mint_name())
            room.put(NAME, b"x")
            assert room.get(NAME, size_bytes=1) == b"x"
            room.destroy()  # and with the last one the directory above

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert list(store.namespaces()) == []


@pytest.mark.parametrize("call", ["stat", "open", "rename", "rmdir"])
def test_what_another_worker_removes_between_two_steps_counts_as_removed(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    planted = root / "trash" / ("a" * 32) / "planted"
    planted.mkdir(parents=True)
    (root / "trash" / ("b" * 32)).mkdir()
    (root / "trash").chmod(0o700)
    real = getattr(os, call)
    removed: list[Path] = []

    def call_too_late(*arguments: Any, **options: Any) -> Any:
        for path in (planted, planted.parent):
            if arguments[0] == path.name and path.exists():
                removed.append(path)
                subprocess.run(["rm", "-r", str(path)], check=True)
        return real(*arguments, **options)

    with monkeypatch.context() as other_worker:
        other_worker.setattr(os, call, call_too_late)
        store.sweep()
    assert removed
    assert list((root / "trash").iterdir()) == []


def test_a_room_that_a_late_writer_still_has_open_is_left_to_the_next_turn(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"x")
    real = os.rmdir

    def rmdir(name: str, *, dir_fd: int) -> None:
        if name not in (OUTER, INNER):
            for path in (root / "trash").iterdir():
                (path / "late").write_bytes(b"x")
        real(name, dir_fd=dir_fd)

    with monkeypatch.context() as writer:
        writer.setattr(os, "rmdir", rmdir)
        store.namespace(OUTER, INNER).destroy()
    assert list(store.namespaces()) == []
    assert len(files_below(root)) == 1
    store.sweep()
    assert files_below(root) == []
    assert list((root / "trash").iterdir()) == []


@pytest.mark.parametrize("call", ["mkdir", "rename"])
def test_without_room_for_the_trash_a_room_is_emptied_where_it_is(
    call: str, store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, other = store.namespace(OUTER, INNER), store.namespace(OUTER, mint_name())
    for _ in range(3):
        room.put(mint_name(), b"bytes")
    other.put(NAME, b"bytes")
    (root / OUTER / INNER / "planted").symlink_to(root)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, call, refuse)
    room.destroy()
    assert list(store.namespaces()) == [(OUTER, other._inner)]
    assert [path.name for path in (root / OUTER).iterdir()] == [other._inner]
    other.destroy()
    assert not (root / OUTER).exists()
