"""
What protection costs, as ratios of medians in one interleaved run.

H is Haystack's own `FileSystemToolResultStore`: no quota, no encryption, no catalogue, no fsync. Texts are slices of
documentation, JSON and tables that the standard library and installed packages ship.

Ends with 1 if `--gate` was given and a ratio is larger than its goal.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

from benchmarks.speed.works import Row, Suite, rows_of

_SUITES: tuple[Suite, ...] = get_args(Suite)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", choices=[*_SUITES, []], metavar="SUITE", help=f"{', '.join(_SUITES)}; all by default"
    )
    parser.add_argument("--rounds", type=int, default=40, help="blocks of calls for each contender")
    parser.add_argument("--gate", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--json", action="store_true", help="print figures for a script")
    wanted = parser.parse_args(arguments)
    rows: list[Row] = []
    if not wanted.json:
        print(f"{'':<34}{'against':<26}{'ratio':>7}{'goal':>7}{'ours':>12}{'theirs':>12}{'ours, p99':>12}  spread")
    for suite in wanted.suites or _SUITES:
        for row in rows_of(suite, rounds=wanted.rounds):
            rows.append(row)
            if not wanted.json:
                print(_line(row), flush=True)
    if wanted.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2))
    missed = [row for row in rows if row.ratio > row.goal]
    if wanted.gate:
        for row in missed:
            print(f"error: {row.work} takes {row.ratio:.2f} times {row.peer}, not {row.goal}", file=sys.stderr)
    return 1 if wanted.gate and missed else 0


def _line(row: Row) -> str:
    mark = " " if row.ratio <= row.goal else "*"
    low, high = row.ours.spread
    return (
        f"{row.work:<34}{row.peer:<26}{row.ratio:>7.2f}{row.goal:>7.2f}{mark}{row.ours.median_us:>8.0f} µs"
        f"{row.theirs.median_us:>9.0f} µs{row.ours.p99_us:>9.0f} µs  -{low:.0%} +{high:.0%}"
    )


if __name__ == "__main__":
    sys.exit(main())
