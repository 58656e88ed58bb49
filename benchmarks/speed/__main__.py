"""
What protection costs, as ratios of medians in one interleaved run, as counts, and as what one process feels of it.

H is Haystack's own `FileSystemToolResultStore`: no quota, no encryption, no catalogue, no fsync. Texts are slices of
documentation, JSON and tables that the standard library and installed packages ship. Every value is the better, the
smaller it is; a `*` marks those above their goals.

Ends with 1 if `--gate` was given and a value is above its goal.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.speed.rows import HEADING, Row
from benchmarks.speed.suites import SUITES, rows_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=f"{', '.join(SUITES)}; all by default"
    )
    parser.add_argument("--rounds", type=int, default=40, help="blocks of calls for each contender")
    parser.add_argument("--gate", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--json", action="store_true", help="print figures for a script")
    wanted = parser.parse_args(arguments)
    rows: list[Row] = []
    if not wanted.json:
        print(HEADING)
    for suite in wanted.suites or SUITES:
        for row in rows_of(suite, rounds=wanted.rounds):
            rows.append(row)
            if not wanted.json:
                print(row, flush=True)
    if wanted.json:
        print(json.dumps([{**asdict(row), "value": row.value} for row in rows], indent=2))
    missed = [row for row in rows if row.is_missed]
    if wanted.gate:
        for row in missed:
            unit = f" {row.unit}" if row.unit else ""
            print(f"error: {row.work}, {row.peer}: {row.value:,.2f}{unit}, not {row.goal}", file=sys.stderr)
    return 1 if wanted.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
