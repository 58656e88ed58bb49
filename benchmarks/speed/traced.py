"""
What the kernel is asked for, counted from outside: system calls, files opened, and waits for the disk.

With ptrace(2), as the tests do it: SQLite calls the system itself, so nothing inside the process could see it. Linux
only, on x86_64 and aarch64.
"""

import gc
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from multiprocessing.connection import Connection
from typing import Final, NoReturn

from benchmarks.place import Place
from benchmarks.processes import hear_from, start_process
from benchmarks.speed.counted import COUNTED, OPERATIONS, WARM_UPS, Texts, operations
from stores.connections import Durability
from tenancy import SessionManager
from tests.tracing.descriptor_calls import descriptor_calls
from tests.tracing.path_calls import path_calls
from tests.tracing.ptrace import ENTERED, Tracer

DURABILITIES: Final[tuple[Durability, ...]] = ("process", "power")
CALLS, OPENS, SYNCS = "system calls", "files opened", "fsyncs"
#: Closing this, which nobody has open, means: the next thing begins.
_MARK: Final = 2**30
_KINDS: Final = {
    **dict.fromkeys(("open", "openat", "openat2", "creat"), OPENS),
    **dict.fromkeys(("fsync", "fdatasync", "syncfs", "sync_file_range"), SYNCS),
}

#: For each operation, how much of each kind: the median of a few.
Found = dict[str, dict[str, float]]


def traced_counts(place: Place, texts: Texts) -> dict[Durability, Found]:
    """
    Count what the operations of `counted.operations` ask the kernel for, in both modes of durability.

    :raises SystemExit: If nothing can be traced here.
    """
    # A process of its own: whoever traces waits for whatever child there is.
    process, hear = start_process(_trace, place, texts)
    found: dict[Durability, Found] = hear_from(process, hear)
    process.join()
    return found


def _trace(place: Place, texts: Texts, tell: Connection) -> None:
    names = {number: call.name for number, call in descriptor_calls().items()}
    names |= {number: call.name for number, call in path_calls().items()}
    found: dict[int, list[Counter[str]]] = defaultdict(list)
    tracer = Tracer()
    tracer.start(lambda ready: _work(place, texts, ready))
    counter: Counter[str] = Counter()
    for _, info in tracer.stops():
        if info.op != ENTERED:
            continue
        name = names.get(info.number, "")
        if name == "close" and info.arguments[0] >= _MARK:
            counter = Counter()
            found[info.arguments[0] - _MARK].append(counter)
        else:
            counter[CALLS] += 1
            counter[_KINDS.get(name, "others")] += 1
    if tracer.status != 0:
        raise SystemExit(f"What was traced ended with {tracer.status}.")
    tell.send(
        {
            durability: {
                operation: {
                    kind: statistics.median(each[kind] for each in found[_number(durability, operation)])
                    for kind in (CALLS, OPENS, SYNCS)
                }
                for operation in OPERATIONS
            }
            for durability in DURABILITIES
        }
    )


def _number(durability: Durability, operation: str) -> int:
    return 1 + DURABILITIES.index(durability) * len(OPERATIONS) + OPERATIONS.index(operation)


def _work(place: Place, texts: Texts, ready: Callable[[], None]) -> NoReturn:
    with ExitStack() as opened:
        rounds = []
        for turn, durability in enumerate(DURABILITIES):
            settings = place.settings(durability=durability)
            calls = operations(opened.enter_context(SessionManager.from_settings(settings)), texts)
            fresh = count(turn * 1000)
            for _ in range(WARM_UPS):
                for call in calls.values():
                    call(next(fresh))
            rounds.append((durability, calls, fresh))
        # What comes now and then is nobody's.
        gc.collect()
        gc.disable()
        ready()
        for durability, calls, fresh in rounds:
            for operation, call in calls.items():
                for _ in range(COUNTED):
                    _mark(_number(durability, operation))
                    call(next(fresh))
                # What is between operations goes here.
                _mark(0)
        os._exit(0)


def _mark(number: int) -> None:
    with suppress(OSError):
        os.close(_MARK + number)
