"""
One database: connections from SQLAlchemy's pool, and transactions on the driver's own connection.

No driver exception leaves this module.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from stores.connections import Durability, connect_sqlite, make_engine, parse_url
from stores.driver_errors import Asking, DriverErrors, PostgresErrors, SqliteErrors
from stores.entries import close_quietly
from stores.errors import StoreError, StoreFull, StoreUnavailable
from stores.lending import Lender, Lent, Reading
from stores.pools import EnginePool, Pool, SqlitePool
from stores.reserve import RESERVE_BYTES, Reserve
from stores.round_trips import Said
from stores.system_errors import translated
from stores.transactions import LocalSettings, Statement, Transaction, local_settings

__all__ = ["LOCK_WAIT_SECONDS", "Database", "LocalSettings", "Statement", "Transaction"]

#: How long one statement waits for a lock before the store counts as unavailable.
LOCK_WAIT_SECONDS: Final = 30.0
#: How long cutting SQLite's log waits for those who read it.
_CUT_PATIENCE_SECONDS: Final = 1.0


class Database:
    """
    One database: SQLite in a file, or PostgreSQL.

    Safe for threads. Each transaction takes a connection of its own from the pool. Safe after a fork as well, on SQLite
    only if no other thread was using SQLite, here or elsewhere, at that moment: its own global locks do not survive it;
    and in general a process with threads at work should not be forked, since other libraries have such locks too.

    :param url: `sqlite:///PATH` or `postgresql+psycopg://…`.
    :param durability: `"power"`: a commit survives power loss. `"process"`: it survives the death of this process
        (SQLite `synchronous=NORMAL`, PostgreSQL `synchronous_commit=off`).
    :param reserve_bytes: On SQLite, how much room is set aside on its disk for what gives room back; `0` for none.
    :raises ValueError: If the URL is of another kind or the driver is not installed. The message has no part of it.
    """

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "power",
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self.durability = durability
        self.lock_wait_seconds = lock_wait_seconds
        self.url = parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        path = self.sqlite_path
        self._reserve = None if path is None else Reserve(path, size_bytes=reserve_bytes)
        how: Any = {"durability": durability, "lock_wait_seconds": lock_wait_seconds}
        connect = partial(connect_sqlite, self.url.database or "", reserve=self._reserve, **how)
        self.engine = make_engine(self.url, connect=connect if self.is_sqlite else None, **how)
        #: The dialect statements are compiled for.
        self.dialect: sa.Dialect = self.engine.dialect
        #: What the driver's exceptions mean.
        self.errors: DriverErrors = PostgresErrors() if self._reserve is None else SqliteErrors(self._reserve)
        #: Its connections. Only what SQLAlchemy does itself, such as a migration, goes by way of `engine`.
        self.pool: Pool = (
            SqlitePool(connect, self.errors, wait_seconds=lock_wait_seconds)
            if self.is_sqlite
            else EnginePool(self.engine, self.errors)
        )
        self._lender = Lender(self.pool, start_afresh=self._start_afresh)
        # SQLite's own busy handler polls and is unfair; within one process writers queue here instead.
        self._writer = threading.RLock()

    @property
    def sqlite_path(self) -> Path | None:
        """Where the SQLite file is, or `None` on PostgreSQL."""
        return Path(self.url.database or "") if self.is_sqlite else None

    @contextmanager
    def writing(
        self,
        *,
        local: LocalSettings | None = None,
        patience_seconds: float | None = None,
        shred: bool = False,
        snapshot: bool = False,
    ) -> Iterator[Transaction]:
        """
        Run one transaction; commit at the end, roll back on any exception.

        :param local: What PostgreSQL's policies of row-level security may read in this transaction.
        :param patience_seconds: Give up after waiting this long for a lock, instead of `lock_wait_seconds`.
        :param shred: On SQLite, overwrite with zeros the pages as well that this transaction empties; of other pages,
            every transaction overwrites what it frees. For whatever adds, moves or removes what must not outlive its
            row.
        :param snapshot: All statements see one and the same state; a row that others changed since is an error.
        :raises StoreUnavailable: If the database is away or stays locked. Nothing was changed.
        :raises StoreFull: If there is no room. Nothing was changed.
        """
        patience = self.lock_wait_seconds if patience_seconds is None else patience_seconds
        with Lent(self._lender) as connection:
            writer = self._writer
            try:
                if self.is_sqlite:
                    _acquire(writer, patience)
                first = self._begin(connection, patience, local=local, shred=shred, snapshot=snapshot)
                try:
                    transaction = Transaction(connection, self.dialect, self.errors, first=first)
                    yield transaction
                    if self.is_sqlite:
                        self._command(connection, "COMMIT")
                    elif not transaction.is_committed:
                        _commit(transaction)
                    if shred and self.is_sqlite:
                        # After a failure it stays on, which costs this connection some speed and nothing else.
                        self._command(connection, "PRAGMA secure_delete=FAST")
                except BaseException:
                    self._abandon(connection)
                    raise
            finally:
                # By whoever has it, which this thread may or may not, interrupted between any two steps.
                with suppress(RuntimeError):
                    writer.release()

    def reading(
        self, *, local: LocalSettings | None = None, snapshot: bool = False
    ) -> AbstractContextManager[Transaction]:
        """
        Run queries. Without `snapshot` each one sees the newest committed state and is a transaction of its own.

        :param local: What PostgreSQL's policies of row-level security may read.
        :param snapshot: All queries see one and the same state.
        :raises StoreUnavailable: If the database is away or stays locked.
        """
        if snapshot:
            return self._reading_one_state(local)
        return Reading(self._lender, self.dialect, self.errors, None if self.is_sqlite else local or {})

    @contextmanager
    def _reading_one_state(self, local: LocalSettings | None) -> Iterator[Transaction]:
        with Lent(self._lender) as connection:
            if self.is_sqlite:
                self._command(connection, "BEGIN")
            else:
                self._together(connection, _BEGIN_SNAPSHOT, local=local)
            try:
                yield Transaction(connection, self.dialect, self.errors)
            finally:
                self._abandon(connection)

    def require_room(self) -> None:
        """
        Make sure that there is a reserve on the disk of a SQLite file, before anything makes that file grow.

        :raises StoreFull: If it was given up and there is no room yet to make it again.
        """
        if self._reserve is not None:
            self._reserve.require()

    def give_up_reserve(self) -> bool:
        """
        Give up a part of the reserve for a transaction that takes something away and found the disk full.

        :returns: Whether there was any left, and the transaction should be tried again.
        """
        if self._reserve is None or not self._reserve.give_up():
            return False
        with suppress(StoreError):
            # What is in the log and can be moved makes room in it, without any more of the disk.
            self._checkpoint("PASSIVE")
        return True

    def restore_reserve(self) -> None:
        """Make again what was given up of the reserve, as far as there is room for it."""
        if self._reserve is not None:
            self._reserve.restore()

    def checkpoint(self, *, truncate: bool = False) -> bool:
        """
        Move SQLite's write-ahead log into the database file as far as readers allow. Nothing on PostgreSQL.

        :param truncate: Also cut the log to nothing, so that no overwritten page is left in it; under `"power"` for
            good when this returns.
        :returns: Whether all of it was moved. Not if somebody reads it for longer than a second.
        :raises StoreFull: If the disk is full even without the reserve. The log is as it was.
        """
        if not self.is_sqlite:
            return True
        while True:
            try:
                return self._checkpoint("TRUNCATE" if truncate else "PASSIVE")
            except StoreFull:
                if not self.give_up_reserve():
                    raise

    def _checkpoint(self, mode: str) -> bool:
        with Lent(self._lender) as connection, Asking(self.errors, connection):
            # Whoever wants to write waits for this, while this waits for whoever reads.
            connection.execute(f"PRAGMA busy_timeout={int(min(_CUT_PATIENCE_SECONDS, self.lock_wait_seconds) * 1000)}")
            try:
                busy, in_log, moved = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(self.lock_wait_seconds * 1000)}")
            if mode == "TRUNCATE" and self.durability == "power":
                # SQLite leaves that to chance: power loss may bring the log back, with what was overwritten since.
                _sync_log(self.url.database or "")
        return bool(busy == 0 and in_log == moved)

    def close(self) -> None:
        """Close every connection. May be repeated; later transactions raise `StoreUnavailable`."""
        try:
            self._lender.close()
            self.engine.dispose()
        finally:
            # SQLite's log went with its last connection.
            self.restore_reserve()

    def _start_afresh(self) -> None:
        self._writer = threading.RLock()
        self.engine.dispose(close=False)

    def _begin(
        self, connection: Any, patience: float, *, local: LocalSettings | None, shred: bool, snapshot: bool
    ) -> Sequence[Said]:
        """Begin on SQLite; on PostgreSQL, return what begins a transaction."""
        special = patience != self.lock_wait_seconds
        if not self.is_sqlite:
            wait = [f"SET LOCAL lock_timeout = {int(patience * 1000)}"] * special
            return _said(_BEGIN_REPEATABLE if snapshot else _BEGIN, *wait, local=local)
        if special:
            self._command(connection, f"PRAGMA busy_timeout={int(patience * 1000)}")
        if shred:
            self._command(connection, "PRAGMA secure_delete=ON")
        try:
            self._command(connection, "BEGIN IMMEDIATE")
        finally:
            if special:
                self._command(connection, f"PRAGMA busy_timeout={int(self.lock_wait_seconds * 1000)}")
        return ()

    def _together(self, connection: Any, *texts: str, local: LocalSettings | None) -> None:
        Transaction(connection, self.dialect, self.errors, first=_said(*texts, local=local)).say()

    def _command(self, connection: Any, text: str) -> None:
        with Asking(self.errors, connection):
            connection.execute(text)

    def _abandon(self, connection: Any) -> None:
        try:
            connection.rollback()
        except self.errors.driver:
            # The connection is gone, and the transaction with it. The pool learns of it by the error on its way out.
            return
        except BaseException:
            self.errors.interrupted(connection)
            raise


def _acquire(writer: Any, patience: float) -> None:
    if not writer.acquire(timeout=patience):
        raise StoreUnavailable("The database stayed locked by other writers of this process.")


def _commit(transaction: Transaction) -> None:
    if not transaction.finish():
        raise StoreUnavailable("The database gave a statement up; nothing was written.")


def _said(*texts: str, local: LocalSettings | None) -> Sequence[Said]:
    return [*((text, None) for text in texts), *([local_settings(local)] if local else [])]


def _sync_log(database: str) -> None:
    # SQLite's locks are on the database and on the log's index, so closing the log takes none of them away.
    with translated(), suppress(FileNotFoundError):
        # A link to a database has its log beside what it leads to.
        log = os.open(f"{os.path.realpath(database)}-wal", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fsync(log)
        except OSError:
            # On a full disk too: with more room the same sync would say that all is well, whatever the system has lost.
            raise StoreUnavailable("The database's log could not be brought to the disk.") from None
        finally:
            close_quietly(log)


_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_REPEATABLE: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ"
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
