"""
Eight processes of eight threads each, all of which do the same thing at the same moment.

Run as a program it is one of the processes: it reads orders and prints what came of them, each on a line of JSON.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tenancy import Session, SessionManager, StorageUnavailable, TenancyError
from tenancy.settings import Settings
from tests.conftest import ManagerFactory
from tests.core.crowd import MIXED, Mixed
from tests.postgres import as_maintenance

PROCESSES: Final = 8
THREADS: Final = 8
CHECKOUT: Final = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Order:
    """
    What every thread is to do.

    :param do: One of `ACTIONS`.
    :param shared: What all threads share: one `"session"`, the sessions of one `"user"`, or those of a `"tenant"`.
    :param times: How often each thread does it.
    """

    do: str
    tenant: str
    shared: str
    content: str = ""
    times: int = 1

    def names(self, process: int, thread: int) -> dict[str, str]:
        """Say which session a thread works in."""
        user = f"u{process % 4}" if self.shared == "tenant" else "u0"
        return {"tenant": self.tenant, "user": user, "session": "s0" if self.shared == "session" else f"s{thread}"}

    def all_names(self) -> list[dict[str, str]]:
        """Say which sessions there are."""
        found = [self.names(process, thread) for process in range(PROCESSES) for thread in range(THREADS)]
        return [dict(each) for each in sorted({tuple(names.items()) for names in found})]


class Fleet:
    """
    The processes, started and waiting.

    :param factory: Where they store.
    """

    def __init__(self, factory: ManagerFactory) -> None:
        is_sqlite = factory.database_url.startswith("sqlite")
        settings = {
            "database_url": factory.database_url,
            "maintenance_url": None if is_sqlite else as_maintenance(factory.database_url),
            "store_url": f"file://{factory.results}",
            "keys": f"file:{factory.key_file}",
            "inline_bytes": factory.inline_bytes,
            "durability": "process",
        }
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.core.fleet", json.dumps(settings), str(number)],
                cwd=CHECKOUT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(PROCESSES)
        ]

    def carry_out(self, order: Order) -> "Counter[str]":
        """Have all threads of all processes begin at once. Counts what came of it: `"done"`, or an error's class."""
        self._tell(json.dumps(asdict(order)))
        assert self._answers() == ["ready"] * PROCESSES
        self._tell("go")
        return sum((Counter(answer) for answer in self._answers()), Counter())

    def close(self) -> None:
        """End the processes, which must be well."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
        assert [process.returncode for process in self._processes] == [0] * PROCESSES

    def _tell(self, line: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def _answers(self) -> list[Any]:
        lines = [process.stdout.readline() for process in self._processes if process.stdout is not None]
        assert all(lines), "a process died"
        return [json.loads(line) for line in lines]


class Member:
    """What one of the processes does."""

    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._manager = SessionManager.from_settings(settings)

    def serve(self) -> None:
        """Carry out orders until there are no more."""
        with self._manager, ThreadPoolExecutor(THREADS) as pool:
            for line in sys.stdin:
                order = Order(**json.loads(line))
                act = ACTIONS[order.do]
                works = [act(self, order, thread) for thread in range(THREADS)]
                print('"ready"', flush=True)
                sys.stdin.readline()
                gate = threading.Barrier(THREADS)
                counts = pool.map(lambda work, order=order, gate=gate: _counted(work, order.times, gate), works)
                print(json.dumps(sum(counts, Counter())), flush=True)

    def write(self, order: Order, thread: int) -> Callable[[], object]:
        """Write one result."""
        session = self._session(order, thread)
        return lambda: session.write(order.content)

    def write_and_delete(self, order: Order, thread: int) -> Callable[[], object]:
        """Write one result and make room for somebody else's."""
        session = self._session(order, thread)
        return lambda: session.delete(session.write(order.content))

    def open(self, order: Order, thread: int) -> Callable[[], object]:
        """Open a session that nobody else opens."""
        names = {**order.names(self._number, thread), "session": f"new {self._number}.{thread}"}
        return lambda: self._manager.session(**names)

    def open_and_delete(self, order: Order, thread: int) -> Callable[[], object]:
        """Open such a session and make room for somebody else's."""
        names = {**order.names(self._number, thread), "session": f"passing {self._number}.{thread}"}

        def work() -> None:
            self._manager.session(**names)
            self._manager.delete_session(**names)

        return work

    def mix(self, order: Order, thread: int) -> Callable[[], object]:
        """Do what this thread's part is in a crowd."""
        return Mixed(self._settings, self._manager, seed=self._number * THREADS + thread).part(MIXED[thread])

    def _session(self, order: Order, thread: int) -> Session:
        return self._manager.session(**order.names(self._number, thread))


ACTIONS: Final = {
    "write": Member.write,
    "write and delete": Member.write_and_delete,
    "open": Member.open,
    "open and delete": Member.open_and_delete,
    "mix": Member.mix,
}


def _counted(work: Callable[[], object], times: int, gate: threading.Barrier) -> "Counter[str]":
    counted: Counter[str] = Counter()
    gate.wait()
    for _ in range(times):
        try:
            work()
            counted["done"] += 1
        except StorageUnavailable as error:
            counted[f"StorageUnavailable: {error}"] += 1
        except TenancyError as error:
            counted[type(error).__name__] += 1
    return counted


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Member(Settings(**given), int(sys.argv[2])).serve()
