"""What a sweep of faults says: while it runs, at its end, and as JSON."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from tests.faults.injector import MODES
from tests.faults.kills.killing import Killed
from tests.faults.sweep import Result

#: A line for so many trials.
_LINES_EVERY = 500
_COLUMNS = "{:<24}{:>8}{:>9}{:>9}{:>9}{:>9}"


@dataclass(frozen=True, slots=True)
class Row:
    """
    One operation, results going one way, and one kind of fault.

    :param struck: How many different calls were struck.
    :param trials: How many trials there were. In some the operation was over before its call came.
    :param refused: In how many the operation raised or died; in the others it returned nevertheless.
    :param broken: After how many an invariant did not hold.
    """

    operation: str
    way: str
    mode: str
    struck: int
    trials: int
    refused: int
    broken: int


def rows(results: Sequence[Result]) -> list[Row]:
    """Count the trials."""
    found = []
    names = dict.fromkeys((result.operation, result.way) for result in results)
    for (operation, way), mode in itertools.product(names, MODES):
        some = [
            result for result in results if (result.operation, result.way, result.shot.mode) == (operation, way, mode)
        ]
        if some:
            struck = sum(result.struck is not None for result in some)
            refused = sum(not result.answer.startswith("returned") for result in some)
            found.append(Row(operation, way, mode, struck, len(some), refused, sum(bool(one.broken) for one in some)))
    return found


def lines(results: Sequence[Result]) -> Iterator[str]:
    """Say it in words, what is broken first."""
    for result in results:
        for sentence in result.broken:
            yield f"BROKEN  {described(result)}: {sentence}"
    yield _COLUMNS.format("operation", "mode", "calls", "trials", "refused", "broken")
    counted = rows(results)
    for row in counted:
        yield _COLUMNS.format(f"{row.operation}, {row.way}", row.mode, row.struck, row.trials, row.refused, row.broken)
    total = [sum(getattr(row, field) for row in counted) for field in ("struck", "trials", "refused", "broken")]
    yield _COLUMNS.format("all", "", *total)


def as_json(results: Sequence[Result]) -> str:
    """Say it for a program."""
    found = [asdict(result) for result in results if result.broken]
    return json.dumps({"rows": [asdict(row) for row in rows(results)], "broken": found}, indent=1)


def kills_described(found: Killed) -> str:
    """Say in words what became of processes that were killed."""
    kills = ", ".join(f"{count} {role}s" for role, count in found.kills.items())
    done = ", ".join(f"{count} {what}" for what, count in sorted(found.done.items()))
    total = sum(found.kills.values())
    head = f"{found.database}: killed {total} ({kills}), {found.in_the_middle} lives ended in the middle of something"
    return "\n".join([f"{head}; acknowledged {done}; broken {len(found.broken)}", *found.broken])


def described(result: Result) -> str:
    """Say which trial this was, so that it can be repeated."""
    struck = result.struck or "nothing"
    return f"{result.operation}, {result.way}, {result.shot.mode} at {result.shot.number} ({struck}), {result.answer}"


def progress() -> Callable[[Result, int], None]:
    """Show how far it is, on standard error, and what is broken as soon as it is."""
    done = itertools.count(1)

    def told(result: Result, total: int) -> None:
        if (number := next(done)) % _LINES_EVERY == 0 or number == total:
            print(f"{number} of {total}", file=sys.stderr, flush=True)
        if result.broken:
            print(f"broken: {described(result)}: {'; '.join(result.broken)}", file=sys.stderr, flush=True)

    return told
