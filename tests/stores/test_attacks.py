"""What somebody can put in the way below the root of a filesystem store, and what the store does about it."""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stores.errors import BlobCorrupt, BlobExists, BlobNotFound, StoreDenied, StoreError, StoreUnavailable
from stores.filesystem import FilesystemStore
from stores.names import mint_name
from tests.stores.files import CALLS, INNER, NAME, OUTER, exchange, files_below
from tests.stores.plants import PLANTS, Plant, plant_hard_link, replace

SECRET = b"of somebody else"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the root with a file in it, of the very name and size a reader would ask for."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / NAME).write_bytes(SECRET)
    return outside


@pytest.fixture
def store(root: Path) -> Iterator[FilesystemStore]:
    store = FilesystemStore(root)
    yield store
    store.close()


@pytest.fixture
def room_path(store: FilesystemStore, root: Path) -> Path:
    """The directory of a room with one blob in it, which is as long as the secret."""
    store.namespace(OUTER, INNER).put(NAME, b"x" * len(SECRET))
    return root / OUTER / INNER


@pytest.mark.case(16, 17, 18, 89)
@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_no_file_of_ours_is_corrupt_at_once(
    store: FilesystemStore, room_path: Path, outside: Path, plant: Plant
) -> None:
    replace(room_path / NAME, plant, outside / NAME)
    room = store.namespace(OUTER, INNER)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        with pytest.raises(BlobCorrupt):
            room.get(NAME, size_bytes=len(SECRET))
        seconds.append(time.perf_counter() - began)
        with pytest.raises(BlobCorrupt):
            room.get_range(NAME, start=0, length=1, size_bytes=len(SECRET))
        with pytest.raises(BlobCorrupt):
            room.get(NAME, size_bytes=0)  # which is what a pipe says it has
    assert min(seconds) < 0.1


@pytest.mark.case(16, 17, 18, 89)
@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_no_file_of_ours_is_deleted_itself_and_its_target_left_alone(
    store: FilesystemStore, room_path: Path, outside: Path, root: Path, plant: Plant
) -> None:
    replace(room_path / NAME, plant, outside / NAME)
    store.namespace(OUTER, INNER).delete(NAME)
    assert not os.path.lexists(room_path / NAME)
    assert files_below(root) == []
    assert (outside / NAME).read_bytes() == SECRET


@pytest.mark.case(19)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_name_that_is_taken_by_anything_at_all_is_not_written_to(
    store: FilesystemStore, room_path: Path, outside: Path, plant: Plant
) -> None:
    planted = room_path / ("p" * 32)
    plant(planted, outside / NAME)
    with pytest.raises(BlobExists):
        store.namespace(OUTER, INNER).put("p" * 32, b"ours")
    assert os.path.lexists(planted)
    assert sorted(path.name for path in outside.iterdir()) == [NAME]
    assert (outside / NAME).read_bytes() == SECRET


@pytest.mark.case(18)
def test_a_device_is_corrupt(store: FilesystemStore, room_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def open_device(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        # Making a device takes a superuser; this is what opening one gives.
        return real("/dev/zero", flags) if path == NAME else real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_device)
    for size in (len(SECRET), 0):
        with pytest.raises(BlobCorrupt):
            store.namespace(OUTER, INNER).get(NAME, size_bytes=size)


@pytest.mark.case(18)
@pytest.mark.parametrize("plant", PLANTS)
def test_what_the_system_refuses_to_open_is_corrupt_unless_it_is_a_file(
    store: FilesystemStore, room_path: Path, outside: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        # As the kernel does with a device on a file system that is mounted without devices.
        if path == NAME:
            raise PermissionError(errno.EACCES, "refused")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    room = store.namespace(OUTER, INNER)
    with pytest.raises(StoreDenied):
        room.get(NAME, size_bytes=len(SECRET))
    replace(room_path / NAME, plant, outside / NAME)
    with pytest.raises(StoreDenied if plant is plant_hard_link else BlobCorrupt):
        room.get(NAME, size_bytes=len(SECRET))


def test_another_users_file_is_corrupt(
    store: FilesystemStore, room_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat
    inode = (room_path / NAME).stat().st_ino

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        fields = list(status)
        fields[4] += status.st_ino == inode  # the uid
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(BlobCorrupt):
        store.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET))


@pytest.mark.parametrize("level", ["outer", "inner"])
def test_another_users_directory_is_refused(
    store: FilesystemStore, root: Path, room_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inode = (room_path if level == "inner" else room_path.parent).stat().st_ino
    again = FilesystemStore(root)
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        fields = list(status)
        fields[4] += status.st_ino == inode
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(StoreDenied):
        again.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET))
    with pytest.raises(StoreDenied):
        again.namespace(OUTER, INNER).put(mint_name(), b"x")
    again.close()


def test_a_new_file_that_belongs_to_another_user_is_refused_and_not_kept(
    store: FilesystemStore, root: Path, room_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a network file system that maps users makes them.
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        fields = list(status)
        fields[4] += stat.S_ISREG(status.st_mode)
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(StoreDenied):
        store.namespace(OUTER, INNER).put(mint_name(), b"x")
    assert files_below(root) == [f"{OUTER}/{INNER}/{NAME}"]


def test_a_file_that_is_deleted_while_it_is_opened_is_not_found(
    store: FilesystemStore, room_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def open_and_lose(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = real(path, flags, mode, dir_fd=dir_fd)
        if path == NAME:
            (room_path / NAME).unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with pytest.raises(BlobNotFound):
        store.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET))


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_file_of_another_size_is_corrupt(store: FilesystemStore, room_path: Path, size: int) -> None:
    with (room_path / NAME).open("r+b") as file:
        file.truncate(size)
    with pytest.raises(BlobCorrupt):
        store.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET))


def test_a_file_that_shrinks_while_it_is_read_is_corrupt(
    store: FilesystemStore, room_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        os.truncate(room_path / NAME, 7)
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(BlobCorrupt):
        store.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET))


@pytest.mark.case(14, 89)
class TestADirectoryReplacedByALink:
    """A room, or the directory above it, is moved away and a link to the outside put in its place."""

    @pytest.fixture(params=["outer", "inner"])
    def replaced(self, request: pytest.FixtureRequest, room_path: Path, outside: Path, tmp_path: Path) -> Path:
        (outside / INNER).mkdir(mode=0o700)
        (outside / INNER / NAME).write_bytes(SECRET)
        path = room_path if request.param == "inner" else room_path.parent
        path.rename(tmp_path / "moved")
        path.symlink_to(outside)
        return path

    def before_and_after(self, outside: Path) -> list[tuple[str, bytes]]:
        return [(name, (outside / name).read_bytes()) for name in files_below(outside)]

    def test_a_store_that_has_the_room_open_reads_the_room_itself(
        self, store: FilesystemStore, replaced: Path, outside: Path
    ) -> None:
        assert store.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET)) == b"x" * len(SECRET)

    def test_a_store_that_has_it_not_open_takes_it_for_corrupt(self, root: Path, replaced: Path) -> None:
        fresh = FilesystemStore(root)
        with pytest.raises(BlobCorrupt):
            fresh.namespace(OUTER, INNER).get(NAME, size_bytes=len(SECRET))
        fresh.close()

    @pytest.mark.parametrize("opened", [True, False])
    def test_nothing_is_written_listed_or_deleted_through_it(
        self, store: FilesystemStore, root: Path, replaced: Path, outside: Path, tmp_path: Path, opened: bool
    ) -> None:
        used = store if opened else FilesystemStore(root)
        room = used.namespace(OUTER, INNER)
        before = self.before_and_after(outside)
        calls: list[Callable[[], object]] = [
            lambda: room.put("p" * 32, b"x"),
            lambda: room.delete(NAME),
            lambda: list(room.list()),
        ]
        for call in calls:
            with pytest.raises(StoreDenied, match="remove it by hand"):
                call()
        assert list(used.namespaces()) == []
        assert self.before_and_after(outside) == before
        assert not list(tmp_path.rglob("p" * 32))
        used.close()

    def test_destroying_the_room_follows_nothing(self, store: FilesystemStore, replaced: Path, outside: Path) -> None:
        before = self.before_and_after(outside)
        room = store.namespace(OUTER, INNER)
        if replaced.name == INNER:
            room.destroy()
            assert not os.path.lexists(replaced)
        else:
            # Who knows where the tenant's rooms are now: nobody is told that they are gone.
            with pytest.raises(StoreDenied, match="remove it by hand"):
                room.destroy()
        assert self.before_and_after(outside) == before


@pytest.mark.case(15)
def test_a_room_swapped_for_a_link_all_the_time_lets_nothing_out_and_loses_nothing(
    store: FilesystemStore, room_path: Path, outside: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(room_path, link)

    thread = threading.Thread(target=swap)
    thread.start()
    acknowledged, refused = {NAME}, 0
    room = store.namespace(OUTER, INNER)
    try:
        for _ in range(1_500):
            name = mint_name()
            try:
                room.put(name, b"x")
            except StoreError:
                refused += 1
            else:
                acknowledged.add(name)
    finally:
        stop.set()
        thread.join()
    real = link if room_path.is_symlink() else room_path
    assert {path.name for path in real.iterdir()} == acknowledged
    assert files_below(outside) == [NAME]
    assert refused > 0
    assert len(acknowledged) > 1


@pytest.mark.case(20)
def test_no_name_with_a_slash_reaches_the_system_and_no_path_without_a_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FilesystemStore(root)
    seen: list[str] = []

    def watch(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if isinstance(arguments[0], str):
                names = [argument for argument in arguments if isinstance(argument, str)]
                seen.extend(names)
                assert not any("/" in name for name in names)
                assert {"dir_fd", "src_dir_fd"} & set(options)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, watch(getattr(os, name)))
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"x")
    room.get(NAME, size_bytes=1)
    list(room.list())
    list(store.namespaces())
    room.delete(NAME)
    room.put(NAME, b"x")
    room.destroy()
    store.sweep()
    store.close()
    assert {OUTER, INNER, NAME, "trash"} <= set(seen)


class TestARoomDestroyedByAnotherProcess:
    """A directory that was moved to the trash, or removed, takes files as willingly as one in its place."""

    def test_a_write_into_it_is_not_acknowledged(
        self, store: FilesystemStore, root: Path, room_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = FilesystemStore(root)
        real = os.write

        def write(descriptor: int, data: bytes) -> int:
            other.namespace(OUTER, INNER).destroy()
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(StoreUnavailable):
            store.namespace(OUTER, INNER).put("p" * 32, b"lost")
        other.close()
        store.sweep()
        assert files_below(root) == []
        assert list((root / "trash").iterdir()) == []

    def test_a_write_after_it_goes_into_a_new_room(self, store: FilesystemStore, root: Path, room_path: Path) -> None:
        other = FilesystemStore(root)
        other.namespace(OUTER, INNER).destroy()
        store.namespace(OUTER, INNER).put("p" * 32, b"kept")
        assert other.namespace(OUTER, INNER).get("p" * 32, size_bytes=4) == b"kept"
        other.close()

    def test_its_successor_is_read_deleted_from_and_listed(
        self, store: FilesystemStore, root: Path, room_path: Path
    ) -> None:
        other = FilesystemStore(root)
        other.namespace(OUTER, INNER).destroy()
        other.namespace(OUTER, INNER).put("s" * 32, b"successor")
        room = store.namespace(OUTER, INNER)
        assert room.get("s" * 32, size_bytes=9) == b"successor"
        with pytest.raises(BlobNotFound):
            room.get(NAME, size_bytes=len(SECRET))
        other.namespace(OUTER, INNER).destroy()
        other.namespace(OUTER, INNER).put("t" * 32, b"third")
        assert [blob.name for blob in room.list()] == ["t" * 32]
        other.namespace(OUTER, INNER).destroy()
        other.namespace(OUTER, INNER).put("u" * 32, b"fourth")
        room.delete("u" * 32)
        assert list(other.namespace(OUTER, INNER).list()) == []
        other.close()
