"""Mutants of the binding of a run to its session."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.mutations.operators import called, elements, refusals, steps
from tests.mutations.sources import Mutant, Source, sources_in

_BINDING: Final = ("tenancy/seam/binding.py", "tenancy/seam/tool_binding.py")


def bindings() -> Iterator[Mutant]:
    """Every refusal of the routed store, of a handle and of a foreign session; every binding; every forged argument."""
    for source in sources_in(*_BINDING):
        yield from refusals("seam", source, returns=True)
        yield from steps("seam", source)
        yield from _sets(source)
    for source in sources_in("tenancy/seam/*.py", "tenancy/session.py"):
        yield from _unbound(source)
        yield from _unrecognised(source)
    for source in sources_in("tenancy/seam/hooks.py"):
        yield from (mutant for mutant in steps("seam", source) if mutant.owner.startswith("SessionBindingHook"))


def _sets(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.Set):
        assert isinstance(node, ast.Set)
        yield from elements("seam", source, node)
    for node in source.nodes(ast.DictComp):
        # Arguments that are dropped, and those that the developer's choice replaces.
        assert isinstance(node, ast.DictComp)
        for condition in node.generators[0].ifs:
            yield source.mutant("seam", condition, "True")
    for node in source.nodes(ast.BinOp):
        assert isinstance(node, ast.BinOp)
        if isinstance(node.op, ast.BitOr) and isinstance(source.parent(node), ast.Return):
            yield source.mutant("seam", node, source.source_of(node.left))


def _unbound(source: Source) -> Iterator[Mutant]:
    """Bind nothing where something is bound, and let a run keep what it inherits."""
    for node in source.nodes(ast.With, ast.Call):
        if isinstance(node, ast.With):
            entered = node.items[0].context_expr
            if isinstance(entered, ast.Call) and called(entered) == "bound":
                yield source.mutant("seam", node, "if True", span=(source.span(node)[0], source.span(entered)[1]))
        elif isinstance(node, ast.Call) and source.source_of(node.func) == "unbound_context().run":
            arguments = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
            first, last = source.span(node)[0], source.span(node.args[0])[0]
            if arguments:
                yield source.mutant("seam", node, "(lambda call, **given: call(**given))(", span=(first, last))


def _unrecognised(source: Source) -> Iterator[Mutant]:
    """Read tools that are taken for anybody's, and anybody's that are taken for ours."""
    for node in source.nodes(ast.Call):
        if isinstance(node, ast.Call) and called(node) == "isinstance" and source.source_of(node.args[1]) == "ReadTool":
            yield source.mutant("seam", node, "False")
            tool = source.source_of(node.args[0])
            yield source.mutant("seam", node, f'getattr({tool}, "name", "").endswith("read_result")')
