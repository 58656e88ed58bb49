"""What is sent together to PostgreSQL, and what becomes of it when it is cut short."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest
import sqlalchemy as sa

from stores.errors import Conflict, StoreError, StoreUnavailable
from stores.round_trips import ask
from stores.sql import Database, Statement, Transaction
from tests.stores.test_database import make_database
from tests.stores.test_transactions import ADD, INSERT, TABLE, values

SLEEP = Statement(sa.text("SELECT pg_sleep(30)"))
ECHO = Statement(sa.text("SELECT CAST(:text AS TEXT), CAST(:number AS BIGINT), CAST(:data AS BYTEA), '100%', :none"))
FIND = Statement(sa.select(TABLE).where(TABLE.c.name == sa.bindparam("name")))
WIDEN = "ALTER TABLE counters ALTER COLUMN value TYPE BIGINT"


class TimeLimit(Exception):
    """What a job runner raises in a task that takes too long."""


@pytest.fixture
def counters(empty_postgres_url: str) -> Iterator[Database]:
    database = make_database(empty_postgres_url)
    TABLE.create(database.engine)
    with database.writing() as transaction:
        transaction.execute_many(INSERT, [{"name": "a", "value": 1}, {"name": "b", "value": 1}])
    yield database
    database.close()


def test_an_error_holds_nothing_of_what_was_sent(counters: Database) -> None:
    with counters.reading() as transaction:
        connection = transaction.connection
    with pytest.raises(psycopg.errors.DivisionByZero) as refusal:
        ask(connection, [("SELECT CAST(%(secret)s AS TEXT)", {"secret": "x"}), ("SELECT 1 / 0", None)])
    frames = [frame for frame, _ in traceback.walk_tb(refusal.value.__traceback__) if frame.f_code is ask.__code__]
    assert len(frames) == 1
    assert not {"said", "ready", "result"} & set(frames[0].f_locals)


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_was_refused_is_not_acknowledged_by_going_on(counters: Database, goes_on: bool) -> None:
    divided = Statement(sa.text("SELECT 1 / 0"))

    def write() -> None:
        with counters.writing() as transaction:
            transaction.later(INSERT, name="c", value=3)
            if goes_on:
                with suppress(StoreError):
                    transaction.one(divided)
            else:
                transaction.later(divided)

    with pytest.raises(StoreUnavailable, match="nothing was written"):
        write()
    assert values(counters) == {"a": 1, "b": 1}


def in_a_moment(act: Callable[[], object]) -> None:
    threading.Timer(0.3, act).start()


def change_and_sleep(counters: Database, processes: list[int]) -> None:
    """Two changes, one of which is sent with the commit, which a long sleep comes before."""
    with counters.writing() as transaction:
        assert transaction.one(ADD, one="a") == (2,)
        processes.append(transaction.connection.info.backend_pid)
        transaction.later(INSERT, name="c", value=1)
        transaction.finish((SLEEP, {}), (ADD, {"one": "b"}))


def require_untouched(counters: Database, caplog: pytest.LogCaptureFixture) -> None:
    assert caplog.records == []
    assert values(counters) == {"a": 1, "b": 1}
    # Nor is anything held that others wait for, for as long as it would have slept.
    with counters.writing(patience_seconds=5) as transaction:
        assert transaction.finish((ADD, {"one": "a"}), (ADD, {"one": "b"}))
    assert values(counters) == {"a": 2, "b": 2}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, TimeLimit])
def test_last_statements_that_are_cut_short_are_not_committed_and_hold_nobody_up(
    counters: Database, interruption: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(*_: object) -> None:
        raise interruption

    before, processes = signal.signal(signal.SIGUSR1, interrupt), [0]
    try:
        in_a_moment(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(interruption):
            change_and_sleep(counters, processes)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with counters.reading() as transaction:
        assert transaction.connection.info.backend_pid not in processes
    require_untouched(counters, caplog)


def test_last_statements_whose_server_ends_are_not_committed(
    counters: Database, empty_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    processes: list[int] = []

    def end() -> None:
        with psycopg.connect(empty_postgres_url.replace("+psycopg", "")) as other:
            other.execute("SELECT pg_terminate_backend(%s)", processes)

    in_a_moment(end)
    with pytest.raises(StoreUnavailable) as failure:
        change_and_sleep(counters, processes)
    assert failure.value.__cause__ is None
    require_untouched(counters, caplog)


def test_a_connection_that_is_gone_is_told_and_replaced(counters: Database) -> None:
    def lose() -> None:
        with counters.writing() as transaction:
            transaction.one(ADD, one="a")
            os.close(os.dup2(os.open(os.devnull, os.O_RDWR), transaction.connection.fileno()))
            transaction.finish((ADD, {"one": "b"}))

    with pytest.raises(StoreUnavailable):
        lose()
    assert values(counters) == {"a": 1, "b": 1}


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_values_come_back_as_they_went_whatever_they_are(counters: Database, size: int) -> None:
    for number in (0, -1, 40_000, 2**40, -(2**63)):
        given = {"text": "%(é)s %% 100% \\ '$1' \n" * (size // 20), "number": number, "data": os.urandom(size)}
        with counters.reading() as transaction:
            assert transaction.one(ECHO, none=None, **given) == (*given.values(), "100%", None)


def test_a_text_with_a_zero_character_is_refused_not_cut(counters: Database) -> None:
    with pytest.raises(StoreUnavailable), counters.reading() as transaction:
        transaction.one(ECHO, text="a\0b", number=1, data=b"", none=None)


def prepared(counters: Database) -> int:
    """How many statements on the table the server has prepared on the one connection there is."""
    with counters.reading() as transaction:
        query = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT counters%'"
        (count,) = transaction.connection.execute(query).fetchone()
        return int(count)


def find(transaction: Transaction) -> object:
    return transaction.one(FIND, name="a")


def test_a_statement_is_prepared_once_and_again_when_it_fits_no_more(counters: Database) -> None:
    for _ in range(10):
        with counters.reading() as transaction:
            assert find(transaction) == ("a", 1)
    assert prepared(counters) == 1
    # A rollback leaves it alone.
    with suppress(TimeLimit), counters.writing() as transaction:
        find(transaction)
        raise TimeLimit
    assert prepared(counters) == 1
    with psycopg.connect(counters.url.render_as_string(False).replace("+psycopg", "")) as other:
        other.execute(WIDEN)
    with pytest.raises(StoreUnavailable), counters.reading() as transaction:
        find(transaction)
    # On another connection.
    for _ in range(5):
        with counters.reading() as transaction:
            assert find(transaction) == ("a", 1)


def test_a_statement_that_is_said_several_times_at_once_is_prepared_once(counters: Database) -> None:
    for _ in range(2):
        with counters.writing() as transaction:
            for name in ("a", "b", "c", "d"):
                transaction.later(FIND, name=name)
        assert prepared(counters) == 1


def test_a_statement_that_is_refused_while_it_is_prepared_works_later(counters: Database) -> None:
    for _ in range(5):
        with suppress(Conflict), counters.writing() as transaction:
            transaction.later(INSERT, name="a", value=1)
            transaction.one(FIND, name="a")
    with counters.writing() as transaction:
        transaction.later(INSERT, name="c", value=1)
        assert find(transaction) == ("a", 1)
    assert values(counters) == {"a": 1, "b": 1, "c": 1}
