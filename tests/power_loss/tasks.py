"""Everything there is to try, each operation in each mode and each naive order, in several processes."""

import multiprocessing
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from stores.connections import Durability
from tests.power_loss.naive import NAIVE
from tests.power_loss.scenarios import SCENARIOS
from tests.power_loss.trial import Outcome, try_out

_Double = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Task:
    """
    One operation in one mode.

    :param naive: The naive order it is done in, if it is one.
    """

    scenario: str
    durability: Durability = "power"
    naive: str = ""

    def __str__(self) -> str:
        return f"{self.scenario} ({self.naive or self.durability})"

    def run(self) -> Outcome:
        """Try it, in a process that has no other children."""
        (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == self.scenario]
        doubles: list[_Double] = [naive.double for naive in NAIVE if naive.name == self.naive]
        return try_out(scenario, durability=self.durability, double=(*doubles, nullcontext)[0])


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task."""

    task: Task
    outcome: Outcome

    @property
    def is_good(self) -> bool:
        """Nothing is broken, or in a naive order something is."""
        return bool(self.outcome.broken) == bool(self.task.naive)


def all_tasks(only: str | None = None) -> list[Task]:
    """
    Return everything there is to try.

    :param only: A pattern that its text must match (`re.search`).
    """
    modes: tuple[Durability, ...] = ("power", "process")
    real = [Task(scenario.name, durability) for durability in modes for scenario in SCENARIOS]
    naive = [Task(scenario, naive=naive.name) for naive in NAIVE for scenario in naive.scenarios]
    return [task for task in real + naive if re.search(only or "", str(task))]


def run_all(tasks: Sequence[Task], *, workers: int, told: Callable[[Result], None] = lambda _: None) -> list[Result]:
    """
    Run tasks, each in a process of its own.

    :param told: Called with each result when it is there.
    :returns: The results, in the order of the tasks.
    :raises RecordingFailed: If an operation could not be recorded.
    """
    # Not forked: whoever calls may have threads.
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        results = []
        for result in pool.imap_unordered(_run, tasks):
            told(result)
            results.append(result)
    return sorted(results, key=lambda result: tasks.index(result.task))


def _run(task: Task) -> Result:
    return Result(task, task.run())
