"""Time inside SQL: the database server's clock on PostgreSQL, a bound number of this process's on SQLite."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

from stores.sql import Database
from tenancy.clock import Clock


class now_us(ColumnElement[int]):  # noqa: N801 - reads as the SQL function it is
    """The present in microseconds since 1970. Needs the parameter `now_us`, which `Moments.parameter` gives."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(now_us, "sqlite")
def _on_sqlite(_element: now_us, compiler: Any, **options: Any) -> str:
    text: str = compiler.process(sa.bindparam("now_us", type_=sa.BigInteger), **options)
    return text


@compiles(now_us, "postgresql")
def _on_postgresql(_element: now_us, compiler: Any, **options: Any) -> str:
    # statement_timestamp() is stable, so an index on a moment stays usable; clock_timestamp() is not.
    offset = compiler.process(sa.bindparam("now_us", type_=sa.BigInteger), **options)
    return f"(CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS BIGINT) + {offset})"


class unindexed(ColumnElement[Any]):  # noqa: N801 - reads as the SQL operator it is
    """
    A column that SQLite must not look up in an index. Without statistics, which nobody gathers there, it takes the
    index with the most equalities, however many rows that leaves. PostgreSQL knows better and sees the plain column.
    """

    inherit_cache = True

    def __init__(self, column: "sa.ColumnElement[Any]") -> None:
        self.column = column
        self.type = column.type

    # What a statement's FROM and cache key are made of.
    _traverse_internals = [("column", InternalTraversal.dp_clauseelement)]  # noqa: RUF012

    @property
    def _from_objects(self) -> Any:
        return self.column._from_objects


@compiles(unindexed)
def _as_it_is(element: unindexed, compiler: Any, **options: Any) -> str:
    text: str = compiler.process(element.column, **options)
    return text


@compiles(unindexed, "sqlite")
def _with_a_plus(element: unindexed, compiler: Any, **options: Any) -> str:
    return f"+{compiler.process(element.column, **options)}"


class Moments:
    """
    What the parameter `now_us` must be on one database.

    :param clock: The process clock, and the offset added to either clock.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._is_sqlite = database.is_sqlite
        self._clock = clock

    def parameter(self) -> int:
        """The moment itself on SQLite; on PostgreSQL only the offset, the server knows the rest."""
        return self._clock.now_us() if self._is_sqlite else self._clock.offset_us
