"""
A trace of the system calls by which a program and its threads and children name files.

    python -m tests.attacks.tracer CALLS.jsonl PROGRAM ARGUMENT…

`strace` is not on every machine, and its lines are made for people. This is the part of it that is needed: the kernel's
PTRACE_GET_SYSCALL_INFO (Linux 5.3) gives number and arguments on every processor alike, and a program may trace its own
child without any privilege. It runs in a process of its own, since it waits for whatever child there is.
"""

import ctypes
import json
import os
import posixpath
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

from tests.attacks.path_calls import PathCall, path_calls

AT_FDCWD: Final = -100
_TRACEME, _CONTINUE_TO_CALL, _SET_OPTIONS, _GET_CALL_INFO = 0, 24, 0x4200, 0x420E
#: Mark stops at calls, follow forks, vforks, threads and programs started, and let nothing outlive this process.
_OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000
_AT_CALL: Final = signal.SIGTRAP | 0x80
_ENTERED: Final = 1
_WAIT_FOR_THREADS: Final = 0x40000000
_LONGEST_NAME: Final = 4096


class TracingFailed(Exception):
    """Nothing was traced. The message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """
    A name as a program gave it to the system.

    :param held: Whether it is relative to a descriptor rather than to the working directory.
    :param directory: What it is relative to, as the kernel sees that directory at this moment.
    """

    held: bool
    directory: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """One system call."""

    name: str
    places: tuple[Place, ...]
    flags: int


class _CallInfo(ctypes.Structure):
    # struct ptrace_syscall_info of linux/ptrace.h
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
        ("data", ctypes.c_uint32),
    )


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


class Tracer:
    """Runs one program. Every call of the kernel for it is made by the thread that started it."""

    def __init__(self) -> None:
        self._calls = path_calls()
        if sys.platform != "linux" or not self._calls:
            raise TracingFailed("System calls are traced on Linux, on x86_64 and aarch64 only.")
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.restype = ctypes.c_long
        self._ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self._started: set[int] = set()
        self.status = 0

    def run(self, command: Sequence[str]) -> Iterator[Call]:
        """Start a program and give its calls as it makes them. Afterwards `status` is what it ended with."""
        child = os.fork()
        if child == 0:
            try:
                # Untraced, nobody would ever hear of its stop.
                if self._ptrace(_TRACEME, 0, None, None) == 0:
                    os.kill(os.getpid(), signal.SIGSTOP)
                    os.execvp(command[0], command)
            finally:
                os._exit(127)
        _, status = os.waitpid(child, _WAIT_FOR_THREADS)
        if not os.WIFSTOPPED(status):
            raise TracingFailed("This system lets nobody trace a child of its own.")
        self._request(_SET_OPTIONS, child, 0, _OPTIONS)
        self._started.add(child)
        self._go_on(child, 0)
        while True:
            try:
                task, status = os.waitpid(-1, _WAIT_FOR_THREADS)
            except ChildProcessError:
                return
            if os.WIFSTOPPED(status):
                yield from self._stopped(task, status)
                continue
            self._started.discard(task)  # its number may be given to another
            if task == child:
                self.status = os.waitstatus_to_exitcode(status)

    def _stopped(self, task: int, status: int) -> Iterator[Call]:
        stop = os.WSTOPSIG(status)
        passed_on = 0
        if stop == _AT_CALL:
            call = self._call_of(task)
            if call is not None:
                yield call
        elif task not in self._started and stop == signal.SIGSTOP:
            self._started.add(task)  # a new thread or child, which the kernel stops for us
        elif status >> 16 == 0:
            passed_on = stop
        self._go_on(task, passed_on)

    def _call_of(self, task: int) -> Call | None:
        info = _CallInfo()
        try:
            self._request(_GET_CALL_INFO, task, ctypes.sizeof(info), ctypes.addressof(info))
        except ProcessLookupError:
            return None
        known = self._calls.get(info.number) if info.op == _ENTERED else None
        return None if known is None else _described(known, task, info.arguments)

    def _go_on(self, task: int, passed_on: int) -> None:
        with suppress(ProcessLookupError):  # killed while it was stopped; its end is reported next
            self._request(_CONTINUE_TO_CALL, task, 0, passed_on)

    def _request(self, request: int, task: int, address: int, data: int) -> None:
        if self._ptrace(request, task, address, data) == -1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _described(call: PathCall, task: int, arguments: Sequence[int]) -> Call:
    places = tuple(
        _place(task, None if directory is None else arguments[directory], _text(task, arguments[name]))
        for directory, name in call.places
    )
    if call.name == "openat2":
        flags = int.from_bytes(_memory(task, arguments[2], 8), sys.byteorder)
    else:
        flags = 0 if call.flags is None else arguments[call.flags] & 0xFFFF_FFFF
    return Call(call.name, places, flags)


def _place(task: int, directory: int | None, name: str) -> Place:
    number = AT_FDCWD if directory is None else ctypes.c_int(directory & 0xFFFF_FFFF).value
    if number == AT_FDCWD:
        above, last = posixpath.split(posixpath.join(_link(f"/proc/{task}/cwd"), name))
        # A path may lead here through links of other directories.
        return Place(False, _real(above), last or ".")
    return Place(True, _link(f"/proc/{task}/fd/{number}"), name)


@lru_cache(maxsize=4096)
def _real(directory: str) -> str:
    return os.path.realpath(directory)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _text(task: int, address: int) -> str:
    data = _memory(task, address, _LONGEST_NAME) if address else b""
    return os.fsdecode(data.split(b"\0", 1)[0])


def _memory(task: int, address: int, length: int) -> bytes:
    try:
        memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(memory, length, address)
    except OSError:
        return b""
    finally:
        os.close(memory)


def _write(call: Call, lines: IO[str]) -> None:
    lines.write(json.dumps(asdict(call)) + "\n")


def main() -> int:
    """Trace what the command line names, and end with its status."""
    tracer = Tracer()
    with Path(sys.argv[1]).open("x", encoding="utf-8") as lines:
        for call in tracer.run(sys.argv[2:]):
            _write(call, lines)
    return tracer.status


if __name__ == "__main__":
    sys.exit(main())
