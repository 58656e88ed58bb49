"""Mutants of what sealed messages and wrapped keys are bound to: each field dropped, or the same for everybody."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.mutations.operators import called, elements, refusals
from tests.mutations.sources import Mutant, Source, sources_in

#: Functions that write down a context, or hand on what belongs to one.
_WRITERS: Final = ("bound_context", "_context")
_CARRIERS: Final = ("_tenant_context", "_session_context", "Binding", "WrappedKey")
_OPENERS: Final = ("session_key", "new_session_key", "new_tenant_key")
_CIPHERS: Final = ("Cobblestone256Encryptor", "Cobblestone256Decryptor", "derive_message_key")
_PLACES: Final = (
    "tenancy/sealing/*.py",
    "tenancy/keys/*.py",
    "tenancy/backend.py",
    "tenancy/opening.py",
    "tenancy/writing.py",
    "tenancy/reading.py",
    "tenancy/verify.py",
    "tenancy/references.py",
    "tenancy/startup.py",
)


def bound_contexts() -> Iterator[Mutant]:
    """Every field of a bound context, where it is written and where it is handed on."""
    for source in sources_in(*_PLACES):
        yield from _fields(source)
        yield from _handed_on(source)
        yield from _sums(source)
        yield from _cached(source)
        yield from _hashed(source)
        if source.path in ("tenancy/sealing/columns.py", "tenancy/sealing/context.py", "tenancy/keys/keyring.py"):
            yield from refusals("contexts", source)
        yield from _reference_checked(source)


def _fields(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.Call, ast.Assign, ast.AugAssign):
        if isinstance(node, ast.Call) and called(node) in (*_WRITERS, *_CARRIERS):
            fields = [field for field in node.args if not isinstance(field, ast.Starred)]
            for field in fields:
                yield from _same_for_all(source, field)
            if called(node) in _WRITERS and len(node.args) > 1:
                yield from elements("contexts", source, node)
        elif isinstance(node, ast.Assign) and source.owner_of(node).endswith("_columns.numbers"):
            # The fields that stand in clear.
            yield from elements("contexts", source, node.value)
            for field in getattr(node.value, "elts", []):
                yield from _same_for_all(source, field)
        elif isinstance(node, ast.AugAssign) and source.path.endswith("context.py") and "pack" in ast.dump(node):
            # The length in front of a value, and the value.
            yield from elements("contexts", source, node.value)


def _same_for_all(source: Source, field: ast.expr) -> Iterator[Mutant]:
    text = source.source_of(field)
    if isinstance(field, ast.Constant) and isinstance(field.value, str):
        yield source.mutant("contexts", field, '"haystack-tenancy"')
    elif text.isupper() or text.startswith("*"):
        return
    elif re.search(r"(_id|id)$", text):
        yield source.mutant("contexts", field, f'"{"a" * 32}"')
    elif re.search(r"header|wrapped|data", text):
        yield source.mutant("contexts", field, 'b""')
    else:
        yield source.mutant("contexts", field, "0")


def _handed_on(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.Call):
        assert isinstance(node, ast.Call)
        if called(node) in _OPENERS:
            for given in node.keywords:
                if (given.arg or "").endswith("_id"):
                    yield source.mutant("contexts", given.value, f'"{"a" * 32}"')
        elif called(node) in _CIPHERS:
            for field in [*node.args, *(given.value for given in node.keywords)]:
                if source.source_of(field) == "context":
                    yield source.mutant("contexts", field, 'b""')


def _sums(source: Source) -> Iterator[Mutant]:
    """Contexts that are put together with `+`."""
    for node in source.nodes(ast.BinOp):
        assert isinstance(node, ast.BinOp)
        if source.owner_of(node).endswith("_context") and isinstance(node.op, ast.Add):
            for side in (node.left, node.right):
                if not isinstance(side, ast.BinOp):
                    yield source.mutant("contexts", side, 'b""')


def _cached(source: Source) -> Iterator[Mutant]:
    """What a key is kept under: an opened key is answered for the very context it was opened with."""
    for node in source.nodes(ast.Tuple):
        assert isinstance(node, ast.Tuple)
        around = source.parent(node)
        is_identity = source.owner_of(node).endswith(".identity")
        if is_identity or (isinstance(around, ast.Call) and "_cache" in source.source_of(around.func)):
            yield from elements("contexts", source, node)


def _hashed(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.JoinedStr):
        text = source.source_of(node)
        if source.owner_of(node).startswith("reference_hash"):
            for found in re.finditer(r"\{\w+\}", text):
                yield source.mutant("contexts", node, text[: found.start()] + text[found.end() :])


def _reference_checked(source: Source) -> Iterator[Mutant]:
    for node in source.nodes(ast.Expr):
        call = getattr(node, "value", None)
        if isinstance(call, ast.Call) and called(call) == "_require_reference":
            yield source.mutant("contexts", node, "pass")
