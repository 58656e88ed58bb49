"""
Where a database's open connections wait between two transactions.

For PostgreSQL that is SQLAlchemy's pool. For SQLite it is a stack of our own: taking a connection out of that pool and
putting it back takes longer than the statement it was taken for.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from stores.driver_errors import DriverErrors
from stores.errors import StoreUnavailable

#: How many connections are kept open while nobody uses them, and how many there may be besides.
KEPT: Final = 16
OVERFLOW: Final = 64

_NONE_FREE: Final = "No database connection became free in time."


class Pool(Protocol):
    """Lends the driver's connections to one thread at a time."""

    def take(self) -> Any:
        """
        Lend a connection that has no transaction.

        :raises StoreUnavailable: If none becomes free in time, or a new one cannot be made.
        """

    def give(self, connection: Any) -> None:
        """Take a connection back."""

    def discard(self, connection: Any) -> None:
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
    """The pool of a SQLAlchemy engine."""

    def __init__(self, engine: Engine, errors: DriverErrors) -> None:
        self._engine = engine
        self._errors = errors
        self._lent: dict[int, Any] = {}

    def take(self) -> Any:
        """See `Pool`."""
        try:
            pooled = self._engine.raw_connection()
        except sa.exc.TimeoutError:
            raise StoreUnavailable(_NONE_FREE) from None
        except sa.exc.DBAPIError as error:
            raise self._errors.translate(error.orig) from None
        except self._errors.driver as error:
            raise self._errors.translate(error) from None
        connection = pooled.driver_connection
        self._lent[id(connection)] = pooled
        return connection

    def give(self, connection: Any) -> None:
        """See `Pool`."""
        self._lent.pop(id(connection)).close()

    def discard(self, connection: Any) -> None:
        """See `Pool`."""
        pooled = self._lent.pop(id(connection))
        try:
            pooled.invalidate()
        finally:
            pooled.close()

    def lent(self) -> int:
        """See `Pool`."""
        return len(self._lent)

    def idle(self) -> int:
        """See `Pool`."""
        return int(self._engine.pool.checkedin())  # type: ignore[attr-defined]

    def start_afresh(self) -> None:
        """See `Pool`."""
        self._lent = {}

    def close(self) -> None:
        """See `Pool`."""
        # Whoever made the engine ends it.


class SqlitePool:
    """
    Connections to a SQLite file, the one that was used last on top.

    :param connect: Makes one.
    :param wait_seconds: How long to wait for one when there may be no more.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], errors: DriverErrors, *, wait_seconds: float) -> None:
        self._connect = connect
        self._errors = errors
        self._wait_seconds = wait_seconds
        self._closed = False
        self._of_parent: list[deque[sqlite3.Connection]] = []
        self._begin()

    def _begin(self) -> None:
        # Taking from a deque and adding to it are one step of the interpreter each, so that needs no lock.
        self._idle: deque[sqlite3.Connection] = deque()
        self._open = self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def take(self) -> sqlite3.Connection:
        """See `Pool`."""
        return self._popped() or self._one_more()

    def give(self, connection: sqlite3.Connection) -> None:
        """See `Pool`."""
        if connection.in_transaction or self._closed or len(self._idle) >= KEPT:
            self.discard(connection)
            return
        self._idle.append(connection)
        if self._closed:
            # In between.
            self.close()
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def discard(self, connection: sqlite3.Connection) -> None:
        """See `Pool`."""
        try:
            connection.close()
        finally:
            self._one_less()

    def lent(self) -> int:
        """See `Pool`."""
        return self._open - len(self._idle)

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

    def _popped(self) -> sqlite3.Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _one_more(self) -> sqlite3.Connection:
        deadline = time.monotonic() + self._wait_seconds
        with self._changed:
            self._waiting += 1
            try:
                while self._open >= KEPT + OVERFLOW:
                    # Looked at after the waiting is known: whoever gave one back before that had no reason to notify.
                    connection = self._popped()
                    if connection is not None:
                        return connection
                    if not self._changed.wait(deadline - time.monotonic()):
                        raise StoreUnavailable(_NONE_FREE)
            finally:
                self._waiting -= 1
            self._open += 1
        try:
            return self._connect()
        except BaseException as error:
            self._one_less()
            if isinstance(error, self._errors.driver):
                raise self._errors.translate(error) from None
            raise

    def _one_less(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()
