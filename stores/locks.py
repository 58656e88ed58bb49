"""A lock that a fork cannot leave locked."""

import os
import threading
from types import TracebackType


class ProcessLock:
    """
    A lock for the threads of one process. A forked child starts with a lock of its own.

    An ordinary lock that another thread holds at the moment of a fork stays locked in the child for ever, since that
    thread does not exist there.
    """

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}

    @property
    def is_held(self) -> bool:
        """Whether a thread of this process holds it at this moment."""
        lock = self._locks.get(os.getpid())
        return lock is not None and lock.locked()

    def __enter__(self) -> None:
        pid = os.getpid()
        # setdefault is one step of the interpreter: two threads of a new child get the same lock.
        lock = self._locks.get(pid) or self._locks.setdefault(pid, threading.Lock())
        lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._locks[os.getpid()].release()
