"""
Connections: which URLs are accepted, and how each driver's connections are set up.
"""

import os
import select
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.pool import QueuePool

from stores.errors import StoreDenied, StoreFull
from stores.pools import KEPT, OVERFLOW, SqliteConnection
from stores.reserve import Reserve
from stores.round_trips import Statements
from stores.system_errors import is_full

#: What a commit survives: `"power"`: power loss. `"process"`: the death of the process.
Durability = Literal["power", "process"]

#: Pages after which a writer checkpoints the WAL itself (64 MiB). Cleanup checkpoints far more often.
_CHECKPOINT_PAGES: Final = 16384
#: What libpq is told unless the URL tells it otherwise (https://www.postgresql.org/docs/current/libpq-connect.html;
#: seconds, `tcp_user_timeout` milliseconds). Without them a call whose network vanishes waits for a quarter of an hour,
#: and one that only waits for an answer for hours.
_POSTGRES_PARAMETERS: Final[dict[str, int]] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
#: `psycopg.pq.TransactionStatus.IDLE` and `PipelineStatus.OFF`, without importing a driver that may not be there.
_IDLE: Final = 0
_OFF: Final = 0


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

    :raises StoreFull: If there is no room for it.
    :raises StoreDenied: If it cannot be created there.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        if is_full(error):
            raise StoreFull("The disk of the database is full.") from None
        raise StoreDenied(
            "The database file cannot be created; check that the directory exists and is writable."
        ) from None


def make_engine(
    url: sa.URL,
    *,
    durability: Durability,
    lock_wait_seconds: float,
    connect: Callable[[], sqlite3.Connection] | None = None,
) -> Engine:
    """
    Make an engine for one database. The driver is in autocommit; transactions are begun by hand.

    :param connect: On SQLite, what makes a connection.
    :raises ValueError: If the driver is not installed.
    """
    if url.get_backend_name() == "sqlite":
        return sa.create_engine(
            "sqlite+pysqlite://",
            creator=connect,
            poolclass=QueuePool,
            pool_size=KEPT,
            max_overflow=OVERFLOW,
            pool_timeout=lock_wait_seconds,
            paramstyle="named",
        )
    try:
        engine = sa.create_engine(
            url,
            pool_size=KEPT,
            max_overflow=OVERFLOW,
            pool_timeout=lock_wait_seconds,
            connect_args={
                **{name: value for name, value in _POSTGRES_PARAMETERS.items() if name not in url.query},
                "autocommit": True,
                # `stores.round_trips` prepares statements. Psycopg would throw them away with its own at a rollback.
                "prepare_threshold": None,
            },
        )
    except ModuleNotFoundError:
        raise ValueError("PostgreSQL needs the driver psycopg: install haystack-tenancy[postgres].") from None
    event.listen(engine, "connect", _postgres_preparation(durability, lock_wait_seconds))
    event.listen(engine, "checkout", _replace_if_dead)
    return engine


def connect_sqlite(
    path: str, *, durability: Durability, lock_wait_seconds: float, reserve: Reserve | None
) -> SqliteConnection:
    """
    Open a SQLite file, which must exist, and set the connection up.

    :raises sqlite3.Error: If that fails.
    """
    while True:
        try:
            return _connect_sqlite(path, durability, lock_wait_seconds)
        except sqlite3.OperationalError:
            # The first connection makes files, the log and its index: on a full disk nobody could come in to make room.
            if reserve is None or not reserve.is_needed() or not reserve.give_up():
                raise


def _connect_sqlite(path: str, durability: Durability, lock_wait_seconds: float) -> SqliteConnection:
    # mode=rw: a missing file is an error here, never a new empty database.
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        timeout=lock_wait_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=SqliteConnection,
    )
    try:
        _enter_wal(connection, lock_wait_seconds)
        for pragma in (
            f"synchronous={'FULL' if durability == 'power' else 'NORMAL'}",
            f"wal_autocheckpoint={_CHECKPOINT_PAGES}",
            "foreign_keys=ON",
            # Sorting must not spill rows into files outside the data directory.
            "temp_store=MEMORY",
            "trusted_schema=OFF",
            # Bytes that become free inside a page are overwritten, at no further I/O: else each row that SQLite moves
            # leaves a copy that nobody reaches who deletes the row. See `shred` of `Database.writing`.
            "secure_delete=FAST",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _postgres_preparation(durability: Durability, lock_wait_seconds: float) -> Callable[[Any, object], None]:
    def prepare(connection: Any, _record: object) -> None:
        connection.statements = Statements(connection.info.encoding)
        connection.execute(f"SET lock_timeout = {int(lock_wait_seconds * 1000)}")
        if durability == "process":
            connection.execute("SET synchronous_commit = off")
        else:
            # A server whose default is off would break the promise of a durable commit.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )

    return prepare


def _replace_if_dead(connection: Any, _record: object, _fairy: object) -> None:
    # A server that ended a connection, by a restart or because it was idle, has said so: where nothing was asked there
    # is something to read. Without this look, which costs no round trip, each connection kept fails one call more.
    poll = select.poll()
    if connection.closed or not _is_idle(connection):
        raise sa.exc.DisconnectionError
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        raise sa.exc.DisconnectionError


def _is_idle(connection: Any) -> bool:
    # Whatever left a transaction or a pipeline open: to read in it would be to read as whomever it has named.
    status = connection.pgconn
    return bool(status.transaction_status == _IDLE and status.pipeline_status == _OFF)


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
