"""Work in a forked child, which a test may wait for without fear."""

import json
import os
import select
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from tenancy.errors import TenancyError

#: How long a child may take, by its own alarm. Its parent waits a little longer and then kills it.
_CHILD_SECONDS: Final = 40
_PARENT_SECONDS: Final = 50.0


def in_a_child(work: Callable[[], Any]) -> Any:
    """
    Do some work in a forked child.

    :returns: What the work returned, as JSON brings it over, or the name of the class of the `TenancyError` it raised.
    :raises AssertionError: If it raised anything else, died, or hung and was killed.
    """
    return in_children([work])[0]


def in_children(works: list[Callable[[], Any]]) -> list[Any]:
    """Do several works at once, each in a child of its own. See `in_a_child`."""
    children = [_started(work) for work in works]
    try:
        said = [_read_to_the_end(reading) for _, reading in children]
    finally:
        for child, reading in children:
            os.close(reading)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [_understood(one) for one in said]


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


def _understood(said: bytes) -> Any:
    assert said, "the child hung or died"
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


def _read_to_the_end(reading: int) -> bytes:
    said = b""
    while select.select([reading], [], [], _PARENT_SECONDS)[0]:
        part = os.read(reading, 65_536)
        if not part:
            return said
        said += part
    return b""
