"""The blocks in which a connection is lent out. Classes rather than generators, since every call enters one."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

import sqlalchemy as sa

from stores.driver_errors import DriverErrors
from stores.errors import StoreUnavailable
from stores.locks import ProcessLock
from stores.pools import Lendable, Pool
from stores.transactions import LocalSettings, Transaction


class Lender:
    """
    Lends out what a pool has, as long as the database is open, and in a forked child nothing that is the parent's.

    :param start_afresh: Called once in a new child, after the pool was told.
    """

    def __init__(self, pool: Pool, *, start_afresh: Callable[[], None]) -> None:
        self.pool = pool
        self._start_afresh = start_afresh
        self._owner_pid = os.getpid()
        self._taking_over = ProcessLock()
        self._closed = False

    def take(self) -> Lendable:
        """
        Lend a connection.

        :raises StoreUnavailable: If the database was closed, is away, or has none free in time.
        """
        if self._closed:
            raise StoreUnavailable("The database was closed.")
        if os.getpid() != self._owner_pid:
            self._take_over()
        return self.pool.take()

    def give_back(self, lent: Lendable, error: BaseException | None) -> None:
        """Take a connection back from a block that ended with this error."""
        if error is not None and (
            isinstance(error, StoreUnavailable) or getattr(lent.driver_connection, "closed", False)
        ):
            # The connection is dead, or may be; the pool must not hand it out again.
            self.pool.discard(lent)
        else:
            self.pool.give(lent)

    def close(self) -> None:
        """Close what is not lent out; the rest when it comes back. Nothing is lent any more. May be repeated."""
        self._closed = True
        self.pool.close()

    def _take_over(self) -> None:
        # Once for all threads of a new child, or each would take away what the one before has just begun to use.
        with self._taking_over:
            if os.getpid() != self._owner_pid:
                # A fork shares sockets and locks with its parent: leave the parent's alone.
                self.pool.start_afresh()
                self._start_afresh()
                self._owner_pid = os.getpid()


class Lent:
    """The block in which a connection is lent out."""

    __slots__ = ("_lender", "_lent")

    def __init__(self, lender: Lender) -> None:
        self._lender = lender

    def __enter__(self) -> Any:
        self._lent = self._lender.take()
        return self._lent.driver_connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lender.give_back(self._lent, error)


class Reading:
    """
    The block in which queries are run, each a transaction of its own.

    :param every_time: What to set for each query; `None` where nothing can be set.
    """

    __slots__ = ("_dialect", "_errors", "_every_time", "_lender", "_lent")

    def __init__(
        self, lender: Lender, dialect: sa.Dialect, errors: DriverErrors, every_time: LocalSettings | None
    ) -> None:
        self._lender = lender
        self._dialect = dialect
        self._errors = errors
        self._every_time = every_time

    def __enter__(self) -> Transaction:
        self._lent = self._lender.take()
        return Transaction(self._lent.driver_connection, self._dialect, self._errors, every_time=self._every_time)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lender.give_back(self._lent, error)
