"""Ways to weaken a piece of code that make sense in more than one file."""

import ast
import re
from collections.abc import Collection, Iterator

from tests.mutations.sources import Mutant, Source


def refusals(group: str, source: Source, *, returns: bool = False) -> Iterator[Mutant]:
    """
    Have each refusal not happen: an `if` that raises, as a whole and each part of its condition.

    :param returns: Also an `if` that returns: where a refusal is an answer.
    """
    kinds = (ast.Raise, ast.Return) if returns else (ast.Raise,)
    for node in source.nodes(ast.If):
        assert isinstance(node, ast.If)
        if isinstance(node.body[-1], kinds):
            yield source.mutant(group, node.test, "False")
            yield from conditions(group, source, node.test)


def conditions(group: str, source: Source, test: ast.expr) -> Iterator[Mutant]:
    """Have each part of a condition that is joined by `and` or `or` say nothing."""
    if isinstance(test, ast.UnaryOp):
        yield from conditions(group, source, test.operand)
    elif isinstance(test, ast.BoolOp):
        neutral = "True" if isinstance(test.op, ast.And) else "False"
        for part in test.values:
            yield source.mutant(group, part, neutral)
            yield from conditions(group, source, part)


def steps(group: str, source: Source) -> Iterator[Mutant]:
    """Leave each step out that is done for what it does: a call, a deletion, an attribute that is set."""
    for node in source.nodes(ast.Expr, ast.Assign, ast.Delete):
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
            continue
        if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            continue
        if _sets_up(source, node):
            continue
        yield source.mutant(group, node, "pass")


def _sets_up(source: Source, node: ast.AST) -> bool:
    return source.owner_of(node).split(".")[-1] == "__init__" or "__init__." in source.owner_of(node)


def calls_left_out(group: str, source: Source, names: Collection[str]) -> Iterator[Mutant]:
    """Leave out each call of a checking function; what it was to check stands in its place."""
    for node in source.nodes(ast.Call):
        assert isinstance(node, ast.Call)
        if called(node) not in names:
            continue
        if isinstance(source.parent(node), ast.Expr):
            yield source.mutant(group, node, "None")
        else:
            yield source.mutant(group, node, source.source_of(node.args[0]))


def elements(group: str, source: Source, collection: ast.expr) -> Iterator[Mutant]:
    """Drop each element of a set, tuple, list or call, with its comma. The last one stays."""
    parts = collection.args if isinstance(collection, ast.Call) else getattr(collection, "elts", [])
    if len(parts) == 2 and isinstance(collection, ast.Tuple):
        # What is left must stay a tuple.
        for part, other in (parts, reversed(parts)):
            yield source.mutant(group, part, f"({source.source_of(other)},)", span=source.span(collection))
        return
    for index, part in enumerate(parts if len(parts) > 1 else []):
        if index + 1 < len(parts):
            span = (source.span(part)[0], source.span(parts[index + 1])[0])
        else:
            span = (source.span(parts[index - 1])[1], source.span(part)[1])
        yield source.mutant(group, part, "", span=span)


def patterns(group: str, source: Source) -> Iterator[Mutant]:
    r"""Loosen each regular expression that ends in `\Z`: its end, its characters, its length, its case."""
    for node in source.nodes(ast.Call):
        if not (isinstance(node, ast.Call) and called(node) == "compile" and node.args):
            continue
        text = source.source_of(node.args[0])
        if not text.endswith(r"\Z" + text[-1]):
            continue
        for weaker in _weaker(text):
            yield source.mutant(group, node.args[0], weaker)
        yield source.mutant(group, node, f"{source.source_of(node)[:-1]}, re.IGNORECASE)")


def _weaker(text: str) -> Iterator[str]:
    yield text.replace(r"\Z", "$")
    yield text.replace(r"\Z", "")
    for found in re.finditer(r"\[[^\]]+\]", text):
        for wider in (r"[^\n]", r"\w"):
            yield text[: found.start()] + wider + text[found.end() :]
    for found in re.finditer(r"\{(\d+)(?:,(\d+))?\}", text):
        least, most = int(found[1]), int(found[2] or found[1])
        for count in (f"{{{least},}}", f"{{{max(least - 1, 0)},{most}}}", f"{{{least},{most + 1}}}"):
            yield text[: found.start()] + count + text[found.end() :]


def called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
