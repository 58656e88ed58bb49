"""A signal handler that raises in the middle of a statement, as Ctrl-C and the time limits of job runners do."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import sqlalchemy as sa

from stores.errors import StoreUnavailable
from stores.sql import Database, Statement, Transaction
from tenancy.isolation import TENANT_ID_SETTING

MINE = {TENANT_ID_SETTING: "a" * 32}
WAIT = Statement(sa.text("SELECT pg_sleep(30)"))
WHO = Statement(sa.text(f"SELECT NULLIF(current_setting('{TENANT_ID_SETTING}', true), ''), pg_backend_pid()"))


class TimeLimit(Exception):
    """What a job runner raises in a task that takes too long."""


WAYS: dict[str, Callable[[Database], AbstractContextManager[Transaction]]] = {
    "reading": lambda database: database.reading(local=MINE),
    "in a snapshot": lambda database: database.reading(local=MINE, snapshot=True),
    "writing": lambda database: database.writing(local=MINE),
}


@pytest.fixture
def pooled(postgres_url: str) -> Iterator[Database]:
    opened = Database(postgres_url)
    yield opened
    opened.close()


@pytest.fixture(params=[KeyboardInterrupt, SystemExit, TimeLimit])
def interruption(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    def interrupt(*_: object) -> None:
        raise request.param

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def ask(database: Database, way: str, statement: Statement) -> Any:
    with WAYS[way](database) as transaction:
        return transaction.one(statement)


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_whose_statement_was_cut_short_serves_nobody_any_more(
    pooled: Database, interruption: type[BaseException], way: str
) -> None:
    name, process = ask(pooled, way, WHO)
    assert name == MINE[TENANT_ID_SETTING]
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    # The driver may make an error of its own of an ordinary exception; never of one that means to stop.
    with pytest.raises((TimeLimit, StoreUnavailable) if interruption is TimeLimit else interruption):
        ask(pooled, way, WAIT)
    with pooled.reading() as transaction:
        (name, of_next) = transaction.one(WHO) or ("", process)
    assert (name, of_next != process) == (None, True)
    assert ask(pooled, way, WHO) == (MINE[TENANT_ID_SETTING], of_next)


def test_a_connection_that_was_left_inside_a_transaction_is_not_handed_out(pooled: Database) -> None:
    borrowed = pooled.engine.raw_connection()
    driver: Any = borrowed.driver_connection
    borrowed.close()
    driver.execute("BEGIN")
    driver.execute("SELECT set_config(%s, %s, true)", list(*MINE.items()))
    with pooled.reading() as transaction:
        row = transaction.one(WHO)
    assert row is not None
    assert row[0] is None
