"""
Orders of operations that look right and are not. The enumeration has to find broken states in each of them.

Each makes something of the library do worse for the length of a `with` block, in the child that is recorded.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

import tenancy.writing
from stores import connections
from stores.filesystem import FilesystemNamespace
from tenancy.backend import Backend
from tenancy.catalogue.reclaim import Removed
from tenancy.catalogue.result_rows import Doomed, NewResult
from tenancy.catalogue.results import ResultTable
from tenancy.catalogue.sessions import Ids
from tenancy.cleanup import Cleaner
from tenancy.references import Reference, parse_reference
from tenancy.session import Session

_Double = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Naive:
    """
    A naive order.

    :param scenarios: The names of those in which it has to show.
    """

    name: str
    double: _Double
    scenarios: tuple[str, ...]


def _without_sync(is_left_out: Callable[[int], bool]) -> _Double:
    @contextmanager
    def double() -> Iterator[None]:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if not is_left_out(os.fstat(descriptor).st_mode):
                real(descriptor)

        with patch.object(os, "fsync", fsync):
            yield

    return double


@contextmanager
def _row_then_file() -> Iterator[None]:
    """The bytes are handed over once their row is committed."""
    put, commit = FilesystemNamespace.put, ResultTable.commit
    waiting: list[tuple[FilesystemNamespace, str, bytes]] = []

    def keep(namespace: FilesystemNamespace, name: str, data: bytes) -> None:
        waiting.append((namespace, name, data))

    def commit_first(results: ResultTable, new: NewResult, number: int) -> None:
        commit(results, new, number)
        put(*waiting.pop())

    with patch.object(FilesystemNamespace, "put", keep), patch.object(ResultTable, "commit", commit_first):
        yield


@contextmanager
def _file_then_row() -> Iterator[None]:
    """The bytes are there before anything in the catalogue speaks of them."""
    put, store = FilesystemNamespace.put, tenancy.writing._store

    def put_first(backend: Backend, new: NewResult, body: bytes) -> Reference:
        put(backend.namespace(new.ids, inline=False), new.result_id, body)
        return store(backend, new, body)

    with patch.object(tenancy.writing, "_store", put_first), patch.object(FilesystemNamespace, "put", _nothing):
        yield


@contextmanager
def _row_gone_then_file() -> Iterator[None]:
    """A deleted result's row goes before its bytes."""

    def finish(cleaner: Cleaner, doomed: Doomed) -> None:
        cleaner._catalogue.results.remove(doomed)
        cleaner._backend.namespace(doomed.ids, inline=False).delete(doomed.result_id)

    with patch.object(Cleaner, "finish", finish):
        yield


@contextmanager
def _file_gone_then_row() -> Iterator[None]:
    """A deleted result's bytes go before its row says so."""
    delete = Session.delete

    def delete_bytes_first(session: Session, reference: str) -> None:
        backend, ids, parsed = session._backend, session._opened.ids, parse_reference(reference)
        found = backend.catalogue.results.find(ids, parsed).result if parsed else None
        if found is not None:
            backend.namespace(ids, inline=found.inline).delete(found.result_id)
        delete(session, reference)

    with patch.object(Session, "delete", delete_bytes_first):
        yield


@contextmanager
def _rows_gone_then_files() -> Iterator[None]:
    """An ended session's rows go before its files."""

    def remove_session(cleaner: Cleaner, ids: Ids, *, shred: bool = False) -> Removed:
        backend = cleaner._backend
        (removed,) = cleaner._reclaim.remove_sessions([ids], drop=backend.drop_all, shred=shred)
        backend.destroy_files(ids)
        return removed

    with patch.object(Cleaner, "remove_session", remove_session):
        yield


@contextmanager
def _synchronous_off() -> Iterator[None]:
    """SQLite does not sync."""
    connect = connections._connect_sqlite

    def careless(*arguments: object) -> sqlite3.Connection:
        connection = connect(*arguments)  # type: ignore[arg-type]
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    with patch.object(connections, "_connect_sqlite", careless):
        yield


def _nothing(*_: object) -> None:
    pass


NAIVE: Final = (
    Naive("no sync of files", _without_sync(stat.S_ISREG), ("write file", "write file, new room")),
    Naive("no sync of directories", _without_sync(stat.S_ISDIR), ("write file", "write file, new room", "delete file")),
    Naive("no sync at all", _without_sync(lambda _: True), ("write file",)),
    Naive("row, then file", _row_then_file, ("write file",)),
    Naive("file, then row", _file_then_row, ("write file",)),
    Naive("row gone, then file", _row_gone_then_file, ("delete file",)),
    Naive("file gone, then row", _file_gone_then_row, ("delete file",)),
    Naive("session gone, then files", _rows_gone_then_files, ("delete session",)),
    Naive("SQLite does not sync", _synchronous_off, ("write inline", "write file")),
)
