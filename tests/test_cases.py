"""Each case of `cases.toml` has a test on everything it is about, or a reason."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.collecting import VARIABLE

CHECKOUT = Path(__file__).parent.parent
#: What `where` asks for: tests that between them run on each of these.
PLACES: dict[str, list[set[str]]] = {
    "anywhere": [set()],
    "filesystem": [{"filesystem"}],
    "sqlite": [{"sqlite"}],
    "postgresql": [{"postgresql"}],
    "databases": [{"sqlite"}, {"postgresql"}],
    "stores": [{"memory"}, {"filesystem"}, {"sqlite"}, {"postgresql"}],
    "managers": [{database, way} for database in ("sqlite", "postgresql") for way in ("stored", "inline")],
}


@dataclass(frozen=True)
class Case:
    """One case, as `cases.toml` has it."""

    number: int
    says: str
    where: str
    reason: str | None


def read_cases(text: str) -> list[Case]:
    groups = tomllib.loads(text)["group"]
    return [
        Case(int(number), entry.pop("says"), entry.pop("where"), entry.pop("reason", None), *entry.values())
        for group in groups.values()
        for number, entry in group.items()
    ]


def complaints(cases: list[Case], tests: list[dict[str, Any]]) -> Iterator[str]:
    """What is wrong between the two."""
    known = {case.number: case for case in cases}
    covered: dict[int, list[set[str]]] = {number: [] for number in known}
    for test in tests:
        for number in test["cases"]:
            if number not in known:
                yield f"{test['test']} covers case {number}, which there is not"
            else:
                covered[number].append(set(test["words"]))
    for case in cases:
        missing = [place for place in PLACES[case.where] if not any(place <= words for words in covered[case.number])]
        if case.reason is None and missing:
            lacking = ", ".join("-".join(sorted(place, reverse=True)) or "anything" for place in missing)
            yield f"case {case.number} has no test on {lacking}"
        elif case.reason is not None and not missing:
            yield f"case {case.number} has a reason why it is not tested, and is tested"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return read_cases((CHECKOUT / "tests" / "cases.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every test there is, the slow ones too, whichever of them this run is about."""
    found = tmp_path_factory.mktemp("collected") / "tests.json"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "tests.collecting", "tests"],
        cwd=CHECKOUT,
        env={**os.environ, VARIABLE: str(found), "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    collected: list[dict[str, Any]] = json.loads(found.read_text(encoding="utf-8"))
    return collected


def test_every_case_has_a_test_on_all_it_is_about_or_a_reason(cases: list[Case], tests: list[dict[str, Any]]) -> None:
    assert list(complaints(cases, tests)) == []
    assert len(tests) > 4_000


def test_the_cases_are_numbered_without_a_gap_and_each_says_something(cases: list[Case]) -> None:
    assert [case.number for case in cases] == list(range(1, 143))
    assert len({case.says for case in cases}) == len(cases)
    assert all(case.reason is None or len(case.reason) > 20 for case in cases)


ON_SQLITE = {"test": "a", "cases": [1], "words": ["sqlite", "stored"]}
INLINE = {"test": "b", "cases": [1], "words": ["inline", "sqlite"]}
ELSEWHERE = [{"test": "c", "cases": [1], "words": ["postgresql", way]} for way in ("stored", "inline")]


@pytest.mark.parametrize(
    ("reason", "tests", "said"),
    [
        (None, [ON_SQLITE, INLINE, *ELSEWHERE], []),
        (None, [ON_SQLITE, INLINE, ELSEWHERE[0]], ["case 1 has no test on postgresql-inline"]),
        (None, [], ["case 1 has no test on stored-sqlite, sqlite-inline, stored-postgresql, postgresql-inline"]),
        ("because", [ON_SQLITE], []),
        ("because", [ON_SQLITE, INLINE, *ELSEWHERE], ["case 1 has a reason why it is not tested, and is tested"]),
        ("because", [{**ON_SQLITE, "cases": [2]}], ["a covers case 2, which there is not"]),
    ],
)
def test_what_is_missing_or_too_much_is_told(reason: str | None, tests: list[dict[str, Any]], said: list[str]) -> None:
    assert list(complaints([Case(1, "It.", "managers", reason)], tests)) == said
