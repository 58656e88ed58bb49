"""
Records every operation on files below a directory, whoever makes it: Python, or SQLite's C code.

A forked child does the work and is traced by its parent, so nothing has to be told where to look: what the kernel was
asked for is what is recorded, with its data. Linux only. Since the parent waits for whatever child there is, it has to
be a process that has no others.
"""

import json
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.power_loss.operations import Recording
from tests.power_loss.reading import Reader, Unreadable
from tests.tracing.ptrace import ENTERED, Tracer, TracingFailed

#: How long the work may take, by an alarm of its own.
_SECONDS: Final = 60

#: Called by the work to say something about itself. What it says must be JSON.
Tell = Callable[[Mapping[str, Any]], None]


class RecordingFailed(Exception):
    """Nothing was recorded, or not all. The message says why."""


def record(root: Path, work: Callable[[Tell], None]) -> Recording:
    """
    Do some work in a forked child and return what it did to files.

    :param root: Below it everything is recorded.
    :param work: Must start no thread and no process. It may call what it is given, to leave a mark on its way.
    :raises RecordingFailed: If the work failed, or what was recorded does not lead to what is there afterwards.
    """
    with tempfile.TemporaryFile() as marks, tempfile.TemporaryFile() as complaint:
        try:
            tracer = Tracer()
            reader = Reader(root, marks=os.fstat(marks.fileno()))
            tracer.start(lambda offer: _work_and_exit(work, offer, marks.fileno(), complaint.fileno()))
            for task, info in tracer.stops():
                if info.op == ENTERED:
                    reader.entered(task, info.number, info.arguments)
                else:
                    reader.left(task, info.number)
        except TracingFailed as error:
            raise RecordingFailed(str(error)) from None
        except Unreadable as error:
            os.kill(tracer.child, signal.SIGKILL)
            os.waitpid(tracer.child, 0)
            raise RecordingFailed(str(error)) from None
        if tracer.status != 0:
            complaint.seek(0)
            said = complaint.read().decode(errors="replace")
            raise RecordingFailed(f"The work ended with {tracer.status}: {said}")
    try:
        difference = reader.difference()
    except Unreadable as error:
        raise RecordingFailed(str(error)) from None
    if difference:
        raise RecordingFailed(f"What was recorded does not lead to what is there: {difference}")
    return reader.recording


def _work_and_exit(work: Callable[[Tell], None], offer: Callable[[], None], marks: int, complaint: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        offer()
        work(lambda said: _write(marks, json.dumps(said).encode()))
        code = 0
    except BaseException:
        _write(complaint, traceback.format_exc().encode())
    finally:
        # Nothing of the parent's may go on in here.
        os._exit(code)


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)
