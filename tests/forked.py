"""Work in a forked child, which a test may wait for without fear."""

import json
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from tenancy.errors import TenancyError

#: How long a child may take, by its own alarm. Its parent waits a little longer and then kills it.
_CHILD_SECONDS: Final = 40
_PARENT_SECONDS: Final = 50.0


def _threads_python_does_not_know() -> set[int]:
    """The threads of this process that are not, or not any more, Python's. Only Linux tells."""
    if not os.path.isdir("/proc/self/task"):
        return set()
    known = {thread.native_id for thread in threading.enumerate()}
    return {int(name) for name in os.listdir("/proc/self/task")} - known


#: Those of the test runner, which stay.
_STAYING: Final = _threads_python_does_not_know()


def in_a_child(work: Callable[[], Any]) -> Any:
    """
    Do some work in a forked child.

    :returns: What the work returned, as JSON brings it over, or the name of the class of the `TenancyError` it raised.
    :raises AssertionError: If it raised anything else, died, or hung and was killed.
    """
    return in_children([work])[0]


def in_children(works: list[Callable[[], Any]]) -> list[Any]:
    """Do several works at once, each in a child of its own. See `in_a_child`."""
    _let_joined_threads_end()
    children = [_started(work) for work in works]
    return [_understood(*_ended(child, reading)) for child, reading in children]


def _let_joined_threads_end() -> None:
    # Python calls a thread joined when the system's thread is still on its way out. There OpenSSL frees what it kept
    # for that thread, under a lock of its own: a child forked in that instant hangs in its first thread that encrypts.
    deadline = time.monotonic() + 10
    while _threads_python_does_not_know() - _STAYING and time.monotonic() < deadline:
        os.sched_yield()


def _started(work: Callable[[], Any]) -> tuple[int, int]:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork beside threads. That is what is tried.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _work_and_exit(work, writing)
    os.close(writing)
    return child, reading


def _ended(child: int, reading: int) -> tuple[bytes, int]:
    try:
        said, is_over = _read_to_the_end(reading)
    finally:
        os.close(reading)
    if not is_over:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _understood(said: bytes, exit_code: int) -> Any:
    assert exit_code == 0, f"a child hung or died: exit code {exit_code}"
    outcome, value = json.loads(said)
    assert outcome == "done", value
    return value


def _work_and_exit(work: Callable[[], Any], writing: int) -> NoReturn:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_CHILD_SECONDS)
        try:
            said = ("done", work())
        except TenancyError as error:
            said = ("done", type(error).__name__)
        except BaseException as error:
            said = ("failed", repr(error))
        with open(writing, "wb") as pipe:
            pipe.write(json.dumps(said).encode())
    finally:
        # Nothing of the parent's test run may go on in here.
        os._exit(0)


def _read_to_the_end(reading: int) -> tuple[bytes, bool]:
    said = b""
    while select.select([reading], [], [], _PARENT_SECONDS)[0]:
        part = os.read(reading, 65_536)
        if not part:
            return said, True
        said += part
    return said, False
