"""
Statements, and the transactions they run in, on the driver's own connection.

Each statement is compiled once and then run by the driver, because Core's own execution costs several times what the
driver does. No driver exception leaves this module.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.expression import ClauseElement

from stores.driver_errors import Asking, DriverErrors, NothingChanged, give_up
from stores.errors import StoreUnavailable
from stores.round_trips import Said, ask

#: Settings of one transaction, by name, for policies of row-level security to read. They end with the transaction.
LocalSettings = Mapping[str, str]
#: What may stand in a statement's text: the names of states and kinds, which are ours.
_PLAIN_WORD: Final = re.compile(r"[a-z_]{1,32}")


class Statement:
    """
    A Core statement, compiled once per dialect.

    :param clause: The statement; values that vary are `bindparam`s.
    """

    __slots__ = ("_clause", "_compiled", "_failing", "_fails_on_nothing")

    def __init__(self, clause: ClauseElement, *, fails_on_nothing: bool = False) -> None:
        self._clause = clause
        self._fails_on_nothing = fails_on_nothing
        self._failing: Statement | None = None
        self._compiled: dict[str, tuple[str, dict[str, Any]]] = {}

    def compiled(self, dialect: sa.Dialect) -> tuple[str, dict[str, Any]]:
        """Return the SQL text for this dialect and the constants in it."""
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled: Any = self._clause.compile(dialect=dialect)
            # What a caller has to give is not among them, so that whoever forgets it is told.
            own = {name: bound.value for name, bound in compiled.binds.items() if not bound.required}
            text, constants = _with_literals(str(compiled), own, dialect)
            if self._fails_on_nothing:
                text = f"WITH changed AS ({text}) SELECT 1 / count(*) FROM changed"  # noqa: S608 - our own statement
            found = (text, constants)
            self._compiled[dialect.name] = found
        return found

    def failing_on_nothing(self) -> "Statement":
        """
        Return this statement as one that PostgreSQL refuses (SQLSTATE 22012) when it changes no row.

        It must return what it changed.
        """
        if self._failing is None:
            self._failing = Statement(self._clause, fails_on_nothing=True)
        return self._failing


def _with_literals(text: str, parameters: Mapping[str, Any], dialect: sa.Dialect) -> tuple[str, dict[str, Any]]:
    """
    Write a statement's own constants into its text, and return those that cannot stand there.

    Bound, they cost more than they say: where an index holds for some values of a column only, SQLite looks at what is
    bound and, since that might be something else the next time, plans the statement anew each time it is run.
    """
    left = {}
    for name, value in parameters.items():
        placeholder = f":{name}" if dialect.name == "sqlite" else f"%({name})s"
        if type(value) is int or (type(value) is str and _PLAIN_WORD.fullmatch(value)):
            literal = str(value) if type(value) is int else f"'{value}'"
            text = re.sub(re.escape(placeholder) + r"(?![A-Za-z0-9_])", literal, text)
        else:
            left[name] = value
    return text, left


class Transaction:
    """
    An open transaction (or, when only reading, a connection in autocommit). Belongs to one thread.

    On PostgreSQL what nobody waits for, BEGIN to begin with, is not sent before something is asked: together they take
    one round trip. An error of it then comes with what it was sent with.
    """

    __slots__ = ("_connection", "_dialect", "_errors", "_every_time", "_has_failed", "_unsent", "is_committed")

    def __init__(
        self,
        connection: Any,
        dialect: sa.Dialect,
        errors: DriverErrors,
        *,
        first: Sequence[Said] = (),
        every_time: LocalSettings | None = None,
    ) -> None:
        """
        Wrap a connection.

        :param first: On PostgreSQL, what begins the transaction.
        :param every_time: In autocommit, what to set for each query.
        """
        self._connection = connection
        self._dialect = dialect
        self._errors = errors
        self._every_time = every_time
        self._unsent = [*first]
        self._has_failed = False
        #: Whether `finish` has committed it.
        self.is_committed = False

    @property
    def connection(self) -> Any:
        """The driver's connection, with everything done that was said so far."""
        self.say()
        return self._connection

    def say(self) -> None:
        """Send what waits for what comes next."""
        if self._unsent:
            self._send_all()

    def _run(self, statement: Statement, parameters: Mapping[str, Any]) -> Any:
        text, constants = statement.compiled(self._dialect)
        given = {**constants, **parameters} if constants else parameters
        if self._dialect.name != "sqlite":
            return self._send_all((text, given))
        try:
            return self._connection.execute(text, given)
        except BaseException as error:
            give_up(self._errors, self._connection, error)
            raise

    def _send_all(self, *said: Said) -> Any:
        # In autocommit the server takes what is sent together as one transaction, which ends with it, and the settings
        # too.
        first = [local_settings(self._every_time)] if self._every_time else self._unsent
        self._unsent = []
        try:
            with self._asking():
                return ask(self._connection, [*first, *said])
        except BaseException:
            self._has_failed = True
            raise

    def set_local(self, settings: LocalSettings) -> None:
        """
        Set what holds from the next statement on until the transaction ends. Nothing on SQLite.

        When only reading it replaces the settings there are; in a transaction it adds to them.
        """
        if self._dialect.name == "sqlite":
            return
        if self._every_time is not None:
            self._every_time = settings
            return
        self._unsent.append(local_settings(settings))

    def _asking(self) -> Asking:
        return Asking(self._errors, self._connection)

    def execute(self, statement: Statement, **parameters: Any) -> int:
        """Run a statement and return how many rows it changed."""
        count: int = self._run(statement, parameters).rowcount
        return count

    def later(self, statement: Statement, **parameters: Any) -> None:
        """
        Run a statement whose answer nobody waits for: on PostgreSQL along with what comes next, or with COMMIT.

        There an error of it comes as late as that.
        """
        if self._dialect.name == "sqlite":
            self._run(statement, parameters)
            return
        text, constants = statement.compiled(self._dialect)
        self._unsent.append((text, {**constants, **parameters}))

    def one(self, statement: Statement, **parameters: Any) -> tuple[Any, ...] | None:
        """Run a query and return its first row, or `None`."""
        cursor = self._run(statement, parameters)
        try:
            row: tuple[Any, ...] | None = cursor.fetchone()
        except BaseException as error:
            give_up(self._errors, self._connection, error)
            raise
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
            with self._asking():
                cursor.executemany(text, [{**constants, **row} for row in rows])
        finally:
            cursor.close()

    def all(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a query and return all its rows."""
        cursor = self._run(statement, parameters)
        with self._asking():
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def finish(self, *last: tuple[Statement, Mapping[str, Any]]) -> bool:
        """
        Run the last statements of a transaction, each of which must return what it changed, and commit.

        On PostgreSQL all of it is one round trip, so that rows that everybody wants are locked no longer than the
        server takes: waiting for this process, which may have other things to do, it would keep all others waiting.

        :returns: Whether each statement changed something. If not, the transaction must be given up by an exception.
        """
        if self._dialect.name == "sqlite":
            return all(self.one(statement, **parameters) is not None for statement, parameters in last)
        said: list[Said] = []
        for statement, parameters in last:
            text, constants = statement.failing_on_nothing().compiled(self._dialect)
            said.append((text, {**constants, **parameters}))
        if self._has_failed:
            # Whoever caught the error and went on would be told that all is well: the server rolls back and says so in
            # the name of its answer only.
            raise StoreUnavailable("A statement of this transaction was refused; nothing was written.")
        try:
            self._send_all(*said, ("COMMIT", None))
        except NothingChanged:
            return False
        self.is_committed = True
        return True


def local_settings(settings: LocalSettings) -> Said:
    """
    Return what sets values for one transaction: a statement of its own, since inside another the planner may be first.
    """
    # A function call rather than SET: values are bound, never text.
    calls = ", ".join(f"set_config(%(name{index})s, %(value{index})s, true)" for index in range(len(settings)))
    names = {f"name{index}": name for index, name in enumerate(settings)}
    values = {f"value{index}": value for index, value in enumerate(settings.values())}
    return f"SELECT {calls}", {**names, **values}
