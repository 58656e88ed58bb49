"""
Cleanup: how soon what has expired is unreadable, how fast rows are reclaimed, and what a file costs more than unlinkat.

`python -m benchmarks.cleanup` asks whether it is exact, with several workers at once; this asks what one of them takes.
Where a goal is missed, a line says how far from its bare steps it is: the same changes, and nothing around them.
"""

import os
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
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
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    expired = min(_EXPIRED, sessions // (2 * _BATCHES))
    with sqlite_place() as place, SessionManager.from_settings(place.settings(durability="process")) as manager:
        _fill(place, manager, sessions=sessions, results=1)
        with closing(_bare_connection(place)) as connection:
            ways = {"ours": manager._backend.across.reclaim.end_expired, "bare": partial(_end_barely, connection)}
            for name in [*ways] * _BATCHES:
                _expire(place, expired)
                began = time.perf_counter()
                ended = ways[name](page=expired)
                taken[name].append(time.perf_counter() - began)
                assert len(ended) == expired
    ours, bare = (statistics.median(times) for times in taken.values())
    work = f"end {expired:,} of {sessions:,} sessions"
    yield Row(work, "until unreadable", 10 * expired / _EXPIRED, figure=ours * 1000, unit="ms")
    yield Row(work, "its bare steps", None, figure=ours / bare)


def _bare_connection(place: Place) -> sqlite3.Connection:
    connection = sqlite3.connect(place.database_url.removeprefix("sqlite:///"), isolation_level=None)
    for setting in ("synchronous=NORMAL", "wal_autocheckpoint=16384", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _end_barely(connection: sqlite3.Connection, *, page: int) -> list[tuple[str, str]]:
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute(
        "SELECT tenant_id, session_id FROM tenancy_sessions WHERE state = 'live' AND expires_at_us <= 1"
        " ORDER BY expires_at_us LIMIT ?",
        (page,),
    )
    ended = sorted(found.fetchall())
    for change in (
        "UPDATE tenancy_sessions SET state = 'ended' WHERE tenant_id = ? AND session_id = ? AND state = 'live'",
        "UPDATE tenancy_usage SET open = 0 WHERE tenant_id = ? AND owner_id = ? AND slot = 0",
        "DELETE FROM tenancy_session_keys WHERE tenant_id = ? AND session_id = ?",
    ):
        connection.executemany(change, ended)
    connection.execute("COMMIT")
    return ended


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
    """
    Destroy a room full of files, beside the same number of files in an open directory whose names are known.

    And beside all that it takes to be rid of a directory: moved, listed, emptied and removed.
    """
    with own_folder() as folder:
        (folder / "store").mkdir(mode=0o700)
        store = FilesystemStore(folder / "store", durability="process")
        outer, plain, moved = mint_name(), folder / "plain", folder / "moved"
        plain.mkdir()
        moved.mkdir()
        rooms, names = [], [mint_name() for _ in range(_FILES)]
        count = max(3, rounds // 4)
        for _ in range(count + 1):
            room = store.namespace(outer, mint_name())
            for name in names:
                room.put(name, CONTENT.encode())
            for inside in (plain / str(len(rooms)), plain / f"{len(rooms)} to be moved"):
                inside.mkdir()
                for name in names:
                    (inside / name).write_text(CONTENT)
            rooms.append(room)

        def unlink(number: int) -> None:
            directory = os.open(plain / str(number), os.O_RDONLY | os.O_DIRECTORY)
            for name in names:
                os.unlink(name, dir_fd=directory)
            os.close(directory)

        def remove(number: int) -> None:
            place = moved / str(number)
            os.rename(plain / f"{number} to be moved", place)
            directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            for name in os.listdir(directory):
                os.unlink(name, dir_fd=directory)
            os.close(directory)
            os.rmdir(place)

        calls = {"ours": lambda number: rooms[number].destroy(), "theirs": unlink, "bare": remove}
        times = interleaved(calls, rounds=count, block=1)
        store.close()
    yield Row(f"remove {_FILES} files of a session", "unlinkat", 1.1, times["ours"], times["theirs"])
    yield Row(f"remove {_FILES} files of a session", "its bare steps", None, times["ours"], times["bare"])


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
