"""Mutants of PostgreSQL's second wall: its policies, the settings they read, and the refusal to start without it."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.mutations.operators import called, conditions, refusals
from tests.mutations.sources import Mutant, Source, sources_in

_GROUP: Final = "policies"
#: Where the wall is built: the revision, and the description that the revision is compared with.
_BUILDERS: Final = ("migrations/versions/0002_*.py", "tenancy/schema.py")
#: Where a transaction names whom it works for.
_NAMING: Final = ("stores/sql.py", "stores/transactions.py", "stores/database.py", "tenancy/catalogue/*.py")
_CHECKING: Final = ("tenancy/catalogue/row_security.py", "tenancy/catalogue/access.py")


def policies() -> Iterator[Mutant]:
    """Every policy, every FORCE, every setting of a tenant, every question that is asked of a role at a start."""
    for source in sources_in(*_BUILDERS):
        yield from _walls(source)
    for source in sources_in(*_NAMING):
        yield from _named(source)
    for source in sources_in(*_CHECKING):
        yield from refusals(_GROUP, source, returns=True)
    for source in sources_in("tenancy/startup.py"):
        yield from (
            mutant for mutant in refusals(_GROUP, source, returns=True) if mutant.owner.startswith("require_roles")
        )
        yield from _left_out(source, ("require_roles",))
    for source in sources_in("tenancy/roles.py", "tenancy/catalogue/row_security.py"):
        yield from _sealed(source)


def _walls(source: Source) -> Iterator[Mutant]:
    """Loosen each part of the statements that build the wall."""
    for node in source.nodes(ast.JoinedStr, ast.Constant):
        if not isinstance(node, ast.JoinedStr) and not isinstance(getattr(node, "value", None), str):
            continue
        if isinstance(source.parent(node), ast.JoinedStr | ast.FormattedValue) or source.owner_of(node) == "downgrade":
            continue
        text = source.source_of(node)
        for taken, given in (
            ("USING (", "USING (true OR "),
            ("WITH CHECK (", "WITH CHECK (true OR "),
            ("ENABLE ROW", "DISABLE ROW"),
            (" FORCE ROW", " NO FORCE ROW"),
            ("NULLIF(current_setting('{}', true), '')", "current_setting('{}', true)"),
            ("NULLIF(current_setting('{setting}', true), '')", "current_setting('{setting}', true)"),
            (" OR ", " OR true OR "),
        ):
            if taken in text and "\n" not in text:
                yield source.mutant(_GROUP, node, text.replace(taken, given))
    # One table whose policy lets everything through.
    yield from _entries(source, "_CONDITIONS", '"true"')


def _named(source: Source) -> Iterator[Mutant]:
    """Name nobody, or name somebody for longer than the transaction lasts."""
    yield from _entries(source, "_of_tenant", '""')
    for node in source.nodes(ast.Expr, ast.keyword, ast.JoinedStr):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if called(node.value) in ("set_local", "enter", "_require_unhidden", "require_across"):
                yield source.mutant(_GROUP, node, "pass")
        elif isinstance(node, ast.keyword) and node.arg == "local" and not isinstance(node.value, ast.Name):
            yield source.mutant(_GROUP, node, "local=None")
        elif isinstance(node, ast.JoinedStr) and "set_config" in source.source_of(node):
            text = source.source_of(node)
            if ", true)" in text:
                yield source.mutant(_GROUP, node, text.replace(", true)", ", false)"))


def _left_out(source: Source, names: tuple[str, ...]) -> Iterator[Mutant]:
    for node in source.nodes(ast.Expr):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) in names:
            yield source.mutant(_GROUP, node, "pass")


def _sealed(source: Source) -> Iterator[Mutant]:
    """Let the maintenance role read what is sealed, and do not ask whether it can."""
    yield from _entries(source, "SEALED_COLUMNS", "()")
    for node in source.nodes(ast.ListComp):
        if isinstance(node, ast.ListComp) and source.owner_of(node) == "_readable":
            yield from (source.mutant(_GROUP, condition, "True") for condition in node.generators[0].ifs)
    for node in source.nodes(ast.IfExp):
        assert isinstance(node, ast.IfExp)
        if source.path.endswith("row_security.py"):
            yield source.mutant(_GROUP, node.test, "False")
            yield from conditions(_GROUP, source, node.test)


def _entries(source: Source, owner: str, given: str) -> Iterator[Mutant]:
    """Each value of a dictionary, told by its key."""
    for node in source.nodes(ast.Dict):
        if isinstance(node, ast.Dict) and source.owner_of(node) == owner:
            for key, value in zip(node.keys, node.values, strict=True):
                assert key is not None
                span = (source.span(key)[0], source.span(value)[1])
                yield source.mutant(_GROUP, value, f"{source.source_of(key)}: {given}", span=span)
