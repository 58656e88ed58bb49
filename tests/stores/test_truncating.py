"""SQLite's log is cut for good under "power", and never synced by us under "process"."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stores.connections import Durability, create_sqlite_file
from stores.errors import StoreDenied, StoreUnavailable
from stores.sql import Database, _sync_log


@contextmanager
def opened(path: Path, *, durability: Durability = "power", lock_wait_seconds: float = 30.0) -> Iterator[Database]:
    """A database whose log holds something."""
    create_sqlite_file(path)
    with closing(Database(f"sqlite:///{path}", durability=durability, lock_wait_seconds=lock_wait_seconds)) as database:
        with database.writing() as transaction:
            transaction.connection.execute("CREATE TABLE anything (column)")
        yield database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.sqlite3"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The inode and the size of every file that this process syncs by itself; SQLite does so for itself."""
    found: list[tuple[int, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        found.append((status.st_ino, status.st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize("is_link", [False, True])
def test_a_log_that_was_cut_is_synced_as_it_is_now(is_link: bool, path: Path, synced: list[tuple[int, int]]) -> None:
    name = path
    if is_link:
        create_sqlite_file(path)
        name = path.with_name("link")
        name.symlink_to(path)
    with opened(name) as database:
        assert log_of(path).stat().st_size > 0
        assert database.checkpoint()
        assert synced == []
        assert database.checkpoint(truncate=True)
        assert synced == [(log_of(path).stat().st_ino, 0)]


def test_under_process_nothing_is_synced(path: Path, synced: list[tuple[int, int]]) -> None:
    with opened(path, durability="process") as database:
        assert database.checkpoint(truncate=True)
        assert log_of(path).stat().st_size == 0
    assert synced == []


@pytest.mark.timeout(20)
def test_who_reads_the_log_for_long_keeps_nobody_from_writing_for_long(path: Path) -> None:
    # With the patience of every other statement this would take half a minute.
    with opened(path) as database, closing(Database(f"sqlite:///{path}")) as other:
        with other.reading(snapshot=True) as reading:
            assert reading.connection.execute("SELECT * FROM anything").fetchall() == []
            with database.writing() as transaction:
                transaction.connection.execute("INSERT INTO anything VALUES (1)")
            assert not database.checkpoint(truncate=True)
        # Everybody else waits for locks as long as before.
        with database.reading() as transaction:
            assert transaction.connection.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
        assert database.checkpoint(truncate=True)


def test_syncing_the_log_takes_no_lock_of_sqlites_away(path: Path) -> None:
    with (
        opened(path, lock_wait_seconds=0) as database,
        closing(Database(f"sqlite:///{path}", lock_wait_seconds=0)) as other,
    ):
        with database.writing():
            assert not database.checkpoint(truncate=True)
            with pytest.raises(StoreUnavailable), other.writing():
                pass
        with other.writing():
            pass


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_cut_that_is_not_known_to_last_is_an_error_and_not_tried_again(
    code: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def fsync(descriptor: int) -> None:
        attempts.append(descriptor)
        raise OSError(code, os.strerror(code), "/a/path/that/nobody/must/see")

    with opened(path) as database:
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreUnavailable) as refused:
            database.checkpoint(truncate=True)
        assert len(attempts) == 1
        assert "/" not in str(refused.value)


def test_a_link_in_place_of_the_log_is_not_followed(path: Path, synced: list[tuple[int, int]]) -> None:
    with opened(path) as database:
        log = log_of(path)
        aside, outside = path.with_name("aside"), path.with_name("outside")
        outside.write_bytes(b"of somebody else")
        log.rename(aside)
        log.symlink_to(outside)
        try:
            with pytest.raises(StoreDenied):
                database.checkpoint(truncate=True)
        finally:
            aside.rename(log)
    assert synced == []
    assert outside.read_bytes() == b"of somebody else"


def test_where_there_is_no_log_there_is_nothing_to_sync(path: Path, synced: list[tuple[int, int]]) -> None:
    with opened(path) as database:
        aside = path.with_name("aside")
        log_of(path).rename(aside)
        try:
            assert database.checkpoint(truncate=True)
        finally:
            aside.rename(log_of(path))
    assert synced == []


@pytest.mark.timeout(30)
def test_a_fifo_in_place_of_the_log_keeps_nobody_waiting(path: Path) -> None:
    os.mkfifo(log_of(path))
    with pytest.raises(StoreUnavailable):
        _sync_log(str(path))
