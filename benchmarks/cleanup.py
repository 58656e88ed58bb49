"""
Cleanup of very many expired sessions by several processes at once. How long does it take, and is it exact?

A part of the sessions is filled through the library, with real bytes, all of which are read back; every fifth of
their results is large. The rest are rows like theirs, copied in SQL (`--written` says how many are not). Then the clock
of the workers is moved until all sessions have expired, and all workers begin at once: in SQLite, in SQLite with the
large results in files, and in PostgreSQL, there as the maintenance role.

    python -m benchmarks.cleanup --sessions 10000 --results 200000 --workers 4

Ends with 1 if a session was reclaimed twice or not at all, or if any row, byte, file or charge is left.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from benchmarks.place import Place, sqlite_place, started_place
from benchmarks.processes import PROCESSES, hear_from, start_process
from stores.entries import TRASH
from tenancy import SessionManager
from tests.core.bulk import Filling
from tests.core.bulk_rows import rows_of

#: Longer than any session lives.
_EXPIRED = timedelta(days=40)
#: So many results to one that is large.
_SMALL_TO_LARGE = 5
#: Above the small size and below the large one, sealed.
_FILES_FROM = 2048


@dataclass(frozen=True, slots=True)
class Amount:
    """Sessions, results, and the results' bytes."""

    sessions: int
    results: int
    size_bytes: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.sessions + other.sessions, self.results + other.results, self.size_bytes + other.size_bytes)


#: In which places it is measured.
KINDS = {"sqlite": sqlite_place, "files": partial(sqlite_place, files_from=_FILES_FROM), "postgresql": started_place}
NOTHING = Amount(0, 0, 0)


def fill(place: Place, wanted: argparse.Namespace, number: int, tell: Connection) -> None:
    """Write every so-manieth of the sessions that are written, as one of several processes."""
    written = NOTHING
    with SessionManager.from_settings(place.settings(durability="process")) as manager:
        for index in range(number, wanted.written, wanted.fillers):
            names = {"tenant": f"tenant {index % wanted.tenants}", "user": f"user {index % (10 * wanted.tenants)}"}
            session = manager.session(**names, session=f"chat {index}")
            count = wanted.results // wanted.sessions + (index < wanted.results % wanted.sessions)
            contents = [_content(index, each, wanted) for each in range(count)]
            references = [session.write(content) for content in contents]
            assert [session.read(reference) for reference in references] == contents
            written += Amount(1, count, sum(map(len, contents)))
    tell.send(written)


def copy(place: Place, wanted: argparse.Namespace) -> Amount:
    """Make the other sessions, in the same tenants."""
    with SessionManager.from_settings(place.settings(durability="process")) as manager:
        content = _content(0, 1, wanted)
        manager.session(tenant="tenant 0", user="model", session="model").write(content)
    each, sessions = wanted.results // wanted.sessions, wanted.sessions - wanted.written
    with rows_of(place.database_url) as database:
        filling = Filling(database, model="model", results_of_session=each)
        tenants = sorted(row["tenant_id"] for row in database.rows("tenancy_tenants", "state = 'live'"))
        for number, tenant_id in enumerate(tenants):
            share = sessions // len(tenants) + (number < sessions % len(tenants))
            filling.add(tenant_id, share * each)
        filling.flush()
        database.finish()
    return Amount(sessions + 1, sessions * each + 1, (sessions * each + 1) * len(content))


def _content(index: int, each: int, wanted: argparse.Namespace) -> bytes:
    size = wanted.large if each % _SMALL_TO_LARGE == 0 else wanted.small
    return f"result {each} of session {index}. ".encode().ljust(size, b"x")


def clean(place: Place, batch_size: int, go: Event, tell: Connection) -> None:
    """Clean up once, as one of the workers."""
    with SessionManager.from_settings(place.settings()) as manager:
        manager.clock.advance(_EXPIRED)
        tell.send("ready")
        go.wait()
        report = manager.cleanup(batch_size=batch_size)
    tell.send((Amount(report.sessions, report.results, report.reclaimed_bytes), report.complete))


def left(place: Place) -> dict[str, int]:
    """Count what is there: rows, bytes, files, directories, and counters that are not zero."""
    queries = {
        "sessions": "SELECT count(*) FROM tenancy_sessions",
        "keys": "SELECT count(*) FROM tenancy_session_keys",
        "results": "SELECT count(*) FROM tenancy_results",
        "blobs": "SELECT count(*) FROM tenancy_blobs",
        "charges": "SELECT count(*) FROM tenancy_usage WHERE used_bytes <> 0 OR results <> 0 OR sessions <> 0",
        "counters of sessions": "SELECT (SELECT count(*) FROM tenancy_usage) - (SELECT count(*) FROM tenancy_users)"
        " - (SELECT count(*) FROM tenancy_tenants)",
    }
    with rows_of(place.database_url) as database:
        found = {what: database.number(query) for what, query in queries.items()}
    inside = list(Path(place.store_url.removeprefix("file://")).rglob("*")) if place.store_url != "database:" else []
    found["files"] = sum(path.is_file() for path in inside)
    found["directories"] = sum(path.is_dir() and path.name != TRASH for path in inside)
    return found


def measure(place: Place, wanted: argparse.Namespace) -> dict[str, Any]:
    """Fill a catalogue, have it cleaned up, and return the figures."""
    started = time.monotonic()
    fillers = [start_process(fill, place, wanted, number) for number in range(wanted.fillers)]
    written = sum((hear_from(*filler) for filler in fillers), NOTHING) + copy(place, wanted)
    filled_seconds = time.monotonic() - started
    before = left(place)
    go = PROCESSES.Event()
    workers = [start_process(clean, place, wanted.batch_size, go) for _ in range(wanted.workers)]
    for worker in workers:
        hear_from(*worker)
    started = time.monotonic()
    go.set()
    reports = [hear_from(*worker) for worker in workers]
    seconds = time.monotonic() - started
    for process, _ in (*fillers, *workers):
        process.join()
    reclaimed = sum((amount for amount, _ in reports), NOTHING)
    after = left(place)
    errors = [f"{count} {what} left" for what, count in after.items() if count]
    if reclaimed != written:
        errors.append(f"there was {written}, and reclaimed was {reclaimed}")
    if not all(complete for _, complete in reports):
        errors.append("a worker could not remove something")
    return {
        "database": place.database,
        "sync_ms": place.sync_ms,
        "processors": os.cpu_count(),
        "workers": wanted.workers,
        "filled_seconds": filled_seconds,
        "files": before["files"],
        "written": asdict(written),
        "reclaimed": asdict(reclaimed),
        "sessions_each": [amount.sessions for amount, _ in reports],
        "seconds": seconds,
        "sessions_per_second": reclaimed.sessions / seconds,
        "results_per_second": reclaimed.results / seconds,
        "left": after,
        "errors": errors,
        "ok": not errors,
    }


def table(all_figures: Sequence[dict[str, Any]]) -> str:
    """Set the figures out for a terminal."""
    first = all_figures[0]
    lines = [
        f"{first['workers']} workers, {first['processors']} processors, {first['written']['sessions']:,} sessions,"
        f" {first['written']['results']:,} results",
        "",
        f"{'':<24}{'in files':>10}{'filled in':>12}{'cleaned in':>12}{'sessions/s':>12}{'results/s':>12}{'left':>6}",
    ]
    for figures in all_figures:
        lines.append(
            f"{figures['database']:<24}{figures['files']:>10,}{figures['filled_seconds']:>10.1f} s"
            f"{figures['seconds']:>10.1f} s{figures['sessions_per_second']:>12,.0f}"
            f"{figures['results_per_second']:>12,.0f}{sum(figures['left'].values()):>6}"
        )
        lines.append(f"  sessions of each worker: {', '.join(map(str, figures['sessions_each']))}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cleanup", description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000, help="that have expired")
    parser.add_argument("--results", type=int, default=200_000, help="shared out among them")
    parser.add_argument("--written", type=int, default=500, help="sessions that are not copied, but written")
    parser.add_argument("--tenants", type=int, default=100, help="the sessions are shared out among, ten users each")
    parser.add_argument("--workers", type=int, default=4, help="processes that clean up at once")
    parser.add_argument("--batch-size", type=int, default=500, help="sessions that one transaction ends")
    parser.add_argument("--fillers", type=int, default=2, help="processes that fill the catalogue")
    parser.add_argument("--small", type=int, default=300, help="bytes of four results of five")
    parser.add_argument("--large", type=int, default=4000, help="bytes of the fifth")
    parser.add_argument("--only", choices=KINDS, help="measure nothing else")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    wanted = parser.parse_args(arguments)
    if not max(wanted.tenants, wanted.results % wanted.sessions) <= wanted.written <= wanted.sessions:
        parser.error("--written: too few for the tenants or for the results that are left over, or too many")
    kinds = [wanted.only] if wanted.only else list(KINDS)
    all_figures = []
    for kind in kinds:
        # Each is gone when the next one comes.
        with KINDS[kind]() as place:
            all_figures.append(measure(place, wanted))
    print(json.dumps(all_figures, indent=1) if wanted.json else table(all_figures))
    for figures in all_figures:
        for error in figures["errors"]:
            print(f"error: {figures['database']}: {error}", file=sys.stderr)
    return 0 if all(figures["ok"] for figures in all_figures) else 1


if __name__ == "__main__":
    sys.exit(main())
