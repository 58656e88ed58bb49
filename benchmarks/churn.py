"""
Very many writes and deletes on PostgreSQL. What do they leave in its tables?

Run by `python -m benchmarks.growth --churn N`. Several processes of several threads write results into many sessions
and delete each again a little later, so that the catalogue stays small. Autovacuum is on, as on any server. Looks at
the tables before, afterwards, and after a VACUUM.
"""

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import psycopg

from benchmarks.place import Place, started_place
from benchmarks.processes import hear_from, start_process
from tenancy import Session, SessionManager
from tests.postgres import as_admin

TABLES = ("tenancy_sessions", "tenancy_session_keys", "tenancy_results", "tenancy_usage", "tenancy_blobs")
#: So many of a thread's results are there at any time.
_KEPT = 100
#: How long the server may take to end connections that were closed.
_COUNTING_SECONDS = 30.0
_TENANTS, _SESSIONS_OF_THREAD = 10, 20
_LOOK = """
    SELECT relname, n_live_tup, n_dead_tup, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, autovacuum_count,
           pg_relation_size(relid), pg_indexes_size(relid), pg_total_relation_size(relid)
    FROM pg_stat_user_tables WHERE relname = ANY(%s) ORDER BY relname
"""
_COLUMNS = (
    "live", "dead", "inserted", "updated", "hot_updated", "deleted", "autovacuums",
    "table_bytes", "index_bytes", "total_bytes",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this part reads."""
    parser.add_argument("--churn", type=int, metavar="N", help="N writes and N deletes on PostgreSQL, and nothing else")
    parser.add_argument("--processes", type=int, default=4, help="that write and delete")
    parser.add_argument("--threads", type=int, default=2, help="in each of them")
    parser.add_argument("--bytes", type=int, default=1000, help="of one result")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after which it stops, however many there are"
    )


def run(wanted: argparse.Namespace) -> int:
    """Measure and print."""
    with started_place() as place:
        figures = measure(place, wanted)
    print(json.dumps(figures, indent=1) if wanted.json else table(figures))
    for error in figures["errors"]:
        print(f"error: {error}", file=sys.stderr)
    return 0 if figures["ok"] else 1


def measure(place: Place, wanted: argparse.Namespace) -> dict[str, Any]:
    """Write, delete, look, and return the figures."""
    workers = wanted.processes * wanted.threads
    shares = [wanted.churn // workers + (number < wanted.churn % workers) for number in range(workers)]
    looks = {"before": look(place)}
    children = [
        start_process(work, place, shares[number :: wanted.processes], number, wanted)
        for number in range(wanted.processes)
    ]
    for child in children:
        hear_from(*child)
    started = time.monotonic()
    told = [hear_from(*child) for child in children]
    seconds = time.monotonic() - started
    for process, _ in children:
        process.join()
    wait_for_counts(place)
    looks["after"] = look(place)
    started = time.monotonic()
    with psycopg.connect(as_admin(place.database_url).replace("+psycopg", ""), autocommit=True) as server:
        server.execute("VACUUM ANALYZE")
    vacuum_seconds = time.monotonic() - started
    looks["after VACUUM"] = look(place)
    errors = [error for _, found in told for error in found]
    written = sum(count for count, _ in told)
    if written != wanted.churn and seconds < wanted.seconds:
        errors.append(f"{written} writes instead of {wanted.churn}")
    usage = looks["after"]["tenancy_usage"]
    return {
        "database": place.database,
        "sync_ms": place.sync_ms,
        "processors": os.cpu_count(),
        "workers": workers,
        "content_bytes": wanted.bytes,
        "writes": written,
        "seconds": seconds,
        "pairs_per_second": written / seconds,
        "vacuum_seconds": vacuum_seconds,
        "hot_share": usage["hot_updated"] / max(1, usage["updated"]),
        "tables": looks,
        "errors": errors,
        "ok": not errors,
    }


def work(place: Place, shares: list[int], number: int, wanted: argparse.Namespace, tell: Connection) -> None:
    """Write and delete as one of the processes does, each thread in sessions of its own."""
    errors: list[str] = []
    counts: list[int] = []
    with SessionManager.from_settings(place.settings()) as manager:
        sessions = [
            [
                manager.session(
                    tenant=f"tenant {each % _TENANTS}", user=f"user {number}.{thread}", session=f"chat {each}"
                )
                for each in range(_SESSIONS_OF_THREAD)
            ]
            for thread in range(len(shares))
        ]
        tell.send("ready")
        until = time.monotonic() + wanted.seconds

        def churn(thread: int) -> None:
            try:
                counts.append(_churn(sessions[thread], shares[thread], wanted.bytes, until, seed=10 * number + thread))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a result
                errors.append(repr(error))

        threads = [threading.Thread(target=churn, args=(thread,)) for thread in range(len(shares))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tell.send((sum(counts), errors))


def _churn(sessions: list[Session], times: int, size: int, until: float, *, seed: int) -> int:
    chance = random.Random(seed)  # noqa: S311 - no secret
    kept: deque[tuple[Session, str]] = deque()
    content = os.urandom(size)
    done = 0
    while done < times and time.monotonic() < until:
        session = chance.choice(sessions)
        kept.append((session, session.write(content)))
        if len(kept) > _KEPT:
            oldest, reference = kept.popleft()
            oldest.delete(reference)
        done += 1
    for session, reference in kept:
        session.delete(reference)
    return done


def wait_for_counts(place: Place) -> None:
    """Wait until the server has ended every other connection: the last of what it counts it adds up then."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with psycopg.connect(as_admin(place.database_url).replace("+psycopg", ""), autocommit=True) as server:
        deadline = time.monotonic() + _COUNTING_SECONDS
        while server.execute(query).fetchone() != (0,) and time.monotonic() < deadline:
            time.sleep(0.1)


def look(place: Place) -> dict[str, dict[str, int]]:
    """Say what the server knows of its tables."""
    with psycopg.connect(as_admin(place.database_url).replace("+psycopg", ""), autocommit=True) as server:
        # What other connections have counted reaches the statistics when they are idle or end.
        server.execute("SELECT pg_stat_force_next_flush()")
        rows = server.execute(_LOOK, (list(TABLES),)).fetchall()
    return {row[0]: dict(zip(_COLUMNS, row[1:], strict=True)) for row in rows}


def table(figures: dict[str, Any]) -> str:
    """Set the figures out for a terminal."""
    lines = [
        f"{figures['database']}, {figures['processors']} processors, fsync {figures['sync_ms']:.2f} ms,"
        f" {figures['workers']} threads, results of {figures['content_bytes']} bytes",
        f"{figures['writes']:,} writes and as many deletes in {figures['seconds']:,.0f} s,"
        f" {figures['pairs_per_second']:,.0f} pairs/s; VACUUM took {figures['vacuum_seconds']:.1f} s",
        f"updates of counters that touched no index (HOT): {figures['hot_share']:.1%}",
    ]
    for when, tables in figures["tables"].items():
        lines += [
            "",
            f"{when:<24}{'live':>10}{'dead':>10}{'table':>11}{'indexes':>11}{'total':>11}{'autovacuums':>13}",
        ]
        for name, of in tables.items():
            sizes = "".join(f"{of[key] / 2**20:>7.1f} MiB" for key in ("table_bytes", "index_bytes", "total_bytes"))
            lines.append(f"{name:<24}{of['live']:>10,}{of['dead']:>10,}{sizes}{of['autovacuums']:>13}")
    return "\n".join(lines)
