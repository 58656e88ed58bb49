"""Mutants of the stores: flags of system calls, and what a file must be before a byte of it is used."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.mutations.operators import called
from tests.mutations.sources import Mutant, Source, sources_in

_FLAGS: Final = ("O_NOFOLLOW", "O_EXCL", "O_NONBLOCK", "O_DIRECTORY")
_KINDS: Final = ("S_ISREG", "S_ISDIR")


def file_checks() -> Iterator[Mutant]:
    """Every `O_NOFOLLOW` and its like, every look at the kind, links, owner, mode and size of a file."""
    for source in sources_in("stores/*.py"):
        yield from _flags(source)
        yield from _links_followed(source)
        yield from _kinds(source)
        yield from _statuses(source)


def _flags(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.Constant, ast.Attribute):
        if isinstance(node, ast.Constant) and node.value in _FLAGS and isinstance(source.parent(node), ast.Call):
            yield source.mutant("files", node, '"O_RDONLY"')
        elif isinstance(node, ast.Attribute) and node.attr in _FLAGS:
            yield source.mutant("files", node, "0")


def _links_followed(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.keyword):
        if isinstance(node, ast.keyword) and node.arg == "follow_symlinks":
            yield source.mutant("files", node, "follow_symlinks=True")


def _kinds(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.Call):
        if isinstance(node, ast.Call) and called(node) in _KINDS:
            yield source.mutant("files", node, "True")


def _statuses(source: Source) -> Iterator[Mutant]:
    """Comparisons with a field of `stat`: what would be refused passes, what would be put right stays."""
    for node in source.nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        if any(_is_status(part) for part in ast.walk(node)):
            condition = next((around for around in source.parents(node) if isinstance(around, ast.If)), None)
            refuses = condition is not None and isinstance(condition.body[-1], ast.Raise)
            same = isinstance(node.ops[0], ast.Eq) and not refuses
            yield source.mutant("files", node, str(same))


def _is_status(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and (node.attr.startswith("st_") or node.attr == "S_IMODE")
