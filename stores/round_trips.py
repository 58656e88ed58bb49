"""
One round trip to PostgreSQL: several statements, sent together, with psycopg's wrapper of libpq.

Psycopg's own pipeline sends, and looks for answers, at every statement, which takes several times as long as the server
needs; it logs, with the server's words, what it meets on its way out of an error; and an error in it comes up at
whatever statement follows. Here nothing is sent before everything is ready, and nothing is logged.
"""

import itertools
import re
import select
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

#: A text for PostgreSQL, with placeholders in psycopg's form where anything is bound, and what is bound.
Said = tuple[str, Mapping[str, Any] | None]

#: How often a connection meets a statement before it has the server prepare it.
_UNPREPARED: Final = 2
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")
#: `psycopg.pq.Format` and `psycopg.pq.ExecStatus`, without importing a driver that may not be there.
_TEXT: Final = 0
_BINARY: Final = 1
_TUPLES_OK: Final = 2
_FATAL_ERROR: Final = 7
_PIPELINE_SYNC: Final = 10
_PIPELINE_ABORTED: Final = 11
#: How long the server is given to hear that nobody waits any more for what it is doing.
_CANCEL_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Known:
    """A statement in the server's form, and the name under which it is prepared, if it is."""

    text: bytes
    names: tuple[str, ...]
    uses: int = 0
    prepared: bytes | None = None


#: A statement, what is bound in it, and in which form.
_Ready = tuple[_Known, list[Any], list[int]]


@dataclass(slots=True)
class Statements:
    """What one connection has said so far."""

    encoding: str
    known: dict[str, _Known] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def find(self, text: str, parameters: Mapping[str, Any] | None) -> _Known:
        """Return what is known of a statement."""
        found = self.known.get(text)
        if found is None:
            found = _Known(text.encode(), ()) if parameters is None else _numbered(text, self.encoding)
            self.known[text] = found
        return found


def _numbered(text: str, encoding: str) -> _Known:
    names = dict.fromkeys(match[1] for match in _PLACEHOLDER.finditer(text) if match[1])
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    numbered = _PLACEHOLDER.sub(lambda match: numbers[match[1]] if match[1] else "%", text)
    return _Known(numbered.encode(encoding), tuple(names))


class Answer:
    """What the server says to one statement, with as much of a cursor's face as is needed."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, connection: Any, result: Any) -> None:
        from psycopg.adapt import Transformer

        self._rows: list[tuple[Any, ...]] = []
        #: Rows that were changed or found.
        self.rowcount: int = result.command_tuples or 0
        if result.status == _TUPLES_OK:
            loading = Transformer(connection)
            loading.set_pgresult(result)
            self._rows = loading.load_rows(0, result.ntuples, tuple)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row, or `None`."""
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._rows

    def close(self) -> None:
        """Do nothing: nothing is held."""


def ask(connection: Any, said: Sequence[Said]) -> Answer:
    """
    Say several things at once, each of which is done only if those before it were.

    Outside of a transaction they are one of their own.

    :param connection: Psycopg's, in autocommit, and prepared by `stores.connections`.
    :returns: The answer to the last one.
    :raises psycopg.Error: What the server says to the first one that it refuses. Whatever else is raised, the
        connection is closed.
    """
    statements: Statements = connection.statements
    ready: list[_Ready] = []
    for text, parameters in said:
        known = statements.find(text, parameters)
        values = [_dumped(connection, (parameters or {})[name], statements.encoding) for name in known.names]
        ready.append((known, [value for value, _ in values], [form for _, form in values]))
    try:
        result = _exchange(connection.pgconn, statements, ready)
    except connection.Error:
        # The connection failed. What the server refuses is a result.
        connection.close()
        raise
    except BaseException:
        # Somebody interrupts us. The server may be waiting for a lock, and others for those it has.
        try:
            with suppress(Exception):
                connection.cancel_safe(timeout=_CANCEL_SECONDS)
        finally:
            connection.close()
        raise
    if isinstance(result, Exception):
        try:
            raise result
        finally:
            # Its traceback holds this frame, which must not hold it in turn: everything that was sent would stay until
            # the collector comes by.
            del result, said, ready
    return Answer(connection, result)


def _dumped(connection: Any, value: Any, encoding: str) -> tuple[Any, int]:
    # Texts in binary too: as texts they would end at a zero character, without a word. No types are given: those of
    # parameters follow from the statement, and do not change with the size of a number.
    kind = type(value)
    if kind is str:
        return value.encode(encoding), _BINARY
    if kind is bytes:
        return value, _BINARY
    if value is None:
        return None, _TEXT
    if kind is int:
        return b"%d" % value, _TEXT
    from psycopg.adapt import PyFormat, Transformer

    return Transformer(connection).get_dumper(value, PyFormat.TEXT).dump(value), _TEXT


def _exchange(pgconn: Any, statements: Statements, ready: list[_Ready]) -> Any:
    """Return the last result, or the error of the first statement that was refused."""
    pgconn.enter_pipeline_mode()
    preparing: list[tuple[_Known, bytes] | None] = []
    coming: dict[bytes, bytes] = {}
    for known, values, formats in ready:
        known.uses += 1
        name = known.prepared or coming.get(known.text)
        if name is None and known.uses > _UNPREPARED:
            name = coming[known.text] = b"tenancy_%d" % next(statements.numbers)
            pgconn.send_prepare(name, known.text)
            preparing.append((known, name))
        if name is None:
            pgconn.send_query_params(known.text, values, None, formats, _BINARY)
        else:
            pgconn.send_query_prepared(name, values, formats, _BINARY)
        preparing.append(None)
    pgconn.pipeline_sync()
    arrivals = _send(pgconn)
    last, refused = None, None
    for prepared in preparing:
        result = _next_result(pgconn, arrivals)
        if result is None:
            raise refused or _lost()
        if result.status == _FATAL_ERROR:
            refused = refused or _error(result, statements.encoding)
        elif result.status == _PIPELINE_ABORTED:
            pass
        elif prepared is None:
            last = result
        else:
            prepared[0].prepared = prepared[1]
        # Each statement's answer ends with nothing.
        _next_result(pgconn, arrivals)
    result = _next_result(pgconn, arrivals)
    if result is None or result.status != _PIPELINE_SYNC:
        raise refused or _lost()
    pgconn.exit_pipeline_mode()
    return refused or last


def _send(pgconn: Any) -> Any:
    """Send all there is; return what tells when something arrives."""
    both = select.poll()
    both.register(pgconn.socket, select.POLLIN | select.POLLOUT)
    while pgconn.flush():
        for _, events in both.poll():
            # A server whose answers nobody takes would take nothing either.
            if events & ~select.POLLOUT:
                pgconn.consume_input()
    both.modify(pgconn.socket, select.POLLIN)
    return both


def _next_result(pgconn: Any, arrivals: Any) -> Any:
    while pgconn.is_busy():
        arrivals.poll()
        pgconn.consume_input()
    return pgconn.get_result()


def _error(result: Any, encoding: str) -> Exception:
    from psycopg.errors import error_from_result

    return error_from_result(result, encoding=encoding)


def _lost() -> Exception:
    from psycopg import OperationalError

    return OperationalError("the connection was lost")
