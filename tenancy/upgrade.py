"""
The schema's revision: bring a database to it, and tell whether it is there.

Alembic is imported only where there is something to upgrade, so that a program that merely opens a catalogue never
loads it. No message holds a URL. Logging is left to the application.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import event

from stores import system_errors
from stores.connections import create_sqlite_file, parse_url
from stores.errors import StoreDenied, StoreError
from stores.sql import Database, Statement
from tenancy.errors import AlreadyRunning, ConfigurationError, SchemaOutdated, TenancyError
from tenancy.schema import HEAD_REVISION, VERSION_TABLE
from tenancy.translation import as_tenancy_error

#: How long an upgrade waits for another one to finish.
WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05

_EMPTY: Final = "The database holds no catalogue yet. Run `tenancy init`, or `tenancy db upgrade`."
_OLDER: Final = "The database's schema is older than this version of haystack-tenancy. Run `tenancy db upgrade`."
_NEWER: Final = "The database's schema is newer than this version of haystack-tenancy. Upgrade the code."

_TABLE_ON_SQLITE: Final = Statement(
    sa.text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name").bindparams(name=VERSION_TABLE)
)
_TABLE_ON_POSTGRES: Final = Statement(
    sa.text("SELECT 1 WHERE to_regclass(:name) IS NOT NULL").bindparams(name=VERSION_TABLE)
)
_REVISIONS: Final = Statement(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE)))

# The key only has to differ from the host application's: it is the word "tenancy".
_TRY_LOCK: Final = Statement(sa.text(f"SELECT pg_try_advisory_xact_lock({int.from_bytes(b'tenancy')})"))
_NEVER_IDLE_TOO_LONG: Final = Statement(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))

# Alembic keeps the running migration in a module, so one process runs one at a time, whatever the database.
_ALEMBIC: Final = threading.Lock()


def upgrade(database_url: str, *, wait_seconds: float = WAIT_SECONDS, setting: str = "database_url") -> None:
    """
    Bring a database to this version's schema. A missing SQLite file is made, readable by this user only.

    All of it happens or nothing does. Any number of processes may call this at once: one does the work, the others
    wait for it and find it done. A current schema is left alone without waiting for anybody.

    :param wait_seconds: How long to wait for another upgrade.
    :param setting: Where the URL comes from, for messages.
    :raises AlreadyRunning: If another upgrade, or on SQLite a writer, held the database for longer.
    :raises SchemaOutdated: If the schema is newer than this code.
    :raises ConfigurationError: If the URL is not one of ours, or the directory or the role does not allow it.
    :raises StorageUnavailable: If the database cannot be reached.
    """
    with _opened(database_url, create=True, setting=setting) as database:
        if _stored_revision(database) == HEAD_REVISION:
            return

    from alembic import command
    from alembic.config import Config
    from alembic.script.revision import ResolutionError
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    with locked_for_migration(database_url, wait_seconds=wait_seconds, setting=setting) as connection, _ALEMBIC:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            if not isinstance(error.__cause__, ResolutionError):
                raise
            # Alembic knows no such revision: newer code was here.
            raise SchemaOutdated(_NEWER) from None


def upgrade_if_empty(database_url: str, *, was_complete: bool = False) -> None:
    """
    Give a database without a catalogue this version's schema. One that holds a schema, of whatever age, stays as it is.

    Any number of processes may call this at once. What it raises is what `upgrade` raises.

    :param was_complete: The database is known to have held a catalogue, so an empty one is refused.
    """
    with _opened(database_url, create=True) as database:
        if _stored_revision(database) is not None:
            return
    if was_complete:
        raise ConfigurationError(
            "The catalogue's database is empty although it was in use. Restore it before starting."
        )
    upgrade(database_url)


def check(database_url: str, *, setting: str = "database_url") -> None:
    """
    Return if a database has exactly this version's schema. Nothing is created or changed.

    :param setting: Where the URL comes from, for messages.
    :raises SchemaOutdated: If it is missing, older or newer; the message says which and what to do.
    :raises ConfigurationError: If the URL is not one of ours.
    :raises StorageUnavailable: If the database cannot be reached.
    """
    with _opened(database_url, setting=setting) as database:
        require_current(database, setting=setting)


def require_current(database: Database, *, setting: str = "database_url") -> None:
    """
    Return if an open database has exactly this version's schema. Costs two small queries.

    :raises SchemaOutdated: If it is missing, older or newer; the message says which and what to do.
    :raises StorageUnavailable: If the database cannot be reached.
    """
    with _in_our_words(database, setting):
        stored = _stored_revision(database)
    if stored is None:
        raise SchemaOutdated(_EMPTY)
    if stored != HEAD_REVISION:
        raise SchemaOutdated(_NEWER if _is_newer(stored) else _OLDER)


def migrations_folder() -> Path:
    """Return the alembic folder: inside the package once installed, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def dialect_name(database_url: str) -> str:
    """
    Return what SQLAlchemy calls the kind of database a URL names.

    :raises ConfigurationError: If the URL is not one of ours.
    """
    try:
        return parse_url(database_url).get_backend_name()
    except ValueError as error:
        raise ConfigurationError(f"database_url: {error}") from None


@contextmanager
def locked_for_migration(
    database_url: str, *, wait_seconds: float = WAIT_SECONDS, setting: str = "database_url"
) -> Iterator[sa.Connection]:
    """
    Give the only transaction that may migrate this database; commit it at the end, roll it back on any exception.

    On SQLite the transaction excludes every other writer. On PostgreSQL a lock of another connection excludes other
    migrations and nobody else, also while a revision commits in between.

    :raises AlreadyRunning: If somebody else held the database for `wait_seconds`.
    """
    with _opened(database_url, create=True, lock_wait_seconds=wait_seconds, setting=setting) as database:
        # The driver's connections are in autocommit (stores.sql), so the transaction has to be begun in so many words.
        event.listen(database.engine, "begin", _begin_immediate if database.is_sqlite else _begin)
        with _other_migrations_kept_out(database, wait_seconds), database.engine.begin() as connection:
            yield connection


@contextmanager
def _other_migrations_kept_out(database: Database, wait_seconds: float) -> Iterator[None]:
    if database.is_sqlite:
        yield
        return
    # A lock of the transaction rather than of the session: it also holds behind a pooler that shares sessions.
    with database.writing() as transaction:
        transaction.execute(_NEVER_IDLE_TOO_LONG)
        deadline = time.monotonic() + wait_seconds
        # Asked again and again rather than waited for: a waiting statement holds a snapshot, and a revision that
        # builds an index concurrently would wait for that snapshot in turn.
        while transaction.one(_TRY_LOCK) != (True,):
            if time.monotonic() >= deadline:
                raise AlreadyRunning("Another migration of this database is still running. Nothing was changed.")
            time.sleep(_POLL_SECONDS)
        yield


def _begin(connection: sa.Connection) -> None:
    # Whatever the server's default is: each revision must see what the migration before it committed.
    connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED")


def _begin_immediate(connection: sa.Connection) -> None:
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except sa.exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise AlreadyRunning(
                "Another migration, or a writer, kept the database locked. Nothing was changed."
            ) from None
        raise


def _make_file(path: Path) -> None:
    if not _may(path.parent, os.W_OK | os.X_OK):
        raise ConfigurationError("database_url: the directory of the SQLite file is missing or not writable.")
    create_sqlite_file(path)
    if not (path.is_file() and _may(path, os.R_OK | os.W_OK)):
        raise ConfigurationError("database_url: what stands at the SQLite path is not a file this process may write.")


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _stored_revision(database: Database) -> str | None:
    if database.sqlite_path is not None and not database.sqlite_path.exists():
        return None
    with database.reading() as transaction:
        if transaction.one(_TABLE_ON_SQLITE if database.is_sqlite else _TABLE_ON_POSTGRES) is None:
            return None
        revisions = [str(revision) for (revision,) in transaction.all(_REVISIONS)]
    # Several at once are nothing an older version ever wrote; joined, they count as a newer one's.
    return " ".join(sorted(revisions)) or None


def _is_newer(stored: str) -> bool:
    # Revisions count up in four digits. What does not look like that was not written by an older version.
    return len(stored) != len(HEAD_REVISION) or stored > HEAD_REVISION


@contextmanager
def _opened(
    database_url: str,
    *,
    create: bool = False,
    lock_wait_seconds: float = WAIT_SECONDS,
    setting: str = "database_url",
) -> Iterator[Database]:
    try:
        database = Database(database_url, lock_wait_seconds=lock_wait_seconds)
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {error}") from None
    try:
        with _in_our_words(database, setting):
            if create and database.sqlite_path is not None:
                _make_file(database.sqlite_path)
            yield database
    finally:
        database.close()


@contextmanager
def _in_our_words(database: Database, setting: str = "database_url") -> Iterator[None]:
    try:
        with system_errors.translated():
            yield
    except StoreError as error:
        raise _translated(error, setting) from None
    except sa.exc.DBAPIError as error:
        raise _translated(database.errors.translate(error.orig), setting) from None


def _translated(error: StoreError, setting: str) -> TenancyError:
    # Here, before anything runs, it is the settings that have to change.
    return ConfigurationError(f"{setting}: {error}") if isinstance(error, StoreDenied) else as_tenancy_error(error)
