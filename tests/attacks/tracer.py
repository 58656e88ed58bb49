"""
A trace of the system calls by which a program and its threads and children name files.

    python -m tests.attacks.tracer CALLS.jsonl PROGRAM ARGUMENT…

`strace` is not on every machine, and its lines are made for people. It runs in a process of its own, since it waits for
whatever child there is.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NoReturn

from tests.tracing.path_calls import PathCall, path_calls
from tests.tracing.ptrace import ENTERED, Place, Tracer, TracingFailed, memory, place, text

__all__ = ["Call", "Place", "TracingFailed", "trace"]


@dataclass(frozen=True, slots=True)
class Call:
    """One system call."""

    name: str
    places: tuple[Place, ...]
    flags: int


def trace(command: Sequence[str], *, calls: Path) -> list[Call]:
    """
    Run a program to its end and return every call by which it named a file.

    :param calls: A file to be made, for what passes between the two processes.
    :raises TracingFailed: If it ends with another status than 0, or nothing can be traced here.
    """
    tracer = [sys.executable, "-m", "tests.attacks.tracer", str(calls), *command]
    done = subprocess.run(
        tracer, cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise TracingFailed(f"The traced program ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    with calls.open(encoding="utf-8") as lines:
        return [_from_json(line) for line in lines]


def _from_json(line: str) -> Call:
    found = json.loads(line)
    return Call(found["name"], tuple(Place(**place) for place in found["places"]), found["flags"])


def _calls_of(tracer: Tracer, command: Sequence[str]) -> Iterator[Call]:
    """Start a program and give its calls as it makes them."""

    def become(offer: Callable[[], None]) -> NoReturn:
        offer()
        os.execvp(command[0], command)

    known = path_calls()
    tracer.start(become)
    for task, info in tracer.stops():
        call = known.get(info.number) if info.op == ENTERED else None
        if call is not None:
            yield _described(call, task, info.arguments)


def _described(call: PathCall, task: int, arguments: Sequence[int]) -> Call:
    places = tuple(
        place(task, None if directory is None else arguments[directory], text(task, arguments[name]))
        for directory, name in call.places
    )
    if call.name == "openat2":
        flags = int.from_bytes(memory(task, arguments[2], 8), sys.byteorder)
    else:
        flags = 0 if call.flags is None else arguments[call.flags] & 0xFFFF_FFFF
    return Call(call.name, places, flags)


def _write(call: Call, lines: IO[str]) -> None:
    lines.write(json.dumps(asdict(call)) + "\n")


def main() -> int:
    """Trace what the command line names, and end with its status."""
    tracer = Tracer()
    with Path(sys.argv[1]).open("x", encoding="utf-8") as lines:
        for call in _calls_of(tracer, sys.argv[2:]):
            _write(call, lines)
    return tracer.status


if __name__ == "__main__":
    sys.exit(main())
