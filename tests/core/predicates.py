"""
Which tables of a statement are tied to a tenant, read from SQLAlchemy's own tree of it.

A table is tied by a column when every row of it that the statement can see or change has, in that column, the value of
a bound parameter: because the column is compared with the parameter, or with a column that is tied itself. Only what
is joined by AND counts, and what stands in the ON of an outer join ties the table on its outer side alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression, BindParameter, BooleanClauseList, ColumnElement, Grouping
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.sql.selectable import CTE, Alias, AliasedReturnsRows, FromClause, Join, Select, SelectState, Subquery

DIALECT: Final = sqlite_dialect()
#: A column of one table as it stands in one statement; the table may be an alias or a subquery.
Place = tuple[FromClause, str]


@dataclass(frozen=True, slots=True)
class Keys:
    """
    By which columns the rows of a table are told apart, and from which parameters those may come.

    :param outer: The column that says whose a row is.
    :param inner: Columns of which one must be tied as well, for a statement on the rows of one owner; none if the
        outer column is all there is.
    """

    outer: str
    inner: tuple[str, ...] = ()


KEYS: Final[Mapping[str, Keys]] = {
    "tenancy_tenants": Keys("tenant_id"),
    "tenancy_tenant_keys": Keys("tenant_id"),
    "tenancy_users": Keys("tenant_id", ("user_id", "name")),
    "tenancy_sessions": Keys("tenant_id", ("session_id", "user_id")),
    "tenancy_session_keys": Keys("tenant_id", ("session_id",)),
    "tenancy_results": Keys("tenant_id", ("session_id",)),
    "tenancy_usage": Keys("tenant_id", ("owner_id",)),
    "tenancy_limits": Keys("tenant_id", ("owner_id",)),
    "tenancy_receipts": Keys("tenant_id", ("receipt_id",)),
    "tenancy_blobs": Keys("outer_name", ("inner_name",)),
}
#: What a parameter may be called that a column is compared with: a tenant's id that came as a user's ties nothing.
PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "tenant_id": frozenset({"tenant_id", "of_tenant"}),
    "outer_name": frozenset({"outer_name"}),
    "user_id": frozenset({"user_id", "of_user"}),
    "session_id": frozenset({"session_id", "of_session"}),
    "inner_name": frozenset({"inner_name"}),
    "owner_id": frozenset({"owner_id", "wider_owner_id", "widest_owner_id", "session_id", "user_id", "tenant_id"}),
    "receipt_id": frozenset({"old_receipt_id", "new_receipt_id"}),
    "name": frozenset({"tenant", "user", "session", "name"}),
}
#: Columns of which only one row has those values, so that another column is tied as well.
TOLD_BY: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("tenancy_tenants", "tenant_id"): ("name",),
    ("tenancy_users", "user_id"): ("tenant_id", "name"),
    ("tenancy_users", "receipt_id"): ("tenant_id", "user_id"),
    ("tenancy_sessions", "session_id"): ("tenant_id", "user_id", "name"),
}
#: Which columns hold the same kind of id. An owner is a tenant, a user or a session.
_SAME: Final[Mapping[str, frozenset[str]]] = {
    "tenant_id": frozenset({"tenant_id", "outer_name", "owner_id"}),
    "outer_name": frozenset({"tenant_id"}),
    "user_id": frozenset({"user_id", "owner_id"}),
    "session_id": frozenset({"session_id", "inner_name", "owner_id"}),
    "inner_name": frozenset({"session_id"}),
    "owner_id": frozenset({"tenant_id", "user_id", "session_id"}),
    "receipt_id": frozenset({"receipt_id"}),
}


@dataclass(slots=True)
class Ties:
    """
    What a statement leaves open.

    :param tenants: Tables that may be any tenant's.
    :param owners: Tables that may be any user's or session's within a tenant.
    :param by_name: Whether a tenant is told by its name instead of its id.
    """

    tenants: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    by_name: bool = False
    #: The parameters that tenants are bound to.
    parameters: set[str] = field(default_factory=set)
    whole_table: bool = False


def ties_of(clause: ClauseElement, *, whole_table: bool = False) -> Ties:
    """
    Read a whole statement, with everything nested in it.

    :param whole_table: Ask only that all is tied to the first table of each FROM, whose every row may be meant.
    """
    found = Ties(whole_table=whole_table)
    if isinstance(clause, sa.TextClause):
        # Nobody can tell what a text does to a table it names.
        found.tenants += [name for name in KEYS if name in clause.text]
    elif isinstance(clause, sa.Insert):
        _read_insert(clause, found)
    elif isinstance(clause, sa.Update | sa.Delete):
        _read_change(clause, found)
    else:
        for select in _selects_in(clause):
            _read_select(select, {}, found)
    return found


def _read_insert(clause: sa.Insert, found: Ties) -> None:
    keys = KEYS.get(clause.table.name)
    values = {getattr(column, "name", column): value for column, value in (clause._values or {}).items()}
    if keys is not None:
        # Without any values SQLAlchemy makes a parameter of each column, called as the column is.
        outer = values.get(keys.outer) if values else sa.bindparam(keys.outer)
        if _parameter(outer, keys.outer) is None:
            found.tenants.append(clause.table.name)
        else:
            found.parameters.add(outer.key)
    _Scope({}, {}, found).read_nested(values.values())


def _read_change(clause: sa.Update | sa.Delete, found: Ties) -> None:
    scope = _Scope.of([clause.table], clause._where_criteria, {}, found)
    scope.report()
    scope.read_nested([*clause._where_criteria, *getattr(clause, "_values", None or {}).values()])


def _read_select(select: "Select[Any]", around: "dict[Place, bool]", found: Ties) -> set[str]:
    """Read one SELECT, and return which of its output columns are tied."""
    scope = _Scope.of(_own_tables(select, around), select._where_criteria, around, found)
    scope.report()
    scope.read_nested([*select._raw_columns, *select._where_criteria, *select._having_criteria, *scope.conditions])
    return {
        column.key
        for column in select.selected_columns
        if isinstance(column, sa.Column) and scope.is_tied((column.table, column.name))
    }


def _own_tables(select: "Select[Any]", around: "dict[Place, bool]") -> list[FromClause]:
    # SQLAlchemy's own choice of what a nested SELECT takes from the one around it.
    compiler = DIALECT.statement_compiler(DIALECT, None)
    outside = [place[0] for place in around]
    state = SelectState.get_plugin_class(select).create_for_statement(select, compiler)
    return list(state._get_display_froms(explicit_correlate_froms=outside, implicit_correlate_froms=outside))


class _Scope:
    """The tables of one SELECT, UPDATE or DELETE, with what ties them."""

    def __init__(self, tables: "dict[FromClause, None]", around: "dict[Place, bool]", found: Ties) -> None:
        self._tables = list(tables)
        self._found = found
        self._tied = {place: tied for place, tied in around.items() if place[0] not in tables}
        if found.whole_table and self._tables and not around:
            self._tied.update({(self._tables[0], column.key): True for column in self._tables[0].c})
        self.conditions: list[ClauseElement] = []

    @classmethod
    def of(
        cls, froms: Iterable[FromClause], where: Iterable[ClauseElement], around: "dict[Place, bool]", found: Ties
    ) -> "_Scope":
        froms = list(froms)
        tables = dict.fromkeys(table for entry in froms for table in _leaves(entry))
        scope = cls(tables, around, found)
        # What may be tied by a condition: everything, except where it stands in the ON of an outer join.
        conditions = [(part, None) for condition in where for part in _conjuncts(condition)]
        for entry in froms:
            for onclause, outer_side in _joins(entry):
                scope.conditions.append(onclause)
                conditions += [(part, outer_side) for part in _conjuncts(onclause)]
        scope._read_subqueries()
        scope._spread(conditions)
        return scope

    def is_tied(self, place: Place) -> bool:
        table, column = place
        if self._tied.get(place, False):
            return True
        telling = TOLD_BY.get((getattr(table, "name", ""), column))
        if telling is None or not all(self.is_tied((table, other)) for other in telling):
            return False
        self._found.by_name |= column == "tenant_id"
        return True

    def report(self) -> None:
        for table in self._tables:
            keys = _keys_of(table)
            if keys is None:
                continue
            if not self.is_tied((table, keys.outer)):
                self._found.tenants.append(_name_of(table))
            if keys.inner and not any(self.is_tied((table, column)) for column in keys.inner):
                self._found.owners.append(_name_of(table))

    def read_nested(self, elements: Iterable[Any]) -> None:
        """Read every SELECT inside these expressions. Its conditions may name the tables of this scope."""
        for element in elements:
            for select in _selects_in(element):
                _read_select(select, self._around(), self._found)

    def _read_subqueries(self) -> None:
        for index, table in enumerate(self._tables):
            if isinstance(table, CTE) and isinstance(table.element, sa.Update | sa.Delete):
                _read_change(table.element, self._found)
            elif isinstance(table, Subquery | CTE):
                tied: set[str] = set()
                for select in _selects_in(table.element):
                    tied = _read_select(select, {}, self._found)
                # A subquery that others are joined to may be tied from within. One that is joined to others must be
                # joined by its tenant too, or it depends on its inside being right.
                if index == 0:
                    self._tied.update({(table, column): True for column in tied})

    def _spread(self, conditions: "list[tuple[ClauseElement, FromClause | None]]") -> None:
        equalities = [(*sides, outer) for part, outer in conditions if (sides := _equality(part)) is not None]
        changed = True
        while changed:
            changed = False
            for left, right, outer in equalities:
                for place, other in ((_place(left), right), (_place(right), left)):
                    if place is None or self.is_tied(place) or (outer is not None and place[0] not in _leaves(outer)):
                        continue
                    parameter = _parameter(other, place[1])
                    if parameter is not None and place[1] in ("tenant_id", "outer_name"):
                        self._found.parameters.add(parameter)
                    if parameter is not None or self._ties(other, place[1]):
                        self._tied[place] = changed = True

    def _ties(self, element: Any, column: str) -> bool:
        if isinstance(element, sa.ScalarSelect):
            # Looked up: as good as what it is looked up by.
            found = Ties(whole_table=self._found.whole_table)
            (select,) = _selects_in(element)
            tied = bool(_read_select(select, self._around(), found) & _SAME.get(column, frozenset()))
            self._found.by_name |= found.by_name
            return tied
        place = _place(element)
        return place is not None and place[1] in _SAME.get(column, ()) and self.is_tied(place)

    def _around(self) -> "dict[Place, bool]":
        around = dict(self._tied)
        for table in self._tables:
            around.setdefault((table, ""), False)
        return around


def _leaves(entry: FromClause) -> Iterator[FromClause]:
    if isinstance(entry, Join):
        yield from _leaves(entry.left)
        yield from _leaves(entry.right)
    else:
        yield entry


def _joins(entry: FromClause) -> "Iterator[tuple[ClauseElement, FromClause | None]]":
    """Each ON with the side it can tie: both (`None`), or the outer one."""
    if isinstance(entry, Join):
        yield from _joins(entry.left)
        yield from _joins(entry.right)
        assert not entry.full
        yield entry.onclause, (entry.right if entry.isouter else None)


def _conjuncts(condition: ClauseElement) -> Iterator[ClauseElement]:
    if isinstance(condition, BooleanClauseList) and condition.operator is operators.and_:
        for part in condition.clauses:
            yield from _conjuncts(part)
    else:
        yield condition


def _equality(part: ClauseElement) -> tuple[Any, Any] | None:
    if isinstance(part, BinaryExpression) and part.operator is operators.eq:
        return _bare(part.left), _bare(part.right)
    if isinstance(part, BinaryExpression) and part.operator is operators.in_op and isinstance(part.right, Grouping):
        # One of several: as good as the first, if all are such as may be.
        left, (first, *others) = _bare(part.left), part.right.element.get_children()
        if all(_parameter(other, left.key) for other in others):
            return left, first
    return None


def _bare(element: Any) -> Any:
    # `unindexed(column)` is the column, for this purpose.
    inner = getattr(element, "column", None)
    return inner if isinstance(inner, sa.Column) and isinstance(element, ColumnElement) else element


def _place(element: Any) -> Place | None:
    table = getattr(element, "table", None)
    return (table, element.key) if isinstance(table, FromClause) and isinstance(element, ColumnElement) else None


def _parameter(element: Any, column: str) -> str | None:
    """The name of the parameter, if that is what this is and if its name says that it fits the column."""
    if isinstance(element, BindParameter) and element.required and element.key in PARAMETERS.get(column, ()):
        return element.key
    return None


def _keys_of(table: FromClause) -> Keys | None:
    if isinstance(table, sa.TableClause):
        return KEYS.get(table.name)
    if isinstance(table, Alias):
        return _keys_of(table.element)
    assert isinstance(table, Subquery | CTE), f"nobody has taught this reader about {type(table).__name__}"
    # It has been read on its own; here it must be tied like the tables it stands beside.
    return Keys("tenant_id") if "tenant_id" in table.c else None


def _name_of(table: FromClause) -> str:
    return str(table.name) if isinstance(table, sa.TableClause | AliasedReturnsRows) else type(table).__name__


def _selects_in(element: Any) -> "Iterator[Select[Any]]":
    """The outermost SELECTs inside an expression."""
    if isinstance(element, Select):
        yield element
    elif isinstance(element, ClauseElement) and not isinstance(element, FromClause):
        for child in element.get_children():
            yield from _selects_in(child)
