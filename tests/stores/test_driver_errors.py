"""A driver's error becomes a sentence that says what to do and repeats nothing of the driver's."""

import socket

import pytest

from stores.errors import StoreUnavailable
from stores.sql import Database
from tests.postgres import PostgresServer


def refusal_of(url: str) -> str:
    """Connect, expect to be refused, and return in which words."""
    database = Database(url, lock_wait_seconds=1)
    with pytest.raises(StoreUnavailable) as refused, database.reading():
        pass
    database.close()
    return str(refused.value)


def test_a_port_nobody_listens_at_is_called_that() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        said = refusal_of(f"postgresql+psycopg://canary:secret@127.0.0.1:{port}/canary")
    assert said == "Nothing listens at the database's host and port."


def test_an_unknown_database_is_called_that_and_not_named(postgres: PostgresServer) -> None:
    said = refusal_of(postgres.url("canary_that_is_no_database"))
    assert said == "The database server knows no such database or role."


def test_a_missing_socket_is_called_that() -> None:
    said = refusal_of("postgresql+psycopg://canary@/canary?host=/nonexistent/canary")
    assert said == "There is no database server at this socket."
