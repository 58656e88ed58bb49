"""Blobs as rows, in SQLite or PostgreSQL."""

import builtins
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event

from stores.blob import BlobInfo
from stores.errors import BlobCorrupt, BlobExists, BlobNotFound, Conflict, StoreDenied, StoreUnavailable
from stores.names import require_name
from stores.ranges import require_ranges
from stores.sql import Database, Statement, Transaction

#: The table's name, which migrations and the store share.
BLOB_TABLE = "tenancy_blobs"
#: On PostgreSQL, the setting in which a transaction says whose rooms it may reach, the outer name. A policy of
#: row-level security holds the table to it.
OUTER_SETTING: Final = "stores.outer"

#: The largest blob. SQLite takes 10^9 bytes in a row (https://sqlite.org/limits.html); PostgreSQL 2^30 in a message,
#: and it answers in hexadecimal, which is twice as long.
MAX_BYTES: Final = 500_000_000
#: Rows in one step of a listing.
_PAGE: Final = 500
#: Rows in one transaction of `destroy`, so that other writers get their turn.
_DELETES_AT_ONCE: Final = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IS_HIDDEN: Final = Statement(sa.text(f"SELECT row_security_active('{BLOB_TABLE}')"))


def blob_table(metadata: sa.MetaData) -> sa.Table:
    """Describe the table of blobs inside `metadata`. On PostgreSQL its `data` column has STORAGE EXTERNAL."""
    table = sa.Table(
        BLOB_TABLE,
        metadata,
        sa.Column("outer_name", sa.String(32), primary_key=True),
        sa.Column("inner_name", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    # Sealed bytes do not compress; and substr() can then fetch the pages of a range instead of the whole value.
    external = sa.DDL("ALTER TABLE %(fullname)s ALTER COLUMN data SET STORAGE EXTERNAL")  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", external.execute_if(dialect="postgresql"))
    return table


class DatabaseStore:
    """
    A store in the table `tenancy_blobs`, which must exist.

    Durable as `database` was opened to be. Closing the store leaves the database open: it belongs to the caller.

    :param overseer: The same database as a role that row-level security shows every room. Needed by `namespaces` where
        such security is on, and by nothing else.
    :param time_ns: Nanoseconds since 1970, for the times in listings.
    """

    joins_transactions = True
    sets_aside = False

    def __init__(
        self, database: Database, *, overseer: Database | None = None, time_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._database = database
        self._overseer = overseer
        self._time_ns = time_ns
        self._statements = _Statements(blob_table(sa.MetaData()))
        self._closed = False

    def namespace(self, outer: str, inner: str) -> "DatabaseNamespace":
        """Return the handle of one room."""
        return DatabaseNamespace(self, require_name(outer), require_name(inner))

    def namespaces(self) -> Iterator[tuple[str, str]]:
        """
        Go through the rooms that hold anything, in pages; no connection is held between them.

        :raises StoreDenied: If row-level security would hide rooms, and there is no `overseer`.
        """
        outer = inner = ""
        while True:
            self._require_open()
            with (self._overseer or self._database).reading() as transaction:
                if self._overseer is None and not self._database.is_sqlite:
                    self._require_unhidden(transaction)
                rows = transaction.all(self._statements.rooms_after, after_outer=outer, after_inner=inner)
            for outer, inner in rows:
                yield outer, inner
            if len(rows) < _PAGE:
                return

    def sweep(self) -> None:
        """Do nothing: an interrupted `destroy` leaves nothing half removed here."""

    def close(self) -> None:
        """Refuse later calls with `StoreUnavailable`."""
        self._closed = True

    def _require_unhidden(self, transaction: Transaction) -> None:
        # An empty answer would read as "there is nothing".
        if transaction.one(_IS_HIDDEN) == (True,):
            raise StoreDenied("Row-level security hides the rooms of others; going through all of them needs a role.")

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store was closed.")


class DatabaseNamespace:
    """
    One room of a `DatabaseStore`: a row filter.

    Each call is a transaction of its own, unless the room is `joined` to one of the caller's.
    """

    __slots__ = ("_inner", "_outer", "_store", "_transaction")

    def __init__(self, store: DatabaseStore, outer: str, inner: str, *, transaction: Transaction | None = None) -> None:
        self._store = store
        self._outer = outer
        self._inner = inner
        self._transaction = transaction

    def joined(self, transaction: Transaction) -> "DatabaseNamespace":
        """
        Return this room inside the caller's transaction, which nothing here begins, commits or rolls back.

        On PostgreSQL that a name is taken is told with what comes next, or at the commit, as a `Conflict`, and the
        transaction can then only be rolled back. A SQLite one can go on after `BlobExists`.

        :param transaction: An open one of the same database, which has set `OUTER_SETTING`. The handle is of use as
            long as that transaction, and in its thread only.
        """
        return DatabaseNamespace(self._store, self._outer, self._inner, transaction=transaction)

    def put(self, name: str, data: bytes) -> None:
        """
        Create a blob.

        :raises StoreDenied: If it is larger than `MAX_BYTES`.
        """
        require_name(name)
        if len(data) > MAX_BYTES:
            raise StoreDenied(f"A database keeps blobs of at most {MAX_BYTES} bytes; use the filesystem store.")
        created_at_us = self._store._time_ns() // 1000
        insert = self._store._statements.insert
        try:
            with self._writing() as transaction:
                transaction.later(insert, **self._room, name=name, created_at_us=created_at_us, data=data)
        except Conflict:
            raise BlobExists("A blob of this name is there already.") from None

    def get(self, name: str, *, size_bytes: int) -> bytes:
        """Return a whole blob."""
        require_name(name)
        with self._reading() as transaction:
            row = transaction.one(self._store._statements.whole, **self._room, name=name, size_bytes=size_bytes)
        return _checked(row)

    def get_range(self, name: str, *, start: int, length: int, size_bytes: int) -> bytes:
        """Return a part of a blob. The database reads only that part."""
        return self.get_ranges(name, ((start, length),), size_bytes=size_bytes)[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]], *, size_bytes: int) -> Sequence[bytes]:
        """Return parts of a blob, two in a query. The database reads only them."""
        require_name(name)
        require_ranges(ranges, size_bytes=size_bytes)
        statements = self._store._statements
        parts: builtins.list[bytes] = []
        with self._reading() as transaction:
            for first in range(0, len(ranges), 2):
                some = ranges[first : first + 2]
                given: dict[str, int] = {}
                for number, (start, length) in enumerate(some):
                    given |= {f"first{number}": start + 1, f"length{number}": length}
                statement = statements.two_parts if len(some) == 2 else statements.one_part
                row = transaction.one(statement, **self._room, name=name, size_bytes=size_bytes, **given)
                parts += [_checked(row, at) for at in range(len(some))]
        return parts

    def delete(self, name: str) -> None:
        """Make sure there is no blob of this name."""
        require_name(name)
        with self._writing() as transaction:
            transaction.later(self._store._statements.delete, **self._room, name=name)

    def list(self) -> Iterator[BlobInfo]:
        """Go through the blobs in pages; no connection is held between them."""
        after = ""
        while True:
            with self._reading() as transaction:
                rows = transaction.all(self._store._statements.blobs_after, **self._room, after=after)
            for after, size_bytes, created_at_us in rows:
                yield BlobInfo(after, size_bytes, _EPOCH + timedelta(microseconds=created_at_us))
            if len(rows) < _PAGE:
                return

    def set_aside(self, name: str) -> bool:
        """Refuse: this store has no quarantine."""
        require_name(name)
        raise StoreDenied("This store has no quarantine.")

    def destroy(self) -> None:
        """Remove every blob of this room, in several transactions unless joined to one."""
        if self._transaction is not None:
            self._store._require_open()
            self._transaction.later(self._store._statements.delete_all, **self._room)
            return
        removed = _DELETES_AT_ONCE
        while removed == _DELETES_AT_ONCE:
            with self._writing() as transaction:
                removed = transaction.execute(self._store._statements.delete_some, **self._room)

    @property
    def _room(self) -> dict[str, str]:
        return {"outer_name": self._outer, "inner_name": self._inner}

    def _writing(self) -> AbstractContextManager[Transaction]:
        self._store._require_open()
        if self._transaction is not None:
            return nullcontext(self._transaction)
        return self._store._database.writing(local={OUTER_SETTING: self._outer})

    def _reading(self) -> AbstractContextManager[Transaction]:
        self._store._require_open()
        if self._transaction is not None:
            return nullcontext(self._transaction)
        return self._store._database.reading(local={OUTER_SETTING: self._outer})


def _checked(row: tuple[Any, ...] | None, at: int = 0) -> bytes:
    if row is None:
        raise BlobNotFound("There is no such blob.")
    data = row[at]
    # The query leaves data of a wrong size out; and SQLite keeps whatever it is given, text and numbers too.
    if not isinstance(data, bytes):
        raise BlobCorrupt("The blob has another size or kind than it was written with.")
    return data


class _Statements:
    """What the store says to the database, each statement compiled once."""

    def __init__(self, table: sa.Table) -> None:
        columns = table.c
        in_room = sa.and_(
            columns.outer_name == sa.bindparam("outer_name"), columns.inner_name == sa.bindparam("inner_name")
        )
        is_blob = sa.and_(in_room, columns.name == sa.bindparam("name"))
        size = sa.func.length(columns.data)
        # The size is compared where the bytes are: a blob of a wrong size, however large, never travels.
        right_size = size == sa.bindparam("size_bytes", type_=sa.BigInteger)
        room = sa.tuple_(columns.outer_name, columns.inner_name)
        after_room = sa.tuple_(
            sa.bindparam("after_outer", type_=sa.String), sa.bindparam("after_inner", type_=sa.String)
        )
        some = sa.select(columns.name).where(in_room).limit(sa.literal_column(str(_DELETES_AT_ONCE)))

        one, two = (
            sa.case(
                (
                    right_size,
                    sa.func.substr(
                        columns.data,
                        sa.bindparam(f"first{number}", type_=sa.Integer),
                        sa.bindparam(f"length{number}", type_=sa.Integer),
                    ),
                )
            )
            for number in range(2)
        )

        self.insert = Statement(sa.insert(table))
        self.whole = Statement(sa.select(sa.case((right_size, columns.data))).where(is_blob))
        self.one_part = Statement(sa.select(one).where(is_blob))
        self.two_parts = Statement(sa.select(one, two).where(is_blob))
        self.delete = Statement(sa.delete(table).where(is_blob))
        self.delete_all = Statement(sa.delete(table).where(in_room))
        self.delete_some = Statement(sa.delete(table).where(in_room, columns.name.in_(some.scalar_subquery())))
        self.blobs_after = Statement(
            sa.select(columns.name, size, columns.created_at_us)
            .where(in_room, columns.name > sa.bindparam("after"))
            .order_by(columns.name)
            .limit(sa.literal_column(str(_PAGE)))
        )
        self.rooms_after = Statement(
            sa.select(columns.outer_name, columns.inner_name)
            .where(room > after_room)
            .distinct()
            .order_by(columns.outer_name, columns.inner_name)
            .limit(sa.literal_column(str(_PAGE)))
        )
