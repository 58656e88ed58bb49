"""The death of the process at one step of its work."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from stores.memory import MemoryNamespace
from stores.sql import Database, Transaction
from tests.core.interposed import Killed

#: What changes files, by its name in `os`. Opening counts when it creates.
_CHANGES: Final = ("open", "mkdir", "write", "unlink", "rename", "rmdir")


class Death:
    """
    Dies before or after the step of this number: a commit, a change of a file, a step of the store in memory.

    From there on every further statement and step dies as well: a handler or a `finally` of a dead process does
    nothing.
    """

    def __init__(self, step: int) -> None:
        self._left = step
        self.came = False

    @property
    def is_next(self) -> bool:
        """Whether the very next step is the last."""
        return self._left == 0 and not self.came

    def guard(self) -> None:
        """Let nobody do anything who is dead."""
        if self.came:
            raise Killed

    def step(self) -> None:
        """Count one moment at which it may come."""
        self.guard()
        self.came = self._left == 0
        self._left -= 1
        self.guard()


@contextmanager
def dying(step: int) -> Iterator[Death]:
    """Let this thread's work die at a step, or live if it has fewer."""
    death = Death(step)
    with pytest.MonkeyPatch.context() as patch:
        _in_database(patch, death)
        for name in ("put", "delete", "destroy"):
            patch.setattr(MemoryNamespace, name, _around(getattr(MemoryNamespace, name), death))
        for name in _CHANGES:
            patch.setattr(os, name, _of_files(name, death))
        try:
            yield death
        except Killed:
            return


def _around(real: Callable[..., Any], death: Death) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        death.step()
        answer = real(*arguments, **options)
        death.step()
        return answer

    return call


def _in_database(patch: pytest.MonkeyPatch, death: Death) -> None:
    command, run, many = Database._command, Transaction._run, Transaction.execute_many

    def dying_command(self: Database, connection: Any, text: str) -> None:
        # Only a commit changes anything; to die anywhere inside a transaction is to die before it.
        around = _around(command, death) if text == "COMMIT" else command
        death.guard()
        around(self, connection, text)

    def dying_run(self: Transaction, *arguments: Any) -> Any:
        death.guard()
        return run(self, *arguments)

    def dying_many(self: Transaction, *arguments: Any) -> None:
        death.guard()
        many(self, *arguments)

    patch.setattr(Database, "_command", dying_command)
    patch.setattr(Transaction, "_run", dying_run)
    patch.setattr(Transaction, "execute_many", dying_many)


def _of_files(name: str, death: Death) -> Callable[..., Any]:
    real, mine = getattr(os, name), threading.get_ident()
    around = _around(real, death)

    def call(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() != mine or (name == "open" and not arguments[1] & os.O_CREAT):
            return real(*arguments, **options)
        if name == "write" and death.is_next:
            # Half of it is in the file.
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        return around(*arguments, **options)

    return call
