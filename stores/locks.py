"""A lock that a fork cannot leave locked."""

import os
import threading
import weakref
from types import TracebackType


class ProcessLock:
    """
    A lock for the threads of one process. A forked child starts with a lock of its own.

    An ordinary lock that another thread holds at the moment of a fork stays locked in the child for ever, since that
    thread does not exist there.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    @property
    def is_held(self) -> bool:
        """Whether a thread of this process holds it at this moment."""
        return self._lock.locked()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()


#: To be made anew in a child. A process id looked at by each use instead took longer than the lock.
_all: "weakref.WeakSet[ProcessLock]" = weakref.WeakSet()


def _start_afresh() -> None:
    for lock in _all:
        lock._lock = threading.Lock()


os.register_at_fork(after_in_child=_start_afresh)
