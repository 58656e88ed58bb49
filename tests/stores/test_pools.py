"""Connections to a SQLite file between two transactions: how many there may be, and what becomes of each."""

import gc
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stores import pools
from stores.driver_errors import SqliteErrors
from stores.errors import StoreUnavailable
from stores.pools import SqliteConnection, SqlitePool
from stores.reserve import Reserve
from tests.forked import in_a_child


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], SqliteConnection]:
    path = tmp_path / "a.sqlite3"
    return lambda: sqlite3.connect(path, check_same_thread=False, isolation_level=None, factory=SqliteConnection)


@pytest.fixture
def make_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SqlitePool]:
    monkeypatch.setattr(pools, "KEPT", 2)
    monkeypatch.setattr(pools, "OVERFLOW", 1)
    errors = SqliteErrors(Reserve(tmp_path / "a.sqlite3", size_bytes=0))

    def make(connect: Callable[[], SqliteConnection], wait_seconds: float = 30.0) -> SqlitePool:
        return SqlitePool(connect, errors, wait_seconds=wait_seconds)

    return make


def is_open(connection: SqliteConnection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


def test_the_connection_that_was_used_last_is_used_next(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    first, second = pool.take(), pool.take()
    assert first is not second
    pool.give(first)
    pool.give(second)
    assert (pool.lent(), pool.idle()) == (0, 2)
    assert pool.take() is second
    assert pool.take() is first
    assert (pool.lent(), pool.idle()) == (2, 0)


def test_of_those_that_come_back_only_so_many_are_kept_open(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    taken = [pool.take() for _ in range(3)]
    for connection in taken:
        pool.give(connection)
    assert [is_open(connection) for connection in taken] == [True, True, False]
    assert (pool.lent(), pool.idle()) == (0, 2)
    # The one that was closed makes room for another one.
    assert len({id(pool.take()) for _ in range(3)}) == 3


@pytest.mark.parametrize("back", ["give", "discard"])
def test_whoever_finds_none_free_waits_until_one_comes_back(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection], back: str
) -> None:
    pool = make_pool(connect)
    taken = [pool.take() for _ in range(3)]
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(pool.take)
        while not pool._waiting:
            pass
        assert not waiting.done()
        getattr(pool, back)(taken[0])
        assert is_open(waiting.result(timeout=20))
    assert (pool.lent(), pool.idle(), pool._waiting) == (3, 0, 0)


def test_one_that_comes_back_just_before_the_waiting_is_known_is_found(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    taken = [pool.take() for _ in range(3)]
    looked = pool._popped

    def given_back_at_the_first_look() -> SqliteConnection | None:
        found = looked()
        if len(taken) == 3:
            pool.give(taken.pop())
        return found

    pool._popped = given_back_at_the_first_look  # type: ignore[method-assign]
    # Nobody gives another one back, and nobody has notified.
    assert is_open(pool.take())


def test_nobody_waits_for_ever(make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]) -> None:
    pool = make_pool(connect, 0.05)
    taken = [pool.take() for _ in range(3)]
    with pytest.raises(StoreUnavailable, match="became free"):
        pool.take()
    assert (pool.lent(), pool._waiting) == (len(taken), 0)


def test_a_connection_that_cannot_be_made_takes_no_place(make_pool: Callable[..., SqlitePool], tmp_path: Path) -> None:
    def refused() -> SqliteConnection:
        return sqlite3.connect(tmp_path / "canary" / "a.sqlite3", factory=SqliteConnection)

    pool = make_pool(refused)
    for _ in range(5):
        with pytest.raises(StoreUnavailable) as failure:
            pool.take()
        assert "canary" not in str(failure.value)
    assert pool.lent() == 0


@pytest.mark.parametrize("waits", [False, True])
def test_one_that_somebody_lost_is_closed_and_counts_no_more(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection], waits: bool
) -> None:
    # As whoever is interrupted between two steps loses it.
    pool = make_pool(connect, 10)
    taken = [pool.take() for _ in range(3)]
    with ThreadPoolExecutor(1) as other:
        if waits:
            waiting = other.submit(pool.take)
            while not pool._waiting:
                pass
        taken.pop()
        assert is_open(waiting.result(timeout=20) if waits else pool.take())


def test_whoever_waits_gets_none_after_the_end(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    taken = [pool.take() for _ in range(3)]
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(pool.take)
        while not pool._waiting:
            pass
        pool.close()
        for connection in taken:
            pool.give(connection)
        with pytest.raises(StoreUnavailable, match="closed"):
            waiting.result(timeout=20)
    assert not any(is_open(connection) for connection in taken)


def test_a_connection_that_is_left_inside_a_transaction_is_not_handed_out(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    connection = pool.take()
    connection.execute("BEGIN IMMEDIATE")
    pool.give(connection)
    assert not is_open(connection)
    assert (pool.lent(), pool.idle()) == (0, 0)
    pool.take().execute("BEGIN IMMEDIATE")


def test_what_comes_back_after_the_end_is_closed(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    idle, lent = pool.take(), pool.take()
    pool.give(idle)
    pool.close()
    pool.close()
    assert not is_open(idle)
    assert is_open(lent)
    pool.give(lent)
    assert not is_open(lent)


class ClosedMeanwhile(deque[SqliteConnection]):
    def __init__(self, pool: SqlitePool) -> None:
        self._pool = pool

    def append(self, connection: SqliteConnection) -> None:
        self._pool.close()
        super().append(connection)


def test_what_comes_back_at_the_very_end_is_closed(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    connection = pool.take()
    pool._idle = ClosedMeanwhile(pool)
    pool.give(connection)
    assert not is_open(connection)


def times_open(folder: Path) -> int:
    """How often this process has a file in the folder open."""
    return sum(str(folder) in os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if os.path.lexists(entry))


def test_a_child_has_connections_of_its_own_and_leaves_the_parents_open(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection], tmp_path: Path
) -> None:
    pool = make_pool(connect)
    pool.give(pool.take())
    of_parent = id(pool._idle[0])

    def in_the_child() -> list[object]:
        before = times_open(tmp_path)
        pool.start_afresh()
        gc.collect()
        return [before, times_open(tmp_path), id(pool.take()) == of_parent, pool.lent()]

    assert in_a_child(in_the_child) == [1, 1, False, 1]
    assert id(pool.take()) == of_parent


def test_threads_that_take_and_give_lose_none(
    make_pool: Callable[..., SqlitePool], connect: Callable[[], SqliteConnection]
) -> None:
    pool = make_pool(connect)
    in_use: set[int] = set()
    guard = threading.Lock()

    def work() -> None:
        for _ in range(300):
            connection = pool.take()
            with guard:
                assert id(connection) not in in_use
                in_use.add(id(connection))
            connection.execute("SELECT 1")
            with guard:
                in_use.remove(id(connection))
            pool.give(connection)

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work) for _ in range(8)]:
            done.result(timeout=60)
    assert pool.lent() == 0
    assert 1 <= pool.idle() <= 2
