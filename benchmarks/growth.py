"""
A hundred times as many results in the catalogue. What do the same calls cost?

Two catalogues are filled in bulk, a small and a large one, both with many tenants, users and sessions, one very large
tenant, and one very long session in it. Then every call is made in both, in turns, again and again, so that whatever
else the machine does falls on both alike. Nothing is synced, or the disk would be all there is to see.

    python -m benchmarks.growth
    python -m benchmarks.growth --churn 1000000

Prints the median of each call in both and their ratio, and how the database finds its rows. With `--churn` it makes
so many writes and deletes instead, on PostgreSQL, and prints what they leave in its tables (see `benchmarks.churn`);
`--seconds` bounds that, on a machine that would take hours.

Ends with 1 if a call costs more than 1.3 times as much, if a statement somebody waits for goes through a whole table,
or if a counter is not the sum of its rows.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import churn
from benchmarks.place import Place, sqlite_place, started_places
from tenancy import SessionManager
from tests.core.bulk import Probe, Shape, drifts, fill
from tests.core.daily import Daily
from tests.core.query_plans import MAY_GO_THROUGH_ALL, plans

#: What is printed of how rows are found: what everybody waits for.
HOT = (
    "tenants._FIND",
    "session_statements.FIND",
    "result_statements.ADMIT",
    "charges._CHARGE",
    "result_statements.FIND",
    "result_statements.LIST",
    "session_statements.LIST_TENANT",
    "counters._READ",
    "reclaim_statements.EXPIRED",
    "reclaim_statements.EXPIRED_OF_TENANT",
    "reclaim_statements.ENDED",
    "reclaim_statements.EXPIRED_RESULTS",
    "reclaim_statements.STALE_RESULTS",
    "reclaim_statements.DELETE_RESULTS",
    "database.delete_some",
    "erasure._UNFINISHED_TENANTS",
    "erasure._UNFINISHED_USERS",
)
_WARM_UP = 20
#: Among fewer results PostgreSQL is right to go through all of a table.
_TELLING = 100_000
#: From so many tenants on an index of them is better than going through all.
_MANY_TENANTS = 200


def measure(places: Sequence[Place], wanted: argparse.Namespace) -> dict[str, Any]:
    """Fill both catalogues, make the calls in both, and return the figures."""
    sizes = (wanted.small, wanted.large)
    with ExitStack() as opened:
        managers = [
            opened.enter_context(SessionManager.from_settings(place.settings(durability="process"))) for place in places
        ]
        probes, filled = [], []
        for place, manager, size in zip(places, managers, sizes, strict=True):
            started = time.monotonic()
            probes.append(fill(manager, place.database_url, Shape(size)))
            filled.append(time.monotonic() - started)
        errors = [f"{count} counters drifted" for place in places if (count := drifts(place.database_url))]
        found = plans(managers[1], probes[1][-1].names, among_few_tenants=Shape(wanted.large).tenants < _MANY_TENANTS)
        telling = wanted.large >= _TELLING
        whole = {name: plan.whole for name, plan in found.items() if telling and name not in MAY_GO_THROUGH_ALL}
        errors += [f"{name} goes through all of {', '.join(tables)}" for name, tables in whole.items() if tables]
        times = _times(managers, probes, rounds=wanted.rounds)
        errors += [f"{count} counters drifted" for place in places if (count := drifts(place.database_url))]
    calls = {name: _figures(*of_both) for name, of_both in times.items()}
    errors += [
        f"{name} costs {figures['ratio']:.2f} times as much" for name, figures in calls.items()
        if figures["ratio"] > wanted.ratio
    ]  # fmt: skip
    return {
        "database": places[0].database,
        "processors": os.cpu_count(),
        "results": sizes,
        "filled_seconds": filled,
        "rounds": wanted.rounds,
        "calls": calls,
        "plans": {name: found[name].steps for name in HOT},
        "errors": errors,
        "ok": not errors,
    }


def _times(
    managers: Sequence[SessionManager], probes: Sequence[list[Probe]], *, rounds: int
) -> dict[str, tuple[list[float], list[float]]]:
    both = [Daily(manager, of_place).operations for manager, of_place in zip(managers, probes, strict=True)]
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in both[0]}
    for number in range(rounds + _WARM_UP):
        for name, of_both in times.items():
            # Each is the first of the two in turns.
            for which in (number % 2, 1 - number % 2):
                call = both[which][name]()
                started = time.perf_counter()
                call()
                if number >= _WARM_UP:
                    of_both[which].append(time.perf_counter() - started)
    return times


def _figures(small: list[float], large: list[float]) -> dict[str, float]:
    medians = statistics.median(small), statistics.median(large)
    return {"small_ms": medians[0] * 1000, "large_ms": medians[1] * 1000, "ratio": medians[1] / medians[0]}


@contextmanager
def _sqlite_places() -> Iterator[list[Place]]:
    with sqlite_place() as small, sqlite_place() as large:
        yield [small, large]


KINDS = {"sqlite": _sqlite_places, "postgresql": lambda: started_places(2)}


def table(figures: dict[str, Any]) -> str:
    """Set the figures out for a terminal."""
    small, large = figures["results"]
    lines = [
        f"{figures['database']}, {figures['processors']} processors, {figures['rounds']} calls of each kind;"
        f" filled in {figures['filled_seconds'][0]:.0f} s and {figures['filled_seconds'][1]:.0f} s",
        "",
        f"{'median of one call':<38}{f'{small:,} results':>18}{f'{large:,} results':>20}{'ratio':>8}",
    ]
    for name, call in figures["calls"].items():
        lines.append(f"{name:<38}{call['small_ms']:>15.3f} ms{call['large_ms']:>17.3f} ms{call['ratio']:>8.2f}")
    lines += ["", f"how rows are found among {large:,} results"]
    for name, steps in figures["plans"].items():
        lines += [f"  {name}", *(f"    {step}" for step in steps)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--small", type=int, default=10_000, help="results in the small catalogue")
    parser.add_argument("--large", type=int, default=1_000_000, help="results in the large one")
    parser.add_argument("--rounds", type=int, default=300, help="calls of each kind in each")
    parser.add_argument("--ratio", type=float, default=1.3, help="that a call's median may grow by")
    parser.add_argument("--only", choices=KINDS, help="measure nothing else")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    churn.add_arguments(parser)
    wanted = parser.parse_args(arguments)
    if wanted.churn:
        return churn.run(wanted)
    all_figures = []
    for kind in [wanted.only] if wanted.only else KINDS:
        with KINDS[kind]() as places:
            all_figures.append(measure(places, wanted))
    print(json.dumps(all_figures, indent=1) if wanted.json else "\n\n".join(map(table, all_figures)))
    for figures in all_figures:
        for error in figures["errors"]:
            print(f"error: {figures['database']}: {error}", file=sys.stderr)
    return 0 if all(figures["ok"] for figures in all_figures) else 1


if __name__ == "__main__":
    sys.exit(main())
