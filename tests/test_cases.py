"""Every case is held by a test wherever it means anything, or says why not."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import CASES, REPORT, Case, Covering, faults, read_cases, read_report

CHECKOUT = Path(__file__).parent.parent


def test_every_case_is_held_wherever_it_means_anything_or_says_why_not(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    # Everything that is there, the slow ones too, whatever this run was asked for.
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-n0", "-m", ""]
    done = subprocess.run(
        [*command, "-p", "tests.cases", "tests"],
        cwd=CHECKOUT,
        env={**os.environ, REPORT: str(report), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    tests = read_report(report.read_text(encoding="utf-8"))
    assert faults(read_cases(CASES.read_text(encoding="utf-8")), tests) == []


ONE = Case(id=1, group="Names", sentence="A name is a name.", needs=("sqlite", "postgresql"))
TWO = Case(id=2, group="Names", sentence="Another is another.", needs=("anywhere",))
HELD = [
    Covering("test_one", (1,), frozenset({"anywhere", "sqlite"})),
    Covering("test_other", (1, 2), frozenset({"anywhere", "postgresql"})),
]
REASON = "There is no such thing before another thing."


def test_cases_that_are_held_together_by_several_tests_are_no_fault() -> None:
    assert faults([ONE, TWO], HELD) == []
    excused = replace(ONE, reasons={"postgresql": REASON})
    assert faults([excused, TWO], [HELD[0], replace(HELD[1], cases=(2,))]) == []
    assert faults([replace(ONE, reasons={"all": REASON}), TWO], [replace(HELD[1], cases=(2,))]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: ([ONE, TWO], HELD[:1]), ["Case 1 is not held on postgresql", "Case 2 is not held on anywhere"]),
        (lambda: ([ONE, TWO], [*HELD, Covering("test_x", (7,), frozenset())]), ["test_x names case 7"]),
        (lambda: ([ONE, replace(TWO, id=3)], HELD), ["not numbered", "names case 2", "Case 3 is not held"]),
        (lambda: ([replace(ONE, reasons={"sqlite": REASON}), TWO], HELD), ["Case 1 has a reason not to be held on s"]),
        (
            lambda: ([replace(ONE, reasons={"all": REASON}), TWO], HELD),
            ["Case 1 has a reason not to be held on p", "Case 1 has a reason not to be held on s"],
        ),
        (lambda: ([replace(ONE, reasons={"memory": REASON}), TWO], HELD), ["for a place that it does not", "memory"]),
        (lambda: ([ONE, replace(TWO, reasons={"anywhere": "later"})], HELD[:1]), ["reason that is none", "postgresql"]),
        (lambda: ([ONE, replace(TWO, needs=("mars",))], HELD), ["places that are none", "mars"]),
        (lambda: ([ONE, replace(TWO, needs=())], HELD), ["places that are none"]),
        (lambda: ([ONE, replace(TWO, sentence=" ")], HELD), ["does not say what it is"]),
    ],
)
def test_what_does_not_fit_is_said(change: Callable[[], tuple[list[Case], list[Covering]]], said: list[str]) -> None:
    found = faults(*change())
    assert len(found) == len(said)
    assert all(expected in sentence for expected, sentence in zip(said, found, strict=True)), found
