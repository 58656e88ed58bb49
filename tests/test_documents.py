"""What the documents say of the code is so."""

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def named(document: str) -> list[tuple[str, str]]:
    """Each file of tests a document names, with the test in it or none."""
    return _NAMED.findall((CHECKOUT / document).read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", ["docs/security.md"])
def test_every_test_a_document_names_is_there(document: str) -> None:
    missing = []
    for path, test in named(document):
        file = CHECKOUT / path
        tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if not file.is_file() or (test and test not in defined):
            missing.append(f"{path}::{test}")
    assert missing == []
    assert len(named(document)) > 30
