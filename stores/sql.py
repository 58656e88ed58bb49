"""
Transactions on the driver's own connection.

SQLAlchemy owns the pool, the dialects and the statements; each statement is compiled once and then run by the driver,
because Core's own execution costs several times what the driver does. No driver exception leaves this module.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.expression import ClauseElement

from stores.connections import Durability, make_engine, parse_url
from stores.driver_errors import DriverErrors, PostgresErrors, SqliteErrors
from stores.errors import StoreUnavailable
from stores.locks import ProcessLock

#: How long one statement waits for a lock before the store counts as unavailable.
LOCK_WAIT_SECONDS: Final = 30.0


class Statement:
    """
    A Core statement, compiled once per dialect.

    :param clause: The statement; values that vary are `bindparam`s.
    """

    __slots__ = ("_clause", "_compiled")

    def __init__(self, clause: ClauseElement) -> None:
        self._clause = clause
        self._compiled: dict[str, tuple[str, dict[str, Any]]] = {}

    def compiled(self, dialect: sa.Dialect) -> tuple[str, dict[str, Any]]:
        """Return the SQL text for this dialect and the constants in it."""
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled = self._clause.compile(dialect=dialect)
            found = (str(compiled), dict(compiled.params))
            self._compiled[dialect.name] = found
        return found


class Transaction:
    """An open transaction (or, when only reading, a connection in autocommit). Belongs to one thread."""

    __slots__ = ("_dialect", "_errors", "connection")

    def __init__(self, connection: Any, dialect: sa.Dialect, errors: DriverErrors) -> None:
        #: The driver's connection, for a store that joins this transaction.
        self.connection = connection
        self._dialect = dialect
        self._errors = errors

    def _run(self, statement: Statement, parameters: Mapping[str, Any]) -> Any:
        text, constants = statement.compiled(self._dialect)
        try:
            return self.connection.execute(text, {**constants, **parameters})
        except self._errors.driver as error:
            raise self._errors.translate(error) from None

    def execute(self, statement: Statement, **parameters: Any) -> int:
        """Run a statement and return how many rows it changed."""
        count: int = self._run(statement, parameters).rowcount
        return count

    def one(self, statement: Statement, **parameters: Any) -> tuple[Any, ...] | None:
        """Run a query and return its first row, or `None`."""
        cursor = self._run(statement, parameters)
        try:
            row: tuple[Any, ...] | None = cursor.fetchone()
        except self._errors.driver as error:
            raise self._errors.translate(error) from None
        finally:
            cursor.close()
        return row

    def execute_many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each of `rows`."""
        if not rows:
            return
        text, constants = statement.compiled(self._dialect)
        cursor = self.connection.cursor()
        try:
            cursor.executemany(text, [{**constants, **row} for row in rows])
        except self._errors.driver as error:
            raise self._errors.translate(error) from None
        finally:
            cursor.close()

    def all(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a query and return all its rows."""
        cursor = self._run(statement, parameters)
        try:
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        except self._errors.driver as error:
            raise self._errors.translate(error) from None
        return rows


class Database:
    """
    One database: SQLite in a file, or PostgreSQL.

    Safe for threads. Each transaction takes a connection of its own from the pool. Safe after a fork as well, on SQLite
    only if no other thread was using SQLite, here or elsewhere, at that moment: its own global locks do not survive it;
    and in general a process with threads at work should not be forked, since other libraries have such locks too.

    :param url: `sqlite:///PATH` or `postgresql+psycopg://…`.
    :param durability: `"power"`: a commit survives power loss. `"process"`: it survives the death of this process
        (SQLite `synchronous=NORMAL`, PostgreSQL `synchronous_commit=off`).
    :raises ValueError: If the URL is of another kind or the driver is not installed. The message has no part of it.
    """

    def __init__(self, url: str, *, durability: Durability = "power", lock_wait_seconds: float = LOCK_WAIT_SECONDS):
        self.durability = durability
        self.lock_wait_seconds = lock_wait_seconds
        self.url = parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = make_engine(self.url, durability=durability, lock_wait_seconds=lock_wait_seconds)
        self._errors: DriverErrors = SqliteErrors() if self.is_sqlite else PostgresErrors()
        self._owner_pid = os.getpid()
        self._taking_over = ProcessLock()
        # SQLite's own busy handler polls and is unfair; within one process writers queue here instead.
        self._writer = threading.Lock()
        self._closed = False

    @property
    def sqlite_path(self) -> Path | None:
        """Where the SQLite file is, or `None` on PostgreSQL."""
        return Path(self.url.database or "") if self.is_sqlite else None

    @property
    def dialect(self) -> sa.Dialect:
        """The dialect statements are compiled for."""
        return self.engine.dialect

    @contextmanager
    def writing(
        self, *, patience_seconds: float | None = None, shred: bool = False, snapshot: bool = False
    ) -> Iterator[Transaction]:
        """
        Run one transaction; commit at the end, roll back on any exception.

        :param patience_seconds: Give up after waiting this long for a lock, instead of `lock_wait_seconds`.
        :param shred: On SQLite, overwrite with zeros what this transaction deletes.
        :param snapshot: All statements see one and the same state; a row that others changed since is an error.
        :raises StoreUnavailable: If the database is away or stays locked. Nothing was changed.
        :raises StoreFull: If there is no room. Nothing was changed.
        """
        patience = self.lock_wait_seconds if patience_seconds is None else patience_seconds
        with self._checked_out() as connection:
            writer = self._writer
            if self.is_sqlite and not writer.acquire(timeout=patience):
                raise StoreUnavailable("The database stayed locked by other writers of this process.")
            try:
                self._begin(connection, patience, shred=shred, snapshot=snapshot)
                try:
                    yield Transaction(connection, self.dialect, self._errors)
                    self._command(connection, "COMMIT")
                    if shred and self.is_sqlite:
                        # After a failure it stays on, which costs this connection some speed and nothing else.
                        self._command(connection, "PRAGMA secure_delete=OFF")
                except BaseException:
                    self._abandon(connection)
                    raise
            finally:
                if self.is_sqlite:
                    writer.release()

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Iterator[Transaction]:
        """
        Run queries. Without `snapshot` each one sees the newest committed state and none opens a transaction.

        :param snapshot: All queries see one and the same state.
        :raises StoreUnavailable: If the database is away or stays locked.
        """
        with self._checked_out() as connection:
            if not snapshot:
                yield Transaction(connection, self.dialect, self._errors)
                return
            self._command(connection, "BEGIN" if self.is_sqlite else _BEGIN_SNAPSHOT)
            try:
                yield Transaction(connection, self.dialect, self._errors)
            finally:
                self._abandon(connection)

    def joined(self, connection: Any) -> Transaction:
        """
        Return a transaction that somebody else has begun and will end.

        :param connection: A driver connection of this database, inside an open transaction.
        """
        return Transaction(connection, self.dialect, self._errors)

    def checkpoint(self, *, truncate: bool = False) -> bool:
        """
        Move SQLite's write-ahead log into the database file as far as readers allow. Nothing on PostgreSQL.

        :param truncate: Also cut the log to nothing, so that no overwritten page is left in it.
        :returns: Whether all of it was moved.
        """
        if not self.is_sqlite:
            return True
        with self._checked_out() as connection:
            try:
                row = connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if truncate else 'PASSIVE'})").fetchone()
            except self._errors.driver as error:
                raise self._errors.translate(error) from None
        busy, in_log, moved = row
        return bool(busy == 0 and in_log == moved)

    def close(self) -> None:
        """Close every connection. May be repeated; later transactions raise `StoreUnavailable`."""
        self._closed = True
        self.engine.dispose()

    @contextmanager
    def _checked_out(self) -> Iterator[Any]:
        if self._closed:
            raise StoreUnavailable("The database was closed.")
        if os.getpid() != self._owner_pid:
            self._start_afresh()
        try:
            pooled = self.engine.raw_connection()
        except sa.exc.TimeoutError:
            raise StoreUnavailable("No database connection became free in time.") from None
        except sa.exc.DBAPIError as error:
            raise self._errors.translate(error.orig) from None
        except self._errors.driver as error:
            raise self._errors.translate(error) from None
        try:
            yield pooled.driver_connection
        except StoreUnavailable:
            # The connection may be dead; the pool must not hand it out again.
            pooled.invalidate()
            raise
        finally:
            pooled.close()

    def _start_afresh(self) -> None:
        # Once for all threads of a new child, or each would take away what the one before has just begun to use.
        with self._taking_over:
            if os.getpid() != self._owner_pid:
                # A fork shares sockets and locks with its parent: leave the parent's alone.
                self.engine.dispose(close=False)
                self._writer = threading.Lock()
                self._owner_pid = os.getpid()

    def _begin(self, connection: Any, patience: float, *, shred: bool, snapshot: bool) -> None:
        special = patience != self.lock_wait_seconds
        if not self.is_sqlite:
            self._command(connection, _BEGIN_REPEATABLE if snapshot else _BEGIN)
            if special:
                self._command(connection, f"SET LOCAL lock_timeout = {int(patience * 1000)}")
            return
        if special:
            self._command(connection, f"PRAGMA busy_timeout={int(patience * 1000)}")
        if shred:
            self._command(connection, "PRAGMA secure_delete=ON")
        try:
            self._command(connection, "BEGIN IMMEDIATE")
        finally:
            if special:
                self._command(connection, f"PRAGMA busy_timeout={int(self.lock_wait_seconds * 1000)}")

    def _command(self, connection: Any, text: str) -> None:
        try:
            connection.execute(text)
        except self._errors.driver as error:
            raise self._errors.translate(error) from None

    def _abandon(self, connection: Any) -> None:
        try:
            connection.rollback()
        except self._errors.driver:
            # The connection is gone, and the transaction with it. The pool learns of it by the error on its way out.
            return


_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_REPEATABLE: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ"
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
