"""
Cleanup: how soon what has expired is unreadable, how fast rows are reclaimed, and what a file costs more than unlinkat.

`python -m benchmarks.cleanup` asks whether it is exact, with several workers at once; this asks what one of them takes.
"""

import os
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from benchmarks.place import Place, sqlite_place
from benchmarks.speed.rows import Row
from benchmarks.speed.timing import interleaved
from benchmarks.speed.works import own_folder
from stores.filesystem import FilesystemStore
from stores.names import mint_name
from tenancy import SessionManager
from tests.core.bulk import CONTENT, Filling
from tests.core.bulk_rows import rows_of

_SESSIONS: Final = 100_000
#: So many of them expire at once, and how often that is measured.
_EXPIRED: Final = 1_000
_BATCHES: Final = 5
#: So many sessions of so many results each are reclaimed.
_RECLAIMED: Final = 500
_RESULTS: Final = 20
_FILES: Final = 200


def cleanup_rows(rounds: int, *, sessions: int = _SESSIONS) -> Iterator[Row]:
    """Measure all three, on SQLite and in files."""
    yield from _unreadable(sessions)
    yield from _reclaimed()
    yield from _files(rounds)


def _unreadable(sessions: int) -> Iterator[Row]:
    """
    End a batch of sessions in a catalogue of very many: the one transaction after which nobody can read them.

    It is the first that a cleanup does. Here it is called by itself, since the rest of a cleanup is not waited for.
    """
    taken = []
    expired = min(_EXPIRED, sessions // _BATCHES)
    with sqlite_place() as place, SessionManager.from_settings(place.settings(durability="process")) as manager:
        _fill(place, manager, sessions=sessions, results=1)
        for _ in range(_BATCHES):
            _expire(place, expired)
            began = time.perf_counter()
            ended = manager._backend.across.reclaim.end_expired(page=expired)
            taken.append(time.perf_counter() - began)
            assert len(ended) == expired
    milliseconds = statistics.median(taken) * 1000
    work = f"end {expired:,} of {sessions:,} sessions"
    yield Row(work, "until unreadable", 10 * expired / _EXPIRED, figure=milliseconds, unit="ms")


def _reclaimed() -> Iterator[Row]:
    """Let a whole cleanup remove sessions whose results are in the catalogue."""
    with sqlite_place() as place, SessionManager.from_settings(place.settings(durability="process")) as manager:
        _fill(place, manager, sessions=_RECLAIMED, results=_RESULTS)
        _expire(place, _RECLAIMED)
        began = time.perf_counter()
        report = manager.cleanup()
        taken = time.perf_counter() - began
    assert report.results == _RECLAIMED * _RESULTS
    # 20,000 a second.
    yield Row("reclaim sessions", "per result, catalogue", 50, figure=taken / report.results * 1e6, unit="µs")


def _files(rounds: int) -> Iterator[Row]:
    """Destroy a room full of files, beside the same number of files in an open directory whose names are known."""
    with own_folder() as folder:
        (folder / "store").mkdir(mode=0o700)
        store = FilesystemStore(folder / "store", durability="process")
        outer, plain = mint_name(), folder / "plain"
        plain.mkdir()
        rooms, names = [], [mint_name() for _ in range(_FILES)]
        count = max(3, rounds // 4)
        for _ in range(count + 1):
            room = store.namespace(outer, mint_name())
            for name in names:
                room.put(name, CONTENT.encode())
            rooms.append(room)
            inside = plain / str(len(rooms))
            inside.mkdir()
            for name in names:
                (inside / name).write_text(CONTENT)

        def unlink(number: int) -> None:
            directory = os.open(plain / str(number + 1), os.O_RDONLY | os.O_DIRECTORY)
            for name in names:
                os.unlink(name, dir_fd=directory)
            os.close(directory)

        calls = {"ours": lambda number: rooms[number].destroy(), "theirs": unlink}
        times = interleaved(calls, rounds=count, block=1)
        store.close()
    yield Row(f"remove {_FILES} files of a session", "unlinkat", 1.1, times["ours"], times["theirs"])


def _fill(place: Place, manager: SessionManager, *, sessions: int, results: int) -> None:
    """Copy the rows of one session, which stays."""
    manager.session(tenant="acme", user="model", session="model").write(CONTENT)
    with rows_of(place.database_url) as database:
        filling = Filling(database, model="model", results_of_session=results)
        (tenant,) = database.rows("tenancy_tenants", "state = 'live'")
        filling.add(tenant["tenant_id"], sessions * results)
        filling.flush()
        database.finish()


def _expire(place: Place, sessions: int) -> None:
    """Let some of the live sessions, here and there, have expired long ago."""
    with closing(sqlite3.connect(place.database_url.removeprefix("sqlite:///"))) as database, database:
        database.execute(
            "UPDATE tenancy_sessions SET expires_at_us = 1 WHERE (tenant_id, session_id) IN"
            " (SELECT tenant_id, session_id FROM tenancy_sessions WHERE state = 'live' AND name <> 'model'"
            " ORDER BY random() LIMIT ?)",
            (sessions,),
        )
