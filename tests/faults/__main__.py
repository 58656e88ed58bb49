"""
Let every system call fail, and kill the process at every one: `python -m tests.faults`.

Or kill processes that work together at random: `python -m tests.faults kills`.

Exit code 0: every invariant held. 1: one did not. 2: it could not be found out. Linux only.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict

# Before anything of Haystack's is imported: it would start threads, and a process with threads is not to be forked.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from tests.faults.injector import MODES
from tests.faults.kills.houses import DATABASES
from tests.faults.kills.killing import kill
from tests.faults.operations import OPERATIONS, Operation
from tests.faults.plans import brief, every, only
from tests.faults.report import as_json, kills_described, lines, progress
from tests.faults.sweep import SweepFailed, sweep
from tests.postgres import PostgresMissing
from tests.tracing.ptrace import TracingFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        return _kills(asked) if asked.what == "kills" else _sweep(asked)
    except (SweepFailed, TracingFailed, PostgresMissing) as error:
        print(error, file=sys.stderr)
        return 2


def _sweep(asked: argparse.Namespace) -> int:
    plan = only(asked.modes, brief if asked.brief else every)
    results = sweep(_chosen(asked.only), plan, workers=asked.workers, told=progress())
    print(as_json(results) if asked.json else "\n".join(lines(results)))
    return 1 if any(result.broken for result in results) else 0


def _kills(asked: argparse.Namespace) -> int:
    found = [kill(database, kills=asked.kills, seed=asked.seed) for database in asked.databases]
    print(
        json.dumps([asdict(one) for one in found], indent=1) if asked.json else "\n".join(map(kills_described, found))
    )
    return 1 if any(one.broken for one in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").strip())
    parser.add_argument("what", nargs="?", choices=("sweep", "kills"), default="sweep")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    sweeping = parser.add_argument_group("sweep")
    sweeping.add_argument("--only", metavar="PATTERN", default="", help="only operations whose name matches")
    sweeping.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="only these kinds of faults")
    sweeping.add_argument("--brief", action="store_true", help="what the tests run; see tests/faults/plans.py")
    sweeping.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="how many run at once")
    killing = parser.add_argument_group("kills")
    killing.add_argument("--kills", type=int, default=200, help="how many processes are killed, on each database")
    killing.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    killing.add_argument("--seed", type=int, default=1, help="of the moments and of what everybody does")
    return parser


def _chosen(pattern: str) -> list[Operation]:
    return [operation for operation in OPERATIONS if re.search(pattern, operation.name)]


if __name__ == "__main__":
    sys.exit(main())
