"""How a transaction ends: with its last statements or without them, and never with half of them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from stores.errors import Conflict, StoreUnavailable
from stores.sql import Database, Statement
from tests.forked import in_a_child
from tests.stores.test_database import make_database

TABLE = sa.Table(
    "counters", sa.MetaData(), sa.Column("name", sa.String, primary_key=True), sa.Column("value", sa.Integer)
)
ADD = Statement(
    TABLE.update()
    .where(TABLE.c.name == sa.bindparam("one"), TABLE.c.value < 10)
    .values(value=TABLE.c.value + 1)
    .returning(TABLE.c.value)
)
INSERT = Statement(TABLE.insert().returning(TABLE.c.name))
READ = Statement(sa.select(TABLE.c.name, TABLE.c.value).order_by(TABLE.c.name))


@pytest.fixture
def counters(empty_database_url: str) -> Iterator[Database]:
    database = make_database(empty_database_url)
    TABLE.create(database.engine)
    with database.writing() as transaction:
        transaction.execute_many(INSERT, [{"name": "a", "value": 1}, {"name": "b", "value": 10}])
    yield database
    database.close()


def values(database: Database) -> dict[str, int]:
    with database.reading() as transaction:
        return dict(transaction.all(READ))


class Unlucky:
    """The lock of SQLite's writers, beside a signal that comes just when it is had, or just before."""

    def __init__(self, lock: Any, *, has_it: bool) -> None:
        self._lock = lock
        self._has_it = has_it

    def acquire(self, **how: float) -> bool:
        if self._has_it:
            self._lock.acquire(**how)
        raise KeyboardInterrupt

    def release(self) -> None:
        self._lock.release()


def test_whoever_is_interrupted_on_the_way_into_a_transaction_keeps_nobody_out(counters: Database) -> None:
    lock: Any = counters._writer
    counters._writer = Unlucky(lock, has_it=True)  # type: ignore[assignment]
    if counters.is_sqlite:
        with pytest.raises(KeyboardInterrupt), counters.writing():
            pass
    counters._writer = lock

    def write() -> None:
        with counters.writing(patience_seconds=1) as transaction:
            transaction.one(INSERT, name="c", value=3)

    with ThreadPoolExecutor(1) as other:
        other.submit(write).result()
    assert values(counters)["c"] == 3


def test_whoever_is_interrupted_while_he_waits_lets_nobody_in(counters: Database) -> None:
    if not counters.is_sqlite:
        # There it is the server that lets nobody in.
        return
    lock: Any = counters._writer
    with ThreadPoolExecutor(1) as other, counters.writing() as transaction:

        def interrupted() -> None:
            counters._writer = Unlucky(lock, has_it=False)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt), counters.writing():
                pass
            counters._writer = lock

        other.submit(interrupted).result()
        with pytest.raises(StoreUnavailable, match="other writers of this process"):
            other.submit(lambda: counters.writing(patience_seconds=0.1).__enter__()).result()
        transaction.one(INSERT, name="c", value=3)
    assert values(counters)["c"] == 3


def test_a_fork_leaves_the_transactions_of_other_threads_alone(counters: Database) -> None:
    inside, go = threading.Event(), threading.Event()

    def write() -> None:
        with counters.writing() as transaction:
            transaction.one(INSERT, name="c", value=3)
            inside.set()
            assert go.wait(60)
            transaction.one(INSERT, name="d", value=4)

    with ThreadPoolExecutor(1) as other:
        writing = other.submit(write)
        assert inside.wait(60)
        try:
            assert in_a_child(lambda: values(counters)) == {"a": 1, "b": 10}
        finally:
            go.set()
        writing.result(timeout=60)
    # Rolled back by the child, only what came after it would be there.
    assert values(counters) == {"a": 1, "b": 10, "c": 3, "d": 4}


class GivenUp(Exception):
    """What whoever sees `finish` refuse has to raise."""


def test_the_last_statements_are_done_and_committed_together(counters: Database) -> None:
    with counters.writing() as transaction:
        transaction.one(INSERT, name="c", value=3)
        assert transaction.finish((ADD, {"one": "a"}), (ADD, {"one": "c"}))
        if not counters.is_sqlite:
            # Everybody sees it already; nothing is left to do at the end of the block.
            assert transaction.is_committed
            assert values(counters) == {"a": 2, "b": 10, "c": 4}
    assert values(counters) == {"a": 2, "b": 10, "c": 4}


@pytest.mark.parametrize("last", [["b"], ["a", "b"], ["b", "a"], ["a", "nobody"]])
def test_one_that_changes_nothing_undoes_all_of_it(counters: Database, last: list[str]) -> None:
    def give_up() -> None:
        with counters.writing() as transaction:
            transaction.one(INSERT, name="c", value=3)
            if not transaction.finish(*((ADD, {"one": name}) for name in last)):
                assert not transaction.is_committed
                raise GivenUp

    with pytest.raises(GivenUp):
        give_up()
    assert values(counters) == {"a": 1, "b": 10}
    # The connection is as good as new.
    with counters.writing() as transaction:
        assert transaction.finish((ADD, {"one": "a"}))
    assert values(counters) == {"a": 2, "b": 10}


def test_one_that_the_database_refuses_undoes_all_of_it(counters: Database) -> None:
    def collide() -> None:
        with counters.writing() as transaction:
            transaction.finish((ADD, {"one": "a"}), (INSERT, {"name": "b", "value": 1}))

    with pytest.raises(Conflict):
        collide()
    assert values(counters) == {"a": 1, "b": 10}


def test_what_is_said_for_later_is_done_before_what_comes_next(counters: Database) -> None:
    with counters.writing() as transaction:
        transaction.later(INSERT, name="c", value=3)
        assert transaction.one(ADD, one="c") == (4,)
        transaction.later(INSERT, name="d", value=5)
    assert values(counters) == {"a": 1, "b": 10, "c": 4, "d": 5}


@pytest.mark.parametrize("last", ["a", "b"])
def test_what_is_said_for_later_is_done_with_the_last_statements_or_not_at_all(counters: Database, last: str) -> None:
    with suppress(GivenUp), counters.writing() as transaction:
        transaction.later(INSERT, name="c", value=3)
        if not transaction.finish((ADD, {"one": last})):
            raise GivenUp
    assert values(counters) == ({"a": 2, "b": 10, "c": 3} if last == "a" else {"a": 1, "b": 10})


@pytest.mark.parametrize("ending", ["finish", "end", "next"])
def test_what_is_said_for_later_and_refused_undoes_all_of_it(
    counters: Database, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    def collide() -> None:
        with counters.writing() as transaction:
            transaction.later(INSERT, name="c", value=3)
            transaction.later(INSERT, name="b", value=3)
            transaction.later(INSERT, name="d", value=3)
            if ending == "finish":
                transaction.finish((ADD, {"one": "a"}))
            elif ending == "next":
                transaction.one(READ)

    with pytest.raises(Conflict) as refusal:
        collide()
    assert caplog.records == []
    assert refusal.value.__cause__ is None
    assert values(counters) == {"a": 1, "b": 10}
    with counters.writing() as transaction:
        assert transaction.finish((ADD, {"one": "a"}))


def test_many_who_finish_at_once_are_all_counted_and_none_beyond_the_limit(counters: Database) -> None:
    answers: list[bool] = []

    def add() -> None:
        with suppress(GivenUp), counters.writing() as transaction:
            answers.append(transaction.finish((ADD, {"one": "a"})))
            if not answers[-1]:
                raise GivenUp

    threads = [threading.Thread(target=add) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True] * 9
    assert values(counters)["a"] == 10
