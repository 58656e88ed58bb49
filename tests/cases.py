"""
The cases: inputs that broke systems like this one, and which tests hold what becomes of them.

`tests/cases.toml` says of each case on which stores and databases it has to be held; a test names its cases by
`@pytest.mark.case(number, …)`. As a plugin of pytest this module writes down which items name which cases, and where
each item runs.
"""

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

CASES: Final = Path(__file__).parent / "cases.toml"
#: Where the plugin leaves what it found.
REPORT: Final = "CASES_REPORT"

#: Every place a case can have to be held. A result is stored in files or stands inline in the catalogue's database;
#: `memory`, `filesystem` and `database` are the stores; what has no store and no database is held anywhere.
PLACES: Final = ("anywhere", "sqlite", "postgresql", "stored", "inline", "memory", "filesystem", "database")

_BY_FIXTURE: Final[Mapping[str, tuple[str, ...]]] = {
    "sqlite_url": ("sqlite",),
    "empty_sqlite_url": ("sqlite",),
    "upgraded_file": ("sqlite",),
    "postgres": ("postgresql",),
    "postgres_url": ("postgresql",),
    "empty_postgres_url": ("postgresql",),
    "core_postgres_url": ("postgresql",),
    # Data directories.
    "local": ("sqlite", "filesystem", "inline"),
    "made": ("sqlite", "filesystem", "inline"),
    "filled": ("sqlite", "filesystem", "inline"),
}
_BY_PARAMETER: Final[Mapping[tuple[str, object], tuple[str, ...]]] = {
    ("database_kind", "sqlite"): ("sqlite",),
    ("database_kind", "postgresql"): ("postgresql",),
    # Results that are not inline are files: the store of these managers.
    ("inline_bytes", "stored"): ("stored", "filesystem"),
    ("inline_bytes", "inline"): ("inline", "database"),
    ("backend", "filesystem"): ("sqlite", "stored", "filesystem"),
    ("backend", "sqlite"): ("sqlite", "inline", "database"),
    ("backend", "postgresql"): ("postgresql", "inline", "database"),
}
#: What runs in one place whatever it is called with.
_BY_FILE: Final[Mapping[str, tuple[str, ...]]] = {
    "tests/stores/test_memory.py": ("memory",),
    "tests/stores/test_database.py": ("database",),
    "tests/stores/test_attacks.py": ("filesystem",),
    "tests/stores/test_descriptors.py": ("filesystem",),
    "tests/stores/test_faults.py": ("filesystem",),
    "tests/stores/test_filesystem.py": ("filesystem",),
    "tests/stores/test_names.py": ("filesystem",),
    "tests/stores/test_planted.py": ("filesystem",),
    "tests/stores/test_roots.py": ("filesystem",),
    "tests/stores/test_swaps.py": ("filesystem",),
    "tests/stores/test_trash.py": ("filesystem",),
    "tests/attacks/": ("filesystem",),
    "tests/faults/test_sweep.py": ("sqlite", "filesystem", "stored", "inline"),
    "tests/power_loss/test_power_loss.py": ("sqlite", "filesystem", "inline"),
    "tests/full_disk/": ("sqlite", "filesystem", "inline"),
    # A data directory: SQLite, files, and small results inline.
    "tests/core/test_local.py": ("sqlite", "filesystem", "inline"),
    "tests/core/test_lost_catalogue.py": ("sqlite", "filesystem", "inline"),
    # Results too large to stand inline, on either database.
    "tests/core/test_unknown_files.py": ("filesystem",),
}


@dataclass(frozen=True)
class Case:
    """
    One case.

    :param needs: Where it has to be held.
    :param reasons: Why it is not held in some of these places. The key `"all"` stands for each of them.
    """

    id: int
    group: str
    sentence: str
    needs: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def excused(self) -> set[str]:
        """Where it need not be held."""
        return set(self.needs) if "all" in self.reasons else set(self.reasons)


@dataclass(frozen=True)
class Covering:
    """A test that names cases, and where it runs."""

    test: str
    cases: tuple[int, ...]
    places: frozenset[str]


def read_cases(text: str) -> list[Case]:
    """Read the table of cases."""
    return [Case(**{**entry, "needs": tuple(entry["needs"])}) for entry in tomllib.loads(text)["case"]]


def faults(cases: Iterable[Case], tests: Iterable[Covering]) -> list[str]:
    """Say what is wrong between the table and the tests, a sentence each."""
    table, tests = list(cases), list(tests)
    found = _faults_of_table(table)
    known = {case.id for case in table}
    held: dict[int, set[str]] = {}
    for test in tests:
        for number in test.cases:
            if number not in known:
                found.append(f"{test.test} names case {number}, which is not in the table.")
            held.setdefault(number, set()).update(test.places)
    for case in table:
        missing = set(case.needs) - held.get(case.id, set())
        for place in sorted(missing - case.excused):
            found.append(f"Case {case.id} is not held on {place}, and nothing says why: {case.sentence}")
        for place in sorted(case.excused - missing):
            found.append(f"Case {case.id} has a reason not to be held on {place}, and it is held there.")
    return found


def _faults_of_table(cases: list[Case]) -> list[str]:
    found = []
    if [case.id for case in cases] != list(range(1, len(cases) + 1)):
        found.append("The cases are not numbered from 1 on, one after the other.")
    for case in cases:
        if not case.sentence.strip() or not case.group.strip():
            found.append(f"Case {case.id} does not say what it is.")
        if not case.needs or not set(case.needs) <= set(PLACES):
            found.append(f"Case {case.id} needs places that are none.")
        if not set(case.reasons) <= {"all", *case.needs}:
            found.append(f"Case {case.id} has a reason for a place that it does not need.")
        if any(len(reason.split()) < 5 for reason in case.reasons.values()):
            found.append(f"Case {case.id} has a reason that is none.")
    return found


def places_of(item: pytest.Item) -> frozenset[str]:
    """Say where an item runs, by its file, its parameters and the fixtures it asks for."""
    found = {"anywhere"}
    for beginning, places in _BY_FILE.items():
        if item.nodeid.startswith(beginning):
            found.update(places)
    chosen: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    for parameter, value in chosen.items():
        if parameter == "place":
            # Of the state machine: a store, a database, and which way results take.
            found.update(_of_place(*value))
        elif isinstance(value, str):
            found.update(_BY_PARAMETER.get((parameter, value), ()))
    if "database_kind" not in chosen:
        for name in getattr(item, "fixturenames", ()):
            found.update(_BY_FIXTURE.get(name, ()))
    return frozenset(found)


def _of_place(store: str, database: str, way: str) -> set[str]:
    if store == "database":
        return {"database", database, "inline"}
    ways = {"inline"} if way == "inline" else {"stored"}
    return {"filesystem", database, *ways} if store == "file" else {"memory"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the report, before anything is deselected."""
    report = os.environ.get(REPORT)
    if report:
        found = [
            {"test": item.nodeid, "cases": numbers, "places": sorted(places_of(item))}
            for item in items
            if (numbers := [number for mark in item.iter_markers("case") for number in mark.args])
        ]
        Path(report).write_text(json.dumps(found), encoding="utf-8")


def read_report(text: str) -> list[Covering]:
    """Read what the plugin left."""
    return [Covering(entry["test"], tuple(entry["cases"]), frozenset(entry["places"])) for entry in json.loads(text)]
