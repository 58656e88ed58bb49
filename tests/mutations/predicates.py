"""Mutants of statements: each condition on a tenant, a user, a session, a row or its state says nothing any more."""

import ast
from collections.abc import Collection, Iterator
from typing import Final

from tests.mutations.operators import called
from tests.mutations.sources import Mutant, Source, sources_in

#: Whose rows a statement means.
WHOSE: Final = frozenset({"tenant_id", "user_id", "session_id", "owner_id", "outer_name", "inner_name", "name"})
#: Which of their rows.
WHICH: Final = frozenset({"number", "result_id", "reference_hash", "receipt_id", "version"})
#: In which state they are.
STATE: Final = frozenset({"state", "open", "expires_at_us", "lease_until_us", "finished_at_us"})

_PLACES: Final = ("tenancy/catalogue/*.py", "stores/database.py")


def whose_rows() -> Iterator[Mutant]:
    """Every tenant, user and session predicate."""
    for source in sources_in(*_PLACES):
        yield from _without("whose", source, WHOSE, (ast.Eq,))


def which_rows() -> Iterator[Mutant]:
    """Every predicate on a row's own key, and every one on whether it still is, or is still to be, what it was."""
    for source in sources_in(*_PLACES):
        yield from _without("which", source, WHICH, (ast.Eq,))
        yield from _without("which", source, STATE, (ast.Eq, ast.NotEq, ast.Gt, ast.LtE))


def _without(
    group: str, source: Source, columns: Collection[str], comparisons: tuple[type[ast.cmpop], ...]
) -> Iterator[Mutant]:
    short = _names_of_columns(source)
    for node in source.nodes(ast.Compare, ast.Call):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators] if isinstance(node.ops[0], comparisons) else []
        else:
            function = getattr(node, "func", None)
            is_method = isinstance(function, ast.Attribute) and function.attr in ("in_", "is_")
            compared = [function.value] if is_method else []
        if any(_column(side, short) in columns for side in compared):
            yield source.mutant(group, node, "sa.true()")


def _names_of_columns(source: Source) -> frozenset[str]:
    """What the columns of a table are called for short: `columns = table.c`."""
    return frozenset(
        target.id
        for node in source.nodes(ast.Assign)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "c"
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _column(node: ast.expr, short: frozenset[str]) -> str | None:
    """The name of a column: `TABLE.c.name`, `columns.name`, or either inside `unindexed(…)`."""
    if isinstance(node, ast.Call) and called(node) == "unindexed":
        return _column(node.args[0], short)
    if isinstance(node, ast.Attribute):
        table = node.value
        if isinstance(table, ast.Attribute) and table.attr == "c":
            return node.attr
        if isinstance(table, ast.Name) and table.id in short:
            return node.attr
    return None
