"""The reserve: room that is given up when the disk is full, and that nobody else gets meanwhile."""

import errno
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stores.errors import StoreDenied, StoreError, StoreFull, StoreUnavailable
from stores.reserve import RESERVE_BYTES, RESERVE_FILES, Reserve, reserve_names, taken_names
from stores.sql import Database
from tests.stores.plants import PLANTS, Plant, plant_hard_link

MIB = 2**20


class Disk:
    """What the system says of the disk, whatever it is really like."""

    def __init__(self, *, free_bytes: int = 100 * MIB, free_inodes: int = 1000, inodes: int = 10_000) -> None:
        self.free_bytes = free_bytes
        self.free_inodes = free_inodes
        self.inodes = inodes

    def statvfs(self, _path: object) -> Any:
        return SimpleNamespace(
            f_bavail=self.free_bytes // 4096, f_frsize=4096, f_favail=self.free_inodes, f_files=self.inodes
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(os, "statvfs", found.statvfs)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.sqlite3"


@pytest.fixture
def reserve(path: Path, disk: Disk) -> Reserve:
    return Reserve(path)


def sizes(path: Path) -> dict[str, int]:
    return {file.name.removeprefix(f"{path.name}-"): file.stat().st_size for file in path.parent.iterdir()}


WHOLE = {f"reserve{number}": RESERVE_BYTES // RESERVE_FILES for number in range(1, RESERVE_FILES + 1)}


def test_it_takes_its_room_for_good_and_for_its_owner_alone(reserve: Reserve, path: Path) -> None:
    reserve.require()
    assert sizes(path) == WHOLE
    files = list(path.parent.iterdir())
    # Blocks that the disk has set aside, not holes.
    assert all(file.stat().st_blocks * 512 >= RESERVE_BYTES // RESERVE_FILES for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    reserve.require()
    assert sizes(path) == WHOLE


def test_it_is_given_up_a_file_at_a_time_and_made_again_whole(reserve: Reserve, path: Path) -> None:
    reserve.require()
    for left in range(RESERVE_FILES - 1, -1, -1):
        assert reserve.give_up()
        assert len(sizes(path)) == left
    assert not reserve.give_up()
    reserve.restore()
    assert sizes(path) == WHOLE


def test_while_some_of_it_is_missing_nothing_may_grow_until_there_is_plenty(
    reserve: Reserve, path: Path, disk: Disk
) -> None:
    reserve.require()
    assert reserve.give_up()
    # Just as much as was given up: somebody else is using it this very moment.
    disk.free_bytes = 2 * RESERVE_BYTES // RESERVE_FILES - 4096
    with pytest.raises(StoreFull):
        reserve.require()
    assert len(sizes(path)) == RESERVE_FILES - 1
    disk.free_bytes += 4096
    reserve.require()
    assert sizes(path) == WHOLE


def test_without_inodes_it_is_not_made(reserve: Reserve, path: Path, disk: Disk) -> None:
    disk.free_inodes = 2 * RESERVE_FILES - 1
    with pytest.raises(StoreFull):
        reserve.require()
    assert sizes(path) == {}
    disk.free_inodes += 1
    reserve.require()
    assert sizes(path) == WHOLE


def test_a_file_system_that_counts_no_inodes_has_enough_of_them(reserve: Reserve, path: Path, disk: Disk) -> None:
    disk.inodes = disk.free_inodes = 0
    assert not reserve.is_needed()
    reserve.require()
    assert sizes(path) == WHOLE


@pytest.mark.parametrize(
    ("free_bytes", "free_inodes", "needed"),
    [(64 * 1024, 1, False), (64 * 1024 - 4096, 1, True), (100 * MIB, 0, True), (0, 0, True)],
)
def test_it_knows_a_disk_on_which_nothing_can_be_made(
    reserve: Reserve, disk: Disk, free_bytes: int, free_inodes: int, needed: bool
) -> None:
    disk.free_bytes, disk.free_inodes = free_bytes, free_inodes
    assert reserve.is_needed() is needed


@pytest.mark.parametrize("call", ["open", "posix_fallocate"])
@pytest.mark.parametrize(
    ("code", "needed"),
    [(errno.EDQUOT, True), (errno.ENOSPC, True), (errno.EIO, False), (errno.EOPNOTSUPP, False), (errno.EACCES, False)],
)
def test_it_knows_a_quota_of_which_nothing_is_left(
    reserve: Reserve, path: Path, call: str, code: int, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not reserve.is_needed()

    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        # Elsewhere there are no files without a name.
        assert reserve.is_needed() is (needed and sys.platform == "linux")
    assert sizes(path) == {}


def test_where_the_system_lets_no_file_grow_sqlite_is_understood(database: Database, path: Path) -> None:
    # The system says EFBIG here and EDQUOT of a quota, and SQLite of both that there was trouble with the disk.
    with database.writing() as transaction:
        transaction.connection.execute("CREATE TABLE anything (content)")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        meaning = StoreFull if sys.platform == "linux" else StoreUnavailable
        with pytest.raises(meaning), database.writing() as transaction:
            transaction.connection.execute("INSERT INTO anything VALUES (zeroblob(100000))")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("code", "meaning"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreUnavailable)]
)
def test_half_a_file_is_not_kept(
    reserve: Reserve, path: Path, code: int, meaning: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, "refused", "/a/path")

    with monkeypatch.context() as broken:
        broken.setattr(os, "posix_fallocate", fail)
        with pytest.raises(meaning) as refused:
            reserve.require()
    assert "/" not in str(refused.value)
    assert sizes(path) == {}
    reserve.require()
    assert sizes(path) == WHOLE


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_no_blocks_can_be_set_aside_they_are_written(
    reserve: Reserve, path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_aside(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", set_aside)
    reserve.require()
    assert sizes(path) == WHOLE


def test_where_no_file_may_be_made_it_stands_in_nobodys_way(
    reserve: Reserve, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "refused")

    monkeypatch.setattr(os, "open", refuse)
    reserve.require()
    assert sizes(path) == {}


def test_a_file_of_it_that_power_loss_has_emptied_is_made_anew(reserve: Reserve, path: Path) -> None:
    reserve.require()
    os.truncate(f"{path}-reserve1", 0)
    reserve.require()
    assert sizes(path) == WHOLE


@pytest.mark.case(55)
@pytest.mark.parametrize(
    ("code", "meaning"),
    [(errno.EMFILE, StoreUnavailable), (errno.EIO, StoreUnavailable), (errno.EACCES, StoreDenied)],
)
def test_a_look_at_it_that_fails_is_told_in_the_words_of_stores(
    reserve: Reserve, monkeypatch: pytest.MonkeyPatch, code: int, meaning: type[StoreError]
) -> None:
    reserve.require()
    reserve.give_up()

    def stat(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), "/a/path/that/nobody/must/see")

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", stat)
        with pytest.raises(meaning) as refused:
            reserve.require()
        reserve.restore()  # some other time
    assert type(refused.value) is meaning
    assert "/" not in str(refused.value)
    reserve.require()


@pytest.mark.parametrize("plant", [each for each in PLANTS if each is not plant_hard_link])
@pytest.mark.parametrize("content", [b"of somebody else", bytes(RESERVE_BYTES)], ids=["small", "large"])
@pytest.mark.parametrize("number", [1, 2, RESERVE_FILES])
def test_something_else_in_its_place_is_neither_followed_nor_removed_and_the_rest_is_made(
    number: int, content: bytes, plant: Plant, reserve: Reserve, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "file"
    outside.write_bytes(content)
    taken = Path(f"{path}-reserve{number}")
    plant(taken, outside)
    status = taken.lstat()
    others = {name: size for name, size in WHOLE.items() if name != f"reserve{number}"}

    def files() -> dict[str, int]:
        return {file.name.removeprefix(f"{path.name}-"): file.lstat().st_size for file in path.parent.iterdir()}

    assert taken_names(str(path)) == [str(taken)]
    for _ in range(2):
        reserve.require()
        assert files() == others | {f"reserve{number}": status.st_size}
        while reserve.give_up():
            pass
        assert files() == {f"reserve{number}": status.st_size}
        reserve.restore()
        assert files() == others | {f"reserve{number}": status.st_size}
    found = taken.lstat()
    assert (found.st_mode, found.st_ino, found.st_mtime_ns) == (status.st_mode, status.st_ino, status.st_mtime_ns)
    assert outside.read_bytes() == content


def test_what_is_missing_beside_something_else_is_still_missing(reserve: Reserve, path: Path, disk: Disk) -> None:
    Path(f"{path}-reserve1").mkdir()
    reserve.require()
    assert reserve.give_up()
    disk.free_bytes = 2 * RESERVE_BYTES // RESERVE_FILES - 4096
    with pytest.raises(StoreFull):
        reserve.require()


def test_a_link_put_in_its_place_between_the_look_and_the_making_is_not_followed(
    reserve: Reserve, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    first = Path(reserve_names(str(path))[0])
    monkeypatch.setattr("stores.reserve._size_of", lambda _: 0)
    first.symlink_to(outside)
    with pytest.raises(StoreError):
        reserve.require()
    assert outside.read_bytes() == b"theirs"
    assert first.is_symlink()


def test_a_fifo_put_in_its_place_between_the_look_and_the_making_is_not_removed(
    reserve: Reserve, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Path(reserve_names(str(path))[0])
    monkeypatch.setattr("stores.reserve._size_of", lambda _: 0)
    os.mkfifo(first)
    reserve.require()
    assert first.is_fifo()


def test_nothing_but_other_things_in_its_place_stands_in_nobodys_way(reserve: Reserve, path: Path, disk: Disk) -> None:
    for name in reserve_names(str(path)):
        Path(name).mkdir()
    disk.free_bytes = 0
    reserve.require()
    assert not reserve.give_up()


def test_only_who_has_given_it_up_makes_it_again_unasked(reserve: Reserve, path: Path) -> None:
    reserve.restore()
    assert sizes(path) == {}


def test_of_no_size_it_is_nothing(path: Path, disk: Disk) -> None:
    none = Reserve(path, size_bytes=0)
    disk.free_bytes = 0
    none.require()
    assert not none.give_up()
    none.restore()
    assert sizes(path) == {}


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    with closing(Database(sqlite_url)) as opened:
        yield opened


def test_a_database_gives_it_up_and_makes_it_again_when_it_closes(database: Database, path: Path) -> None:
    database.require_room()
    assert database.give_up_reserve()
    assert "reserve1" not in sizes(path)
    database.close()
    assert WHOLE.items() <= sizes(path).items()


def test_a_server_has_a_disk_of_its_own(postgres_url: str) -> None:
    with closing(Database(postgres_url)) as database:
        database.require_room()
        assert not database.give_up_reserve()
        database.restore_reserve()
