"""Faults at all calls of the operations, one trial each, divided among several processes."""

import gc
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

from tests.faults.house import WAYS, House, World
from tests.faults.injector import Injector, Outcome, Seen
from tests.faults.operations import Operation
from tests.faults.plans import Plan, Shot
from tests.faults.recovery import broken
from tests.forked import in_a_child

#: Memory rather than a disk where there is such a place: a trial syncs a hundred times, and nobody pulls a plug here.
_IN_MEMORY: Final = Path("/dev/shm")
#: How long the look at a data directory after a fault may take; nothing there waits for anything.
_LOOK_SECONDS: Final = 60


class SweepFailed(Exception):
    """The trials did not come to their end. The message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """
    What became of a trial.

    :param struck: The call; `None` if the operation was over before.
    :param answer: What the operation returned, raised or died of.
    :param broken: Which invariants do not hold afterwards.
    """

    operation: str
    way: str
    shot: Shot
    struck: str | None
    answer: str
    broken: tuple[str, ...]


class Bench:
    """
    Where one operation is tried, with results going one way. Processes that are forked from this one may use it too.

    :param folder: An empty folder.
    """

    def __init__(self, operation: Operation, way: str, *, folder: Path) -> None:
        self.operation = operation
        self.way = way
        self._folder = folder
        self._template = House(folder / "template", WAYS[way])
        self._template.folder.mkdir(parents=True)
        # In a child: a process that is forked from must not have had SQLite open in several threads, nor leave it so.
        self._world = World.from_json(in_a_child(lambda: operation.fill(self._template).as_json()))

    def warm_up(self) -> None:
        """Do it once in this process, so that what it learns for good, e.g. compiled statements, each child has."""
        house = self._fresh_house()
        self.operation.ready(house, self._world)()
        for manager in house.managers:
            manager.close()

    def calls(self) -> list[Seen]:
        """Return every call of the operation."""
        house = self._fresh_house()
        return Injector(house.data).calls_of(lambda: self.operation.ready(house, self._world))

    def strike(self, shot: Shot) -> Result:
        """Try one fault and say what it broke."""
        house = self._fresh_house()
        injector = Injector(house.data)
        outcome = injector.strike(lambda: self.operation.ready(house, self._world), mode=shot.mode, number=shot.number)
        found = broken(house, self._world, self.operation, outcome, mode=shot.mode)
        struck = None if outcome.struck is None else str(outcome.struck)
        return Result(self.operation.name, self.way, shot, struck, _answer(outcome), tuple(found))

    def _fresh_house(self) -> House:
        house = House(self._folder / str(os.getpid()), WAYS[self.way])
        house.become_copy_of(self._template)
        return house


def sweep(
    operations: Sequence[Operation],
    plan: Plan,
    *,
    workers: int,
    told: Callable[[Result, int], None] = lambda result, total: None,
) -> list[Result]:
    """
    Try everything that a plan says. The calling process must have no thread beside it and no child.

    :param told: Called with each result as it comes, and how many there will be.
    :raises SweepFailed: If a worker ended before it was done.
    """
    with _folder() as folder:
        benches = [
            Bench(operation, way, folder=folder / operation.name / way)
            for operation in operations
            for way in operation.ways
        ]
        trials = [(bench, shot) for bench in benches for shot in plan(bench.operation, bench.calls())]
        # Nothing of this is rubbish, and each child would otherwise copy the pages that a collection writes on.
        gc.freeze()
        results: list[Result] = []
        with _workers(trials, workers) as lines:
            while lines:
                for line in wait(lines):
                    assert isinstance(line, Connection)
                    result = _heard(line)
                    if result is None:
                        lines.remove(line)
                        continue
                    results.append(result)
                    told(result, len(trials))
        return results


@contextmanager
def _workers(trials: Sequence[tuple[Bench, Shot]], workers: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("fork")
    lines, processes = [], []
    try:
        for number in range(workers):
            line, other_end = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(other_end, trials[number::workers], number), daemon=True)
            process.start()
            other_end.close()  # so that a worker's death is the end of its line
            lines.append(line)
            processes.append(process)
        yield lines
    finally:
        for process in processes:
            process.kill()
            process.join()


def _work(line: Connection, trials: Sequence[tuple[Bench, Shot]], number: int) -> None:
    # Its child and itself take turns: on one processor, nobody has to be woken up on another.
    processors = sorted(os.sched_getaffinity(0))
    with suppress(OSError):
        os.sched_setaffinity(0, {processors[number % len(processors)]})
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    logging.disable(logging.WARNING)  # whatever cannot be removed is an event, and there are hundreds
    warm: Bench | None = None
    for bench, shot in trials:
        if bench is not warm:
            bench.warm_up()
            warm = bench
        signal.alarm(_LOOK_SECONDS)
        line.send(bench.strike(shot))
    signal.alarm(0)
    line.send(None)


def _heard(line: Connection) -> Result | None:
    try:
        result: Result | None = line.recv()
    except EOFError:
        raise SweepFailed("A worker died before it was done. What it said is on standard error.") from None
    return result


@contextmanager
def _folder() -> Iterator[Path]:
    above = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="tenancy-faults-", dir=above))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answer(outcome: Outcome) -> str:
    if not outcome.is_over:
        return f"died of signal {outcome.died}"
    return f"returned {outcome.returned!r}" if outcome.raised is None else f"raised {outcome.said}"
