"""
Many at once: threads of one process, and processes. Each writes and reads texts of 64 KB as fast as it can.

A contender is a crowd that does its share and waits for the last of it; the ratio of the times for one share is that of
the objects per second, turned round. Everybody has a session of their own, and with Haystack's store a folder.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from benchmarks.place import Place, sqlite_place, started_place
from benchmarks.processes import PROCESSES, hear_from, start_process
from benchmarks.speed.peers import HaystackStore
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.timing import interleaved
from benchmarks.speed.works import INLINE_BYTES, SIZES, Library, own_folder
from tenancy import SessionManager

_THREADS: Final = 8
_PROCESSES: Final = (2, 4)
#: How many objects each writes and reads in one share.
_SHARE: Final = 8
#: A slow one in a hundred may take so many times as long as one in two.
_MOST_MEDIANS: Final = 10.0
#: How each is made, and the goal there.
_PLACES: Final[Mapping[str, tuple[Callable[[], AbstractContextManager[Place]], float | None]]] = {
    "SQLite": (partial(sqlite_place, files_from=INLINE_BYTES), 1.0),
    "PostgreSQL": (started_place, None),
}


def thread_rows(rounds: int) -> Iterator[Row]:
    """Eight threads that share a manager."""
    texts = sample_texts(SIZES["64 KB"])
    for database, (open_place, goal) in _PLACES.items():
        with (
            open_place() as place,
            SessionManager.from_settings(place.settings(durability="process")) as manager,
            own_folder() as folder,
            ThreadPoolExecutor(_THREADS) as threads,
        ):
            ours = [_of_ours(manager, number, texts) for number in range(_THREADS)]
            theirs = [_of_haystack(folder, number, texts) for number in range(_THREADS)]
            taken: list[float] = []

            def crowd(libraries: list[Library], taken: list[float], number: int, threads: Any = threads) -> None:
                for seconds in threads.map(lambda library: _share(library, number), libraries):
                    taken += seconds

            calls = {"ours": partial(crowd, ours, taken), "theirs": partial(crowd, theirs, [])}
            times = interleaved(calls, rounds=max(2, rounds // 4), block=1)
            # The first round warmed up.
            ordered = sorted(taken[_THREADS * _SHARE :])
        work = f"{_THREADS} threads, 64 KB, {database}"
        yield Row(work, "H, per object", goal, times["ours"], times["theirs"])
        medians = ordered[len(ordered) * 99 // 100] / ordered[len(ordered) // 2]
        yield Row(work, "p99, in medians", goal and _MOST_MEDIANS, figure=medians)


def process_rows(rounds: int) -> Iterator[Row]:
    """Two and four processes with a manager each. The two are two of the four, the others wait meanwhile."""
    texts = sample_texts(SIZES["64 KB"])
    for database, (open_place, goal) in _PLACES.items():
        with open_place() as place, own_folder() as folder, ExitStack() as started:
            workers = [
                started.enter_context(_Worker(place, folder, number, texts)) for number in range(max(_PROCESSES))
            ]

            def crowd(which: str, count: int, number: int, workers: "list[_Worker]" = workers) -> None:
                for worker in workers[:count]:
                    worker.begin(which, number)
                for worker in workers[:count]:
                    worker.finish()

            calls = {
                f"{which} {count}": partial(crowd, which, count) for which in ("ours", "theirs") for count in _PROCESSES
            }
            times = interleaved(calls, rounds=max(2, rounds // 4), block=1)
        for count in _PROCESSES:
            ours, theirs = times[f"ours {count}"], times[f"theirs {count}"]
            yield Row(f"{count} processes, 64 KB, {database}", "H, per object", goal, ours, theirs)


class _Worker:
    """A process, and the pipe by which it is told what to do."""

    def __init__(self, place: Place, folder: Path, number: int, texts: list[str]) -> None:
        told, self._tell = PROCESSES.Pipe(duplex=False)
        self._process, self._hear = start_process(_work, place, folder, number, texts, told)
        told.close()
        self.finish()

    def begin(self, which: str, number: int) -> None:
        """Let it do a share."""
        self._tell.send((which, number))

    def finish(self) -> None:
        """Wait until it has."""
        hear_from(self._process, self._hear)

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._tell.close()
        self._process.join()


def _work(place: Place, folder: Path, number: int, texts: list[str], told: Connection, tell: Connection) -> None:
    with SessionManager.from_settings(place.settings(durability="process")) as manager:
        libraries = {"ours": _of_ours(manager, number, texts), "theirs": _of_haystack(folder, number, texts)}
        tell.send("ready")
        while True:
            try:
                which, turn = told.recv()
            except EOFError:
                return
            _share(libraries[which], turn)
            tell.send("done")


def _of_ours(manager: SessionManager, number: int, texts: list[str]) -> Library:
    session = manager.session(tenant="acme", user=f"user {number}", session="chat")
    return Library(session.write, session.read, texts)


def _of_haystack(folder: Path, number: int, texts: list[str]) -> Library:
    store = HaystackStore(folder / str(number))
    return Library(store.write, store.read, texts)


def _share(library: Library, turn: int) -> list[float]:
    taken = []
    for number in range(turn * _SHARE, (turn + 1) * _SHARE):
        began = time.perf_counter()
        library.write(number)
        library.read(number)
        taken.append(time.perf_counter() - began)
    return taken
