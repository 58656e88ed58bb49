"""
Transactions on the driver's own connection.

SQLAlchemy owns the pool, the dialects and the statements; each statement is compiled once and then run by the driver,
because Core's own execution costs several times what the driver does. No driver exception leaves this module.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.expression import ClauseElement

from stores.errors import StoreDenied, StoreError, StoreFull, StoreUnavailable

Durability = Literal["power", "process"]

#: How long one statement waits for a lock before the store counts as unavailable.
LOCK_WAIT_SECONDS: Final = 30.0
#: Pages after which a writer checkpoints the WAL itself (64 MiB). Cleanup checkpoints far more often.
_CHECKPOINT_PAGES: Final = 16384
_POOL_SIZE: Final = 16
_POOL_OVERFLOW: Final = 64


class Conflict(StoreError):
    """A unique or foreign key refused the statement. The transaction must be given up."""


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

    def __init__(self, connection: Any, dialect: sa.Dialect, errors: "_Errors") -> None:
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

    Safe for threads and after a fork. Each transaction takes a connection of its own from the pool.

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
        self.engine = self._make_engine()
        self._errors: _Errors = _SqliteErrors() if self.is_sqlite else _PostgresErrors()
        self._owner_pid = os.getpid()
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
    def writing(self) -> Iterator[Transaction]:
        """
        Run one transaction; commit at the end, roll back on any exception.

        :raises StoreUnavailable: If the database is away or stays locked. Nothing was changed.
        :raises StoreFull: If there is no room. Nothing was changed.
        """
        with self._checked_out() as connection:
            if self.is_sqlite and not self._writer.acquire(timeout=self.lock_wait_seconds):
                raise StoreUnavailable("The database stayed locked by other writers of this process.")
            try:
                self._command(connection, "BEGIN IMMEDIATE" if self.is_sqlite else _BEGIN)
                try:
                    yield Transaction(connection, self.dialect, self._errors)
                    self._command(connection, "COMMIT")
                except BaseException:
                    self._abandon(connection)
                    raise
            finally:
                if self.is_sqlite:
                    self._writer.release()

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

    def checkpoint(self) -> None:
        """Move SQLite's write-ahead log into the database file as far as readers allow. Nothing on PostgreSQL."""
        if self.is_sqlite:
            with self._checked_out() as connection:
                self._command(connection, "PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close every connection. May be repeated; later transactions raise `StoreUnavailable`."""
        self._closed = True
        self.engine.dispose()

    @contextmanager
    def _checked_out(self) -> Iterator[Any]:
        if self._closed:
            raise StoreUnavailable("The database was closed.")
        if os.getpid() != self._owner_pid:
            # A fork shares sockets and locks with its parent: leave the parent's alone and start afresh.
            self.engine.dispose(close=False)
            self._writer = threading.Lock()
            self._owner_pid = os.getpid()
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

    def _make_engine(self) -> Engine:
        if self.is_sqlite:
            return sa.create_engine(
                "sqlite+pysqlite://",
                creator=self._connect_sqlite,
                poolclass=QueuePool,
                pool_size=_POOL_SIZE,
                max_overflow=_POOL_OVERFLOW,
                pool_timeout=self.lock_wait_seconds,
                paramstyle="named",
            )
        try:
            engine = sa.create_engine(
                self.url,
                pool_size=_POOL_SIZE,
                max_overflow=_POOL_OVERFLOW,
                pool_timeout=self.lock_wait_seconds,
                connect_args={"connect_timeout": 10, "autocommit": True},
            )
        except ModuleNotFoundError:
            raise ValueError("PostgreSQL needs the driver psycopg: install haystack-tenancy[postgres].") from None
        event.listen(engine, "connect", self._prepare_postgres)
        return engine

    def _connect_sqlite(self) -> sqlite3.Connection:
        # mode=rw: a missing file is an error here, never a new empty database.
        connection = sqlite3.connect(
            f"file:{quote(str(self.sqlite_path))}?mode=rw",
            uri=True,
            timeout=self.lock_wait_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            _enter_wal(connection, self.lock_wait_seconds)
            for pragma in (
                f"synchronous={'FULL' if self.durability == 'power' else 'NORMAL'}",
                f"wal_autocheckpoint={_CHECKPOINT_PAGES}",
                "foreign_keys=ON",
                # Sorting must not spill rows into files outside the data directory.
                "temp_store=MEMORY",
                "trusted_schema=OFF",
            ):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_postgres(self, connection: Any, _record: object) -> None:
        wait_ms = int(self.lock_wait_seconds * 1000)
        connection.execute(f"SET lock_timeout = {wait_ms}")
        if self.durability == "process":
            connection.execute("SET synchronous_commit = off")
        else:
            # A server whose default is off would break the promise of a durable commit.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )


_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def parse_url(url: str) -> sa.URL:
    """
    Accept `sqlite:///PATH` and `postgresql+psycopg://…` and nothing else.

    :raises ValueError: Otherwise. The message holds no part of the URL, since it may hold a password.
    """
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise ValueError("A database URL looks like sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME.") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite") and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    if parsed.drivername == "postgresql+psycopg":
        return parsed
    raise ValueError("A database URL looks like sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME.")


def create_sqlite_file(path: Path) -> None:
    """
    Make an empty SQLite file that only this user can read; its WAL inherits the mode. An existing file is left alone.

    :raises StoreDenied: If it cannot be created there.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        return
    except OSError:
        raise StoreDenied(
            "The database file cannot be created; check that the directory exists and is writable."
        ) from None


def _enter_wal(connection: sqlite3.Connection, wait_seconds: float) -> None:
    # Switching a fresh file to WAL does not go through the busy handler, so two first connections may collide.
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


class _Errors(Protocol):
    """Turns one driver's exceptions into ours. The driver's text may hold values, so it is never passed on."""

    driver: tuple[type[BaseException], ...]

    def translate(self, error: BaseException | None) -> StoreError: ...


class _SqliteErrors:
    driver: tuple[type[BaseException], ...] = (sqlite3.Error,)

    def translate(self, error: BaseException | None) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, sqlite3.IntegrityError):
            return Conflict("A constraint refused the statement.")
        if code == sqlite3.SQLITE_FULL:
            return StoreFull("The disk of the database is full.")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return StoreDenied("The database file is read-only for this process.")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreUnavailable("The database stayed locked by another process.")
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable("The database file is missing or cannot be opened.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreDenied("The database file is damaged or is not a SQLite database.")
        return StoreUnavailable(f"The database refused a statement (SQLite error {code}).")


class _PostgresErrors:
    def __init__(self) -> None:
        import psycopg

        self.driver: tuple[type[BaseException], ...] = (psycopg.Error,)

    def translate(self, error: BaseException | None) -> StoreError:
        state: str = getattr(error, "sqlstate", None) or "connection"
        # Classes of SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html
        if state.startswith("23"):
            return Conflict("A constraint refused the statement.")
        if state in ("53100", "53200", "54000"):
            return StoreFull("The database server has no room left.")
        if state in ("42501", "25006"):
            return StoreDenied("The database role may not do this.")
        return StoreUnavailable(f"The database did not answer or refused a statement (SQLSTATE {state}).")
