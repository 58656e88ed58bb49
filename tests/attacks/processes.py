"""Several processes that get ready each for itself, go at the same moment and stop at the same moment."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any, Final

#: How long a process may take to get ready, and to answer when it is told to stop.
_WAIT_SECONDS: Final = 60
#: How often progress is looked at.
_LOOK_SECONDS: Final = 0.1
#: How many times longer than asked for all may go on until the operations are done.
_AT_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """What all of them share."""

    over: Event
    done: "Synchronized[int]"

    def go_on(self) -> bool:
        """Whether to."""
        return not self.over.is_set()

    def count(self, operations: int) -> None:
        """Add to what all of them have done."""
        with self.done.get_lock():
            self.done.value += operations


#: What a process does from being told to go until it is over, and its answer.
Work = Callable[[Pace], Any]
#: What gets a process ready, and with what. Both must be picklable.
Task = tuple[Callable[..., AbstractContextManager[Work]], tuple[Any, ...]]


def at_once(tasks: Sequence[Task], *, seconds: float, operations: int) -> tuple[float, list[Any]]:
    """
    Run each task in a process of its own.

    :param seconds: How long at least.
    :param operations: How many at least, by the count of all; a machine too busy for them takes longer.
    :returns: How long it was, and each task's answer.
    :raises EOFError: If a process ended without an answer. What it said about that is on its standard error.
    """
    # Not forked: nothing is open in two of them.
    context = multiprocessing.get_context("spawn")
    pace = Pace(context.Event(), context.Value("Q"))
    lines, processes = [], []
    for task in tasks:
        line, other_end = context.Pipe()
        lines.append(line)
        processes.append(context.Process(target=_run, args=(other_end, pace, task), daemon=True))
        processes[-1].start()
        other_end.close()  # so that a process that dies is the end of its line
    try:
        for line in lines:
            _hear(line)
        for line in lines:
            line.send("go")
        taken = _wait_for(pace, lines, seconds=seconds, operations=operations)
        pace.over.set()
        answers = [_hear(line) for line in lines]
    finally:
        pace.over.set()
        for process in processes:
            process.join(_WAIT_SECONDS)
    return taken, answers


def _wait_for(pace: Pace, lines: Sequence[Connection], *, seconds: float, operations: int) -> float:
    began = time.monotonic()
    while (taken := time.monotonic() - began) < seconds * _AT_MOST:
        # Whoever has something to say already has failed.
        if (taken >= seconds and pace.done.value >= operations) or wait(lines, _LOOK_SECONDS):
            break
    return taken


def _hear(line: Connection) -> Any:
    if not line.poll(_WAIT_SECONDS):
        raise TimeoutError("A process does not answer.")
    return line.recv()


def _run(line: Connection, pace: Pace, task: Task) -> None:
    logging.disable(logging.WARNING)  # each damaged result is an event, and there are thousands
    prepare, arguments = task
    with prepare(*arguments) as work:
        line.send("ready")
        line.recv()
        line.send(work(pace))
