"""
Break the library on purpose and count what the tests notice: `python -m tests.mutations`.

Exit code 0: every mutant was caught or stands in `equivalent.toml` with its reason. 1: one was not, or an entry there
is wrong. 2: it could not be found out.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence

from tests.mutations.equivalents import LISTED, ListIsWrong, read_equivalents, vanished
from tests.mutations.groups import GROUPS, all_mutants
from tests.mutations.report import Report, progress
from tests.mutations.runner import BaselineFailed, Runner
from tests.mutations.sources import Mutant


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    asked = _parser().parse_args(arguments)
    everything = all_mutants()
    mutants = _chosen(everything, asked)
    if asked.list:
        print("\n".join(f"{mutant.group:11}{mutant}" for mutant in mutants))
        return 0
    try:
        listed = read_equivalents(LISTED.read_text(encoding="utf-8"))
        with Runner(GROUPS, workers=asked.workers) as runner:
            seconds = runner.measure(dict.fromkeys(mutant.group for mutant in mutants))
            print(f"{len(mutants)} mutants; without any, the tests take {seconds:.0f} s.", file=sys.stderr)
            with progress(len(mutants)) as told:
                results = runner.run(mutants, told=told)
    except (BaselineFailed, ListIsWrong) as error:
        print(error, file=sys.stderr)
        return 2
    report = Report(results, listed, vanished(listed, everything))
    print(report.as_json(GROUPS) if asked.json else "\n".join(report.lines(GROUPS)))
    return 0 if report.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").strip())
    parser.add_argument("--only", metavar="PATTERN", help="only mutants whose line in --list matches (re.search)")
    parser.add_argument("--extra", action="store_true", help="also those that stand for no promise")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="of those, only each Nth")
    parser.add_argument("--list", action="store_true", help="name the mutants and run nothing")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="how many run at once")
    return parser


def _chosen(mutants: Sequence[Mutant], asked: argparse.Namespace) -> list[Mutant]:
    wanted = re.compile(asked.only or "")
    groups = {group.name for group in GROUPS if asked.extra or not group.is_extra}
    found = [each for each in mutants if each.group in groups and wanted.search(f"{each.group:11}{each}")]
    return found[:: asked.every]


if __name__ == "__main__":
    sys.exit(main())
