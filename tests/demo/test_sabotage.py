"""Each check of the demo fails when its subject is broken. A check that cannot fail would say nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from tenancy.demo.checks import CHECKS
from tests.demo.sabotages import SABOTAGES, Sabotage

#: What a sabotage of ours raises when it is the one that is broken.
_OWN_FAULTS = ("TypeError", "AttributeError", "NameError", "KeyError", "IndexError", "AssertionError")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "also", "sabotage"), [pytest.param(*each, id=each[-1].__name__) for each in SABOTAGES]
)
def test_a_check_notices_what_breaks_its_subject(
    check: str,
    also: frozenset[str],
    sabotage: Sabotage,
    judged: Callable[[], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sabotage(monkeypatch)
    report = judged()
    assert (report["checks"][check], report["ok"], report["code"]) == (False, False, 1)
    assert {name for name, held in report["checks"].items() if not held} == {check, *also}
    assert [note for note in report["notes"] if note.endswith(_OWN_FAULTS)] == []


def test_every_check_has_its_sabotage() -> None:
    assert {check for check, _, _ in SABOTAGES} == set(CHECKS)
