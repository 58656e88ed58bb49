"""
Where a database's open connections wait between two transactions.

For PostgreSQL that is SQLAlchemy's pool. For SQLite it is a stack of our own: taking a connection out of that pool and
putting it back takes longer than the statement it was taken for.
"""

import gc
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, Self

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from stores.driver_errors import DriverErrors
from stores.errors import StoreUnavailable

#: How many connections are kept open while nobody uses them, and how many there may be besides.
KEPT: Final = 16
OVERFLOW: Final = 64

_NONE_FREE: Final = "No database connection became free in time."
#: A connection that somebody has lost, interrupted between two steps, wakes nobody up: who waits looks by himself.
_LOOK_SECONDS: Final = 0.5


class Lendable(Protocol):
    """What a pool lends. Whoever loses it, interrupted between two steps, has given it back by that."""

    @property
    def driver_connection(self) -> Any: ...


class Pool(Protocol):
    """Lends the driver's connections to one thread at a time."""

    def take(self) -> Lendable:
        """
        Lend a connection that has no transaction.

        :raises StoreUnavailable: If none becomes free in time, or a new one cannot be made.
        """

    def give(self, lent: Any) -> None:
        """Take a connection back."""

    def discard(self, lent: Any) -> None:
        """Take a connection back that nobody shall use any more, and close it."""

    def lent(self) -> int:
        """Tell how many connections are in use."""

    def idle(self) -> int:
        """Tell how many are open and not in use."""

    def start_afresh(self) -> None:
        """Forget every connection without closing it: in a forked child they are the parent's."""

    def close(self) -> None:
        """Close the connections that are not in use; the others are closed when they come back."""


class EnginePool:
    """The pool of a SQLAlchemy engine, which whoever made it ends, and starts afresh."""

    def __init__(self, engine: Engine, errors: DriverErrors) -> None:
        self._engine = engine
        self._errors = errors

    def take(self) -> Lendable:
        """See `Pool`."""
        try:
            return self._engine.raw_connection()
        except sa.exc.TimeoutError:
            raise StoreUnavailable(_NONE_FREE) from None
        except sa.exc.DBAPIError as error:
            raise self._errors.translate(error.orig) from None
        except self._errors.driver as error:
            raise self._errors.translate(error) from None

    def give(self, lent: Any) -> None:
        """See `Pool`."""
        lent.close()

    def discard(self, lent: Any) -> None:
        """See `Pool`."""
        try:
            lent.invalidate()
        finally:
            lent.close()

    def lent(self) -> int:
        """See `Pool`."""
        return int(self._engine.pool.checkedout())  # type: ignore[attr-defined]

    def idle(self) -> int:
        """See `Pool`."""
        return int(self._engine.pool.checkedin())  # type: ignore[attr-defined]

    def start_afresh(self) -> None:
        """See `Pool`."""

    def close(self) -> None:
        """See `Pool`."""


class SqliteConnection(sqlite3.Connection):
    """A connection that a pool can lend as it is, and count without holding it."""

    @property
    def driver_connection(self) -> Self:
        """Return this."""
        return self


class SqlitePool:
    """
    Connections to a SQLite file, the one that was used last on top.

    :param connect: Makes one.
    :param wait_seconds: How long to wait for one when there may be no more.
    """

    def __init__(self, connect: Callable[[], SqliteConnection], errors: DriverErrors, *, wait_seconds: float) -> None:
        self._connect = connect
        self._errors = errors
        self._wait_seconds = wait_seconds
        self._closed = False
        self._of_parent: list[deque[SqliteConnection]] = []
        self._begin()

    def _begin(self) -> None:
        # Taking from a deque and adding to it are one step of the interpreter each, so that needs no lock.
        self._idle: deque[SqliteConnection] = deque()
        # Of those that are lent nothing is held: one that nobody has any more is closed, and counts no more.
        self._open: weakref.WeakSet[SqliteConnection] = weakref.WeakSet()
        self._coming = self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def take(self) -> SqliteConnection:
        """See `Pool`."""
        return self._popped() or self._one_more()

    def give(self, lent: SqliteConnection) -> None:
        """See `Pool`."""
        if lent.in_transaction or self._closed or len(self._idle) >= KEPT:
            self.discard(lent)
            return
        self._idle.append(lent)
        if self._closed:
            # In between.
            self.close()
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def discard(self, lent: SqliteConnection) -> None:
        """See `Pool`."""
        try:
            lent.close()
        finally:
            with self._changed:
                self._open.discard(lent)
                self._changed.notify()

    def lent(self) -> int:
        """See `Pool`."""
        return len(self._open) - len(self._idle)

    def idle(self) -> int:
        """See `Pool`."""
        return len(self._idle)

    def start_afresh(self) -> None:
        """See `Pool`."""
        # Dropped, they would be closed.
        self._of_parent.append(self._idle)
        self._begin()

    def close(self) -> None:
        """See `Pool`."""
        self._closed = True
        while (connection := self._popped()) is not None:
            self.discard(connection)
        with self._changed:
            self._changed.notify_all()

    def _popped(self) -> SqliteConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _one_more(self) -> SqliteConnection:
        connection = self._when_there_may_be_one()
        if connection is not None:
            return connection
        try:
            connection = self._connect()
            self._open.add(connection)
        except self._errors.driver as error:
            raise self._errors.translate(error) from None
        finally:
            with self._changed:
                self._coming -= 1
                self._changed.notify()
        return connection

    def _when_there_may_be_one(self) -> SqliteConnection | None:
        """Wait for a connection to come back, or until there may be one more; then return `None`."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            with self._changed:
                self._waiting += 1
                try:
                    # Looked at after the waiting is known: whoever gave one back before that had no reason to notify.
                    connection = self._popped()
                    if connection is not None:
                        return connection
                    if self._closed:
                        raise StoreUnavailable("The database was closed.")
                    if len(self._open) + self._coming < KEPT + OVERFLOW:
                        self._coming += 1
                        return None
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise StoreUnavailable(_NONE_FREE)
                    self._changed.wait(min(left, _LOOK_SECONDS))
                finally:
                    self._waiting -= 1
            # One that was lost is in a circle with its own statements.
            gc.collect()
