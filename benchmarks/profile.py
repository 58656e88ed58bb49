"""
Where the time of one operation goes, on SQLite, by the part of the house that it is spent in.

A profiler slows down what is written in Python and little else, so shares of Python are said too high. What a call
takes is measured without it.
"""

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.place import sqlite_place
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.works import PAGE_CHARS, SIZES, opened_session
from tenancy.session import Session

_WORKS: Final = ("write", "read", "page")
#: What is looked for in a function's file or in its name, in this order.
_PARTS: Final = (
    ("statements and commits, in SQLite", ("sqlite3",)),
    ("cipher", ("cryptography", "sealing/cipher.py", "sealing/ranges.py")),
    ("compression", ("zstd",)),
    ("sealing: card, table, columns", ("tenancy/sealing",)),
    ("keys", ("tenancy/keys",)),
    ("system calls", ("posix.",)),
    ("catalogue", ("tenancy/catalogue", "tenancy/clock.py", "tenancy/references.py")),
    ("stores: pool, transactions, files", ("stores/",)),
    ("session, reading, writing", ("tenancy/",)),
)
_OTHER: Final = "the language's own functions"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("works", nargs="*", choices=[*_WORKS, []], metavar="WORK", help=f"{', '.join(_WORKS)}; all")
    parser.add_argument("--size", choices=SIZES, default="4 KB", help="of the result (default: 4 KB)")
    parser.add_argument("--calls", type=int, default=2000, help="how many are profiled")
    parser.add_argument("--json", action="store_true", help="print figures for a script")
    wanted = parser.parse_args(arguments)
    found = {}
    with opened_session(sqlite_place(files_from=32 * 1024)) as session:
        for work in wanted.works or _WORKS:
            found[work] = _profiled(_call(session, work, SIZES[wanted.size]), wanted.calls)
    if wanted.json:
        print(json.dumps(found, indent=2))
        return 0
    for work, figures in found.items():
        print(f"{work} {wanted.size}: {figures['us']:.0f} µs, {figures['functions']:.0f} functions called")
        for part, share in sorted(figures["shares"].items(), key=lambda pair: -pair[1]):
            print(f"  {share:>4.0%}  {figures['us'] * share:>6.0f} µs  {part}")
    return 0


def _call(session: Session, work: str, chars: int) -> Callable[[], object]:
    text = sample_texts(chars)[0]
    reference = session.write(text)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: session.write(text),
        "read": lambda: session.read(reference),
        "page": lambda: session.read_page(reference, offset=chars // 4, max_chars=PAGE_CHARS),
    }
    return calls[work]


def _profiled(call: Callable[[], object], calls: int) -> dict[str, Any]:
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(calls):
        call()
    profiler.disable()
    spent: Counter[str] = Counter()
    stats: Any = pstats.Stats(profiler)
    for (file, _, name), (_, _, own, _, _) in stats.stats.items():
        spent[_part(f"{file}:{name}")] += own
    whole = sum(spent.values())
    return {
        "us": statistics.median(times) * 1e6,
        "functions": stats.total_calls / calls,
        "shares": {part: own / whole for part, own in spent.items()},
    }


def _part(place: str) -> str:
    return next((part for part, signs in _PARTS if any(sign in place for sign in signs)), _OTHER)


if __name__ == "__main__":
    sys.exit(main())
