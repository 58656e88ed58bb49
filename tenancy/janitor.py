"""
Cleanup in the background of a web server: every few minutes, bounded, until the manager closes.

Any number of processes may have one; there is no leader, and what one leaves, another takes up.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from stores.locks import ProcessLock
from tenancy.cleanup import CleanupReport
from tenancy.errors import ConfigurationError
from tenancy.events import emit

#: Told, when there is nothing left to stop, what would have stopped it.
OnEnd = Callable[[Callable[[], None]], object]

#: How long one run may take, so that a server that shuts down need not wait for the end of a large one.
MAX_SECONDS: Final = 60.0
#: What a run that its bounds have stopped pauses for, before the next one carries on.
_CARRY_ON_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """
    When a janitor runs, and what.

    :param clean: One bounded cleanup. It is given what tells it to stop early.
    :param interval_seconds: From the end of a run to the beginning of the next.
    :param chance: A number from 0 to 1. The first run of each process waits that part of an interval, so that servers
        that are started together do not all clean up together.
    """

    clean: Callable[[Callable[[], bool]], CleanupReport]
    interval_seconds: float
    chance: Callable[[], float] = field(default=random.random)

    def __post_init__(self) -> None:
        seconds = self.interval_seconds
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds < float("inf"):
            raise ConfigurationError("interval_seconds must be a positive number.")

    def first_pause(self) -> float:
        """How long to wait before the first run."""
        return self.interval_seconds * self.chance()

    def run(self, is_stopping: Callable[[], bool]) -> float:
        """
        Run once. A failure is an event and no more: the next run tries again.

        :returns: How long to wait before the next run.
        """
        try:
            report = self.clean(is_stopping)
        except Exception as error:  # noqa: BLE001 - whatever it was, the server needs its next cleanup all the same
            # A manager that was closed under it is how it ends.
            if not is_stopping():
                emit("janitor_failed", error=type(error).__name__)
            return self.interval_seconds
        return self.interval_seconds if report.complete else min(self.interval_seconds, _CARRY_ON_SECONDS)


class Janitor:
    """
    A thread that cleans up until it is stopped. `SessionManager.run_janitor` makes one; closing the manager stops it.

    A forked child has none: start it after the fork, in each worker.
    """

    def __init__(self, rounds: Rounds, *, on_end: OnEnd) -> None:
        self._rounds = rounds
        self._on_end = on_end
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tenancy-janitor", daemon=True)

    def start(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the step that is under way, and wait for that. May be repeated, by any thread."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            pause = self._rounds.first_pause()
            while not self._stopping.wait(pause):
                pause = self._rounds.run(self._stopping.is_set)
        finally:
            self._on_end(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class AsyncJanitor:
    """The same as a coroutine: it ends when it is cancelled or told to stop, from whichever thread."""

    def __init__(self, rounds: Rounds, *, on_end: OnEnd) -> None:
        self._rounds = rounds
        self._on_end = on_end
        self._stopping = threading.Event()
        # A child that is forked in the middle of a step has nobody to wait for.
        self._at_work = ProcessLock()
        self._worker: int | None = None
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()

    def stop(self) -> None:
        """End after the step that is under way, also one that a cancellation has left behind, and wait for that."""
        self._stopping.set()
        # Of a loop that is closed there is nobody left to wake.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)
        # The step is in a thread that needs nothing of the loop, which may wait here itself. The step may not.
        if self._worker != threading.get_ident():
            with self._at_work:
                pass

    async def run(self) -> None:
        """Clean up until the end."""
        try:
            pause = self._rounds.first_pause()
            while not await self._stopped_within(pause):
                pause = await asyncio.to_thread(self._run_once)
        finally:
            # If it was cancelled, the thread may still be at work.
            self._stopping.set()
            if not self._at_work.is_held:
                self._on_end(self.stop)

    def _run_once(self) -> float:
        try:
            with self._at_work:
                self._worker = threading.get_ident()
                try:
                    return 0.0 if self._stopping.is_set() else self._rounds.run(self._stopping.is_set)
                finally:
                    self._worker = None
        finally:
            # Looked at when it is no longer at work: whoever has stopped it saw that it was, and left this to it.
            if self._stopping.is_set():
                self._on_end(self.stop)

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        return self._stopping.is_set()
