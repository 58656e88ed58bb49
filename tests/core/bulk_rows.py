"""Rows of a catalogue written in bulk, behind the library's back, in SQLite or PostgreSQL."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import psycopg
from psycopg.rows import dict_row

from tests.postgres import as_admin

Row = dict[str, Any]


class Rows(Protocol):
    """One database. What is inserted is there for others after `finish`."""

    def rows(self, table: str, condition: str) -> list[Row]:
        """Return whole rows, by column."""

    def insert(self, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        """Add rows."""

    def add_usage(self, tenant_id: str, owner_id: str, added: tuple[int, int, int, int]) -> None:
        """Add bytes, results, sessions and numbers to an owner's counters."""

    def number(self, query: str) -> int:
        """Run a query for one number."""

    def finish(self) -> None:
        """Commit, and do what a database does by itself sooner or later."""


@contextmanager
def rows_of(database_url: str) -> Iterator[Rows]:
    """Open a database as whom nothing holds back."""
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        try:
            yield _SqliteRows(connection)
        finally:
            connection.close()
        return
    with psycopg.connect(as_admin(database_url).replace("+psycopg", "")) as server:
        yield _PostgresRows(server)


class _SqliteRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -400000")

    def rows(self, table: str, condition: str) -> list[Row]:
        return [dict(row) for row in self._connection.execute(f"SELECT * FROM {table} WHERE {condition}")]

    def insert(self, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def add_usage(self, tenant_id: str, owner_id: str, added: tuple[int, int, int, int]) -> None:
        self._connection.execute(_ADD_USAGE.replace("%s", "?"), (*added, tenant_id, owner_id))

    def number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])

    def finish(self) -> None:
        self._connection.commit()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class _PostgresRows:
    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        # Foreign keys are not looked up for each row: an owner always comes before what it owns.
        connection.execute("SET session_replication_role = replica")

    def rows(self, table: str, condition: str) -> list[Row]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return list(cursor.execute(f"SELECT * FROM {table} WHERE {condition}".encode()))

    def insert(self, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        text = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(text.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def add_usage(self, tenant_id: str, owner_id: str, added: tuple[int, int, int, int]) -> None:
        self._connection.execute(_ADD_USAGE.encode(), (*added, tenant_id, owner_id))

    def number(self, query: str) -> int:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def finish(self) -> None:
        self._connection.commit()
        self._connection.autocommit = True
        # What autovacuum does on a server sooner or later.
        self._connection.execute("VACUUM ANALYZE")


_ADD_USAGE: Final = (
    "UPDATE tenancy_usage SET used_bytes = used_bytes + %s, results = results + %s, sessions = sessions + %s,"
    " last_number = last_number + %s WHERE tenant_id = %s AND owner_id = %s"
)
