"""From a driver's exceptions to a store's. A driver's text may hold values, so it is never passed on."""

import sqlite3
from types import TracebackType
from typing import Any, Final, Protocol

from stores.errors import Conflict, StoreDenied, StoreError, StoreFull, StoreUnavailable
from stores.reserve import Reserve


class DriverErrors(Protocol):
    """Turns one driver's exceptions into ours."""

    driver: tuple[type[BaseException], ...]

    def translate(self, error: BaseException | None) -> StoreError: ...

    def interrupted(self, connection: Any) -> None:
        """
        Make sure that nobody uses a connection on which a call was cut short, e.g. by a signal handler that raises.
        """


def give_up(errors: DriverErrors, connection: Any, error: BaseException) -> None:
    """
    Do what `Asking` does with an error that leaves its block; the caller raises it again if this returns.

    :raises StoreError: In place of the driver's own.
    """
    if isinstance(error, errors.driver):
        raise errors.translate(error) from None
    errors.interrupted(connection)


class Asking:
    """
    The block in which something is asked of a driver: what the driver raises leaves it as a store's error.

    A call that was cut short by anything else, such as Ctrl-C, leaves a connection that nobody may use.
    """

    __slots__ = ("_connection", "_errors")

    def __init__(self, errors: DriverErrors, connection: Any) -> None:
        self._errors = errors
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, self._errors.driver):
            raise self._errors.translate(error) from None
        if error is not None:
            self._errors.interrupted(self._connection)


#: What SQLite says when it can make no file, or none larger: of a full disk as of any other trouble.
_MAY_BE_FULL: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})


class SqliteErrors:
    """
    :param reserve: Knows whether the disk is full, which SQLite does not always say.
    """

    driver: tuple[type[BaseException], ...] = (sqlite3.Error,)

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve

    def translate(self, error: BaseException | None) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, sqlite3.IntegrityError):
            return Conflict("A constraint refused the statement.")
        if code == sqlite3.SQLITE_FULL or (code in _MAY_BE_FULL and self._reserve.is_needed()):
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

    def interrupted(self, connection: Any) -> None:
        # A call into SQLite is over before Python looks at signals.
        pass


#: What libpq says about a connection that failed, and what we say. Its own text names users, hosts and databases.
_CONNECTION_FAILURES: Final = (
    ("password authentication failed", "The database server refused the user or the password."),
    ("no password supplied", "The database server wants a password and the URL has none."),
    ("does not exist", "The database server knows no such database or role."),
    ("no pg_hba.conf entry", "The database server does not let this user in from here (pg_hba.conf)."),
    ("Connection refused", "Nothing listens at the database's host and port."),
    ("resolve host", "The database's host name cannot be resolved."),
    ("timeout", "The database server did not answer in time."),
    ("too many clients", "The database server has no connection left."),
    ("No such file or directory", "There is no database server at this socket."),
)


class NothingChanged(StoreError):
    """A statement of `Transaction.finish` changed nothing. The transaction must be given up."""


#: What such a statement provokes. https://www.postgresql.org/docs/current/errcodes-appendix.html
_DIVISION_BY_ZERO: Final = "22012"


class PostgresErrors:
    def __init__(self) -> None:
        import psycopg

        self.driver: tuple[type[BaseException], ...] = (psycopg.Error,)

    def translate(self, error: BaseException | None) -> StoreError:
        cut_short = getattr(error, "__context__", None)
        if cut_short is not None and not isinstance(cut_short, Exception):
            # Leaving a pipeline that Ctrl-C or an exit has cut short, the driver stumbles and forgets which.
            raise cut_short from None
        state: str = getattr(error, "sqlstate", None) or ""
        if state == _DIVISION_BY_ZERO:
            return NothingChanged("A statement that had to change something changed nothing.")
        # Classes of SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html
        if state.startswith("23"):
            return Conflict("A constraint refused the statement.")
        if state in ("53100", "53200", "54000"):
            return StoreFull("The database server has no room left.")
        if state in ("42501", "25006"):
            return StoreDenied("The database role may not do this.")
        if state:
            return StoreUnavailable(f"The database did not answer or refused a statement (SQLSTATE {state}).")
        said = str(error)
        for sign, sentence in _CONNECTION_FAILURES:
            if sign in said:
                return StoreUnavailable(sentence)
        return StoreUnavailable("The connection to the database failed.")

    def interrupted(self, connection: Any) -> None:
        # It may be in the middle of a pipeline or of a transaction that has named a tenant, with answers on their way
        # that the next call would take for its own.
        connection.close()
