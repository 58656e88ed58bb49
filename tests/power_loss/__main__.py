"""
Cut the power at every moment of every operation and look at every state that may be left:
`python -m tests.power_loss`.

Exit code 0: no state of a real operation is broken, and every naive order has broken ones. 1: otherwise. 2: it could
not be found out.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.power_loss.recorder import RecordingFailed
from tests.power_loss.report import as_json, lines
from tests.power_loss.tasks import all_tasks, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    asked = _parser().parse_args(arguments)
    tasks = all_tasks(asked.only)
    if not tasks:
        print("Nothing matches.", file=sys.stderr)
        return 2
    try:
        results = run_all(tasks, workers=asked.workers, told=lambda result: print(result.task, file=sys.stderr))
    except RecordingFailed as error:
        print(error, file=sys.stderr)
        return 2
    print(as_json(results) if asked.json else "\n".join(lines(results)))
    return 0 if all(result.is_good for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=(__doc__ or "").strip())
    parser.add_argument("--only", metavar="PATTERN", help="only lines of the table that match (re.search)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="how many processes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
