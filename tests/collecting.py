"""A pytest plugin that writes down, for every test there is, which cases it covers and on what; and runs none."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest

#: Where the list goes.
VARIABLE: Final = "TENANCY_COLLECTED"
_WORDS: Final = ("memory", "filesystem", "sqlite", "postgresql", "stored", "inline")
#: What a test asks for that says where it runs, unless its parameters do.
_FIXTURES: Final = {"postgres_url": "postgresql", "empty_postgres_url": "postgresql", "sqlite_url": "sqlite"}


def words_of(item: Any) -> list[str]:
    """On what a test runs: by its parameters, its class, the fixtures it asks for, and its room."""
    path, _, parameters = item.nodeid.partition("[")
    found = {word for word in re.split(r"[^a-z]+", parameters) if word in _WORDS}
    of_class = item.cls.__name__.lower() if item.cls is not None else ""
    found |= {word for word in _WORDS[:3] if word in of_class} | ({"postgresql"} if "postgres" in of_class else set())
    if not found & {"sqlite", "postgresql"}:
        found |= {word for fixture, word in _FIXTURES.items() if fixture in item.fixturenames}
    if "stored" in found or (path.startswith(("tests/stores/", "tests/attacks/")) and not found & set(_WORDS)):
        found.add("filesystem")
    return sorted(found)


def pytest_collection_finish(session: pytest.Session) -> None:
    found = [
        {
            "test": item.nodeid,
            "cases": [number for mark in item.iter_markers("case") for number in mark.args],
            "words": words_of(item),
        }
        for item in session.items
    ]
    Path(os.environ[VARIABLE]).write_text(json.dumps(found), encoding="utf-8")
