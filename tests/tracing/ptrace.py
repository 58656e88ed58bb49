"""
The part of ptrace(2) that tests need: a forked child, its threads and its children stop at each of their system calls.

The kernel's PTRACE_GET_SYSCALL_INFO (Linux 5.3) gives number and arguments on every processor alike, and a program may
trace its own child without any privilege. Whoever traces waits for whatever child there is, so it has to be a process
that has no others.
"""

import ctypes
import os
import posixpath
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn

from tests.tracing.path_calls import path_calls

AT_FDCWD: Final = -100
#: What `CallInfo.op` says.
ENTERED: Final = 1
LEFT: Final = 2

_TRACEME, _CONTINUE, _CONTINUE_TO_CALL, _SET_OPTIONS, _GET_CALL_INFO = 0, 7, 24, 0x4200, 0x420E
#: Mark stops at calls, follow forks, vforks, threads and programs started, and let nothing outlive this process.
_OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000
_AT_CALL: Final = signal.SIGTRAP | 0x80
_WAIT_FOR_THREADS: Final = 0x40000000
_LONGEST_NAME: Final = 4096


class TracingFailed(Exception):
    """Nothing was traced. The message says why."""


class CallInfo(ctypes.Structure):
    """`struct ptrace_syscall_info` of linux/ptrace.h."""

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


class Tracer:
    """Traces one child. Every call of the kernel for it is made by the thread that started it."""

    def __init__(self) -> None:
        if sys.platform != "linux" or not path_calls():
            raise TracingFailed("System calls are traced on Linux, on x86_64 and aarch64 only.")
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.restype = ctypes.c_long
        self._ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self._started: set[int] = set()
        self._resume = _CONTINUE_TO_CALL
        #: The child.
        self.child = 0
        #: Afterwards what it ended with, as `os.waitstatus_to_exitcode` puts it.
        self.status = 0

    def start(self, work: Callable[[Callable[[], None]], NoReturn]) -> None:
        """
        Fork a child and return when it stands at the beginning of what is to be traced.

        :param work: What it does. It calls what it is given when it wants to be traced, and never returns.
        :raises TracingFailed: If it ended before, or cannot be traced.
        """
        self.child = os.fork()
        if self.child == 0:
            try:
                work(self._offer)
            finally:
                os._exit(127)
        _, status = os.waitpid(self.child, _WAIT_FOR_THREADS)
        if not os.WIFSTOPPED(status):
            self.status = os.waitstatus_to_exitcode(status)
            raise TracingFailed("The child ended untraced, or this system lets nobody trace a child of its own.")
        self.request(_SET_OPTIONS, self.child, 0, _OPTIONS)
        self._started.add(self.child)

    def stops(self, *, until_stopped: bool = False) -> Iterator[tuple[int, CallInfo]]:
        """
        Give each stop at a system call, the task's number with it, and go on from it when the next one is asked for.

        :param until_stopped: A SIGSTOP that the child sends to itself is the end of what is traced rather than a
            signal. It then runs on to its end without a stop.
        """
        has_ended = False
        self._go_on(self.child, 0)
        while True:
            try:
                task, status = os.waitpid(-1, _WAIT_FOR_THREADS)
            except ChildProcessError:
                return
            if not os.WIFSTOPPED(status):
                self._started.discard(task)  # its number may be given to another
                if task == self.child:
                    self.status, has_ended = os.waitstatus_to_exitcode(status), True
                if has_ended and not self._started:
                    # Not until there is no child at all: this process may have others, a server, which never end.
                    return
                continue
            stop, passed_on = os.WSTOPSIG(status), 0
            if stop == _AT_CALL:
                info = self._call_info(task)
                if info is not None and self._resume == _CONTINUE_TO_CALL:
                    yield task, info
            elif task not in self._started and stop == signal.SIGSTOP:
                self._started.add(task)  # a new thread or child, which the kernel stops for us
            elif until_stopped and stop == signal.SIGSTOP:
                self.let_run()
            elif status >> 16 == 0:
                passed_on = stop
            self._go_on(task, passed_on)

    def let_run(self) -> None:
        """Let the child run on from the next stop to its end, or to a SIGSTOP of its own, without another."""
        self._resume = _CONTINUE

    def request(self, request: int, task: int, address: int, data: int) -> None:
        """
        Ask the kernel for something.

        :raises ProcessLookupError: If the task was killed while it stood.
        """
        if self._ptrace(request, task, address, data) == -1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def _offer(self) -> None:
        # Untraced, nobody would ever hear of its stop.
        if self._ptrace(_TRACEME, 0, None, None) != 0:
            os._exit(127)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _call_info(self, task: int) -> CallInfo | None:
        info = CallInfo()
        try:
            self.request(_GET_CALL_INFO, task, ctypes.sizeof(info), ctypes.addressof(info))
        except ProcessLookupError:
            return None
        return info

    def _go_on(self, task: int, passed_on: int) -> None:
        with suppress(ProcessLookupError):  # killed while it was stopped; its end is reported next
            self.request(self._resume, task, 0, passed_on)


def place(task: int, directory: int | None, name: str) -> Place:
    """
    Say where a name that a task gives to the system leads.

    :param directory: The descriptor it is relative to, as it stands in a register; `None` for the working directory.
    """
    number = AT_FDCWD if directory is None else as_descriptor(directory)
    if number == AT_FDCWD:
        above, last = posixpath.split(posixpath.join(link(f"/proc/{task}/cwd"), name))
        # A path may lead here through links of other directories.
        return Place(False, _real(above), last or ".")
    return Place(True, link(f"/proc/{task}/fd/{number}"), name)


def as_descriptor(register: int) -> int:
    """Return the C `int` in a register."""
    return ctypes.c_int(register & 0xFFFF_FFFF).value


def link(path: str) -> str:
    """Return what a symbolic link says, or nothing."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def text(task: int, address: int) -> str:
    """Return a C string in a task's memory."""
    data = memory(task, address, _LONGEST_NAME) if address else b""
    return os.fsdecode(data.split(b"\0", 1)[0])


def memory(task: int, address: int, length: int) -> bytes:
    """Return what is in a task's memory, or nothing."""
    try:
        opened = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(opened, length, address)
    except OSError:
        return b""
    finally:
        os.close(opened)


@lru_cache(maxsize=4096)
def _real(directory: str) -> str:
    return os.path.realpath(directory)
