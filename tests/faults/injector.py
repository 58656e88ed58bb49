"""
One fault at one system call of a forked child: an error, a short write, or death.

Linux only, on x86_64 and aarch64. The child is a copy of a process that has everything imported already, so that a
trial takes no longer than what is tried. A fault strikes once: what the child does about it finds the system working
again.
"""

import errno
import gc
import json
import os
import posixpath
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from tenancy.errors import TenancyError
from tests.tracing.descriptor_calls import DescriptorCall, descriptor_calls
from tests.tracing.path_calls import PathCall, path_calls
from tests.tracing.ptrace import ENTERED, CallInfo, Tracer, TracingFailed, as_descriptor, link, place, text
from tests.tracing.registers import Registers

#: What a child does: gets ready, untraced, and returns what is tried.
Work = Callable[[], Callable[[], Any]]

KILL: Final = "SIGKILL"
KILLED_BY: Final = int(signal.SIGKILL)
SHORT: Final = "short"
#: Each kind of fault, by the name of an error, or one of the two above.
MODES: Final = ("EIO", "ENOSPC", "EMFILE", "EACCES", "EINTR", SHORT, KILL)

#: Linux takes the descriptor away whatever close(2) answers, so this one is carried out before it fails.
_CARRIED_OUT: Final = frozenset({"close"})
#: What brings a file to the disk, or is the last that is heard of whether it got there.
SYNCS: Final = frozenset({"fsync", "fdatasync", "close"})
#: By its own alarm. Nothing that is tried may wait this long for anything.
_CHILD_SECONDS: Final = 45


@dataclass(frozen=True, slots=True)
class Seen:
    """
    One system call as it is entered.

    :param name: `"?"` for one that works on no file.
    :param target: The file or directory, relative to the folder that is watched; `None` if it is not in there.
    :param length: How many bytes or buffers it is to write; 0 if it does not write.
    """

    name: str
    target: str | None = None
    length: int = 0

    def is_hit_by(self, mode: str) -> bool:
        """Whether a fault of this kind can strike here."""
        if mode == KILL:
            return True
        return self.target is not None and (mode != SHORT or self.length > 1)

    def __str__(self) -> str:
        return self.name if self.target is None else f"{self.name} {self.target or '.'}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of one trial.

    :param struck: Where the fault struck; `None` if what was tried was over before.
    :param returned: What it returned, if it did.
    :param raised: The class of what it raised, if it did, and whether it is one of ours.
    :param died: The signal that ended it.
    :param is_synced_again: Whether a sync failed, and afterwards the same file was synced once more.
    """

    struck: Seen | None
    is_over: bool
    returned: Any = None
    raised: str | None = None
    is_ours: bool = True
    said: str = ""
    died: int | None = None
    is_synced_again: bool = False

    @property
    def is_returned(self) -> bool:
        """Whether what was tried came to its end and raised nothing."""
        return self.is_over and self.raised is None


class Injector:
    """
    Strikes children one at a time. The process must have no other children while it does.

    :param folder: The folder whose files and directories are watched. It need not exist.
    :raises TracingFailed: Where nothing can be traced.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self._by_name: Mapping[int, PathCall] = path_calls()
        self._by_descriptor: Mapping[int, DescriptorCall] = descriptor_calls()

    def calls_of(self, work: Work) -> list[Seen]:
        """Return every system call of some work that nothing happens to."""
        calls: list[Seen] = []
        outcome = self._run(work, lambda seen: calls.append(seen) is not None, mode=KILL)
        if not outcome.is_returned:
            raise TracingFailed(f"Without any fault the work did not end well: {outcome}")
        return calls

    def strike(self, work: Work, *, mode: str, number: int) -> Outcome:
        """
        Let a fault strike one of the calls that it can strike.

        :param mode: One of `MODES`.
        :param number: Which of these calls, from 1 on.
        """
        left = number

        def is_next(seen: Seen) -> bool:
            nonlocal left
            left -= seen.is_hit_by(mode)
            return left == 0 and seen.is_hit_by(mode)

        return self._run(work, is_next, mode=mode)

    def _run(self, work: Work, is_next: Callable[[Seen], bool], *, mode: str) -> Outcome:
        tracer = Tracer()
        reading, writing = os.pipe()
        with open(reading, "rb") as pipe:
            try:
                tracer.start(lambda offer: _work_and_tell(work, offer, writing))
            except TracingFailed as failure:
                os.close(writing)
                raise TracingFailed(pipe.read().decode() or str(failure)) from None
            os.close(writing)
            struck, again = self._trace(tracer, Strike(tracer, mode), is_next)
            return _outcome(struck, again, pipe.read(), tracer.status)

    def _trace(self, tracer: Tracer, strike: "Strike", is_next: Callable[[Seen], bool]) -> tuple[Seen | None, bool]:
        struck, again = None, False
        for task, info in tracer.stops(until_stopped=True):
            if info.op != ENTERED:
                if strike.left(task) and struck is not None and struck.name not in SYNCS:
                    tracer.let_run()  # what comes now is nobody's business, and twice as fast
            elif struck is not None:
                seen = self._seen(task, info)
                again = again or (seen.name in SYNCS - {"close"} and seen.target == struck.target)
            elif is_next(seen := self._seen(task, info)):
                struck = seen
                strike.entered(task, seen, info)
        return struck, again

    def _seen(self, task: int, info: CallInfo) -> Seen:
        number, arguments = int(info.number), info.arguments
        if (held := self._by_descriptor.get(number)) is not None:
            target = link(f"/proc/{task}/fd/{as_descriptor(arguments[held.descriptor])}")
            length = 0 if held.length is None else int(arguments[held.length])
            return Seen(held.name, self._below(target), length)
        if (named := self._by_name.get(number)) is not None:
            for directory, name in named.places:
                found = place(task, None if directory is None else arguments[directory], text(task, arguments[name]))
                below = self._below(posixpath.normpath(posixpath.join(found.directory, found.name)))
                if below is not None:
                    return Seen(named.name, below)
            return Seen(named.name)
        return Seen("?")

    def _below(self, path: str) -> str | None:
        if path != self._folder and not path.startswith(f"{self._folder}/"):
            return None
        return path[len(self._folder) + 1 :]


class Strike:
    """Carries out one fault: half of it when a call is entered, the other half when it is left."""

    def __init__(self, tracer: Tracer, mode: str) -> None:
        self._tracer = tracer
        self._registers = Registers(tracer)
        self._mode = mode
        self._answer: Callable[[int], None] | None = None
        self._task = 0

    def entered(self, task: int, seen: Seen, info: CallInfo) -> None:
        """Strike the call that a task has just entered."""
        registers, self._task = self._registers, task
        if self._mode == KILL:
            # The kernel looks for a deadly signal after this stop and before the call: it is not carried out any more.
            os.kill(self._tracer.child, signal.SIGKILL)
        elif self._mode == SHORT:
            position = self._length_of(int(info.number))
            registers.set_argument(task, position, max(1, seen.length // 2))
            # A program may rely on the kernel's leaving its registers alone.
            self._answer = lambda task: registers.set_argument(task, position, seen.length)
        else:
            code = -getattr(errno, self._mode)
            if seen.name not in _CARRIED_OUT:
                registers.skip_call(task)
            self._answer = lambda task: registers.answer(task, code)

    def left(self, task: int) -> bool:
        """Finish the strike if it is this call that is left, and say whether it is."""
        if self._answer is None or task != self._task:
            return False
        self._answer(task)
        self._answer = None
        return True

    @staticmethod
    def _length_of(number: int) -> int:
        position = descriptor_calls()[number].length
        assert position is not None
        return position


def _work_and_tell(work: Work, offer: Callable[[], None], writing: int) -> NoReturn:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_CHILD_SECONDS)
    # Whenever it pleases to run, it would close connections in the middle of anything.
    gc.disable()
    process = os.getpid()
    try:
        tried = work()
    except BaseException as error:
        _tell(writing, {"not prepared": repr(error)})
        os._exit(1)
    offer()
    try:
        said: dict[str, Any] = {"returned": tried()}
    except BaseException as error:
        said = {"raised": type(error).__name__, "is_ours": isinstance(error, TenancyError), "said": repr(error)}
    os.kill(process, signal.SIGSTOP)
    _tell(writing, said)
    os._exit(0)


def _tell(writing: int, said: dict[str, Any]) -> None:
    with open(writing, "wb") as pipe:
        pipe.write(json.dumps(said).encode())


def _outcome(struck: Seen | None, again: bool, said: bytes, status: int) -> Outcome:
    if said:
        return Outcome(struck, is_over=True, is_synced_again=again, **json.loads(said))
    return Outcome(struck, is_over=False, died=-status)
