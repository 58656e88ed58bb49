"""Says what became of everything that was tried."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tests.power_loss.tasks import Result

_COLUMNS = ("operations", "moments", "states", "distinct", "recovered", "refused", "broken")


def lines(results: Sequence[Result]) -> list[str]:
    """Return a table, and below it every fault."""
    real = [result for result in results if not result.task.naive]
    naive = [result for result in results if result.task.naive]
    found = _table("operation (durability)", real) if real else []
    if naive:
        found += ["", *_table("operation (naive order), must be broken", naive)]
    for result in results:
        if not result.is_good:
            found += ["", f"{result.task}:", *(_faults(result) or ["  nothing is broken, and it should be"])]
    bad = sum(not result.is_good for result in results)
    total = sum(result.outcome.states for result in real)
    return [
        *found,
        "",
        f"{total} states of {len(real)} operations, {bad} of {len(results)} lines not as they should be.",
    ]


def as_json(results: Sequence[Result]) -> str:
    """Return all of it for a program."""
    return json.dumps([_plain(result) for result in results], indent=2)


def _plain(result: Result) -> dict[str, Any]:
    # Not `asdict`: before Python 3.12 it makes pairs of what a Counter counts.
    parts = {field.name: getattr(part, field.name) for part in (result.task, result.outcome) for field in fields(part)}
    return {**parts, "is_good": result.is_good}


def _table(title: str, results: Sequence[Result]) -> list[str]:
    width = max(len(title), *(len(str(result.task)) for result in results))
    head = title.ljust(width) + "".join(column.rjust(12) for column in _COLUMNS)
    rows = [
        str(result.task).ljust(width) + "".join(f"{getattr(result.outcome, column):12}" for column in _COLUMNS)
        for result in results
    ]
    return [head, "-" * len(head), *rows]


def _faults(result: Result) -> list[str]:
    return [f"{count:8} x {fault}" for fault, count in result.outcome.faults.most_common()]
