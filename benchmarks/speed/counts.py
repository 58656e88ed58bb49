"""
Gates on counts, which do not depend on the machine's mood: they say what is asked of database, kernel and cipher.

A limit here is what the work takes now, with a little room for system calls, some of which are the allocator's.
Whoever makes it less lowers the limit; whoever needs more says why.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.place import Place, sqlite_place
from benchmarks.speed.counted import COUNTED, WARM_UPS, Texts, counted_texts, counting, operations
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.traced import CALLS, OPENS, SYNCS, traced_counts
from benchmarks.speed.works import INLINE_BYTES, SIZES
from tenancy import SessionManager
from tests.core.bulk_rows import rows_of

STATEMENTS, COMMITS, OPENED, DURABLE_SYNCS = "SQL statements", "commits", "bytes decrypted", "fsyncs, durable"

#: What an operation may take of each kind; of what is not named here, nothing.
_LIMITS: Final[Mapping[str, Mapping[str, int]]] = {
    "write 4 KB": {STATEMENTS: 6, COMMITS: 1, CALLS: 40, DURABLE_SYNCS: 1},
    "write 64 KB": {STATEMENTS: 6, COMMITS: 1, CALLS: 50, DURABLE_SYNCS: 1},
    "write 1 MB": {STATEMENTS: 9, COMMITS: 2, CALLS: 100, OPENS: 4, DURABLE_SYNCS: 4},
    "read 4 KB": {STATEMENTS: 1, CALLS: 8, OPENED: 5 * 1024},
    "read 64 KB": {STATEMENTS: 1, CALLS: 8, OPENED: 66 * 1024},
    # Two segments at most and the last chunk, compressed; the card with the table of segments.
    "4 KB page of 1 MB": {STATEMENTS: 1, CALLS: 14, OPENS: 1, OPENED: 56 * 1024},
    "open an existing session": {STATEMENTS: 1, CALLS: 6},
    "open a new session": {STATEMENTS: 10, COMMITS: 1, CALLS: 50, DURABLE_SYNCS: 1},
}
_STORED: Final = {"4 KB": 0.37, "64 KB": 0.24, "1 MB": 0.20}


def count_rows(_: int = 0) -> Iterator[Row]:
    """
    Count what is asked for, on SQLite. Where nothing is allowed and nothing was counted there is no line.

    Statements, commits and decrypted bytes are the most that was seen of a few, what is asked of the kernel the median.
    """
    yield from stored_rows()
    texts = counted_texts()
    with sqlite_place(files_from=INLINE_BYTES) as place:
        yield from inside_rows(place, texts)
        yield from outside_rows(place, texts)


def stored_rows() -> Iterator[Row]:
    """How many bytes are stored for each byte of text, as the catalogue says; the mean over all sample texts."""
    with sqlite_place(files_from=INLINE_BYTES) as place, SessionManager.from_settings(place.settings()) as manager:
        session = manager.session(tenant="acme", user="u", session="chat")
        before = (0, 0)
        for size, goal in _STORED.items():
            for text in sample_texts(SIZES[size]):
                session.write(text)
            with rows_of(place.database_url) as database:
                stored, plain = (
                    database.number(f"SELECT sum({column}) FROM tenancy_results")  # noqa: S608 - no one's but ours
                    for column in ("stored_bytes", "size_bytes")
                )
            yield Row(f"write {size}", "stored bytes a byte", goal, figure=(stored - before[0]) / (plain - before[1]))
            before = (stored, plain)


def inside_rows(place: Place, texts: Texts) -> Iterator[Row]:
    """What is asked of SQLite and of the cipher."""
    with counting() as counters, SessionManager.from_settings(place.settings(durability="process")) as manager:
        for operation, call in operations(manager, texts).items():
            most = dict.fromkeys((STATEMENTS, COMMITS, OPENED), 0)
            for number in range(WARM_UPS + 2 * COUNTED):
                before = (counters.statements, counters.commits, counters.opened_bytes)
                call(number)
                after = (counters.statements, counters.commits, counters.opened_bytes)
                if number >= WARM_UPS:
                    for kind, was, now in zip(most, before, after, strict=True):
                        most[kind] = max(most[kind], now - was)
            yield from _rows(operation, most)


def outside_rows(place: Place, texts: Texts) -> Iterator[Row]:
    """What is asked of the kernel."""
    found = traced_counts(place, texts)
    for operation, counts in found["process"].items():
        yield from _rows(operation, {**counts, DURABLE_SYNCS: found["power"][operation][SYNCS]})


def _rows(operation: str, counts: Mapping[str, float]) -> Iterator[Row]:
    for kind, number in counts.items():
        limit = _LIMITS[operation].get(kind, 0)
        if limit or number:
            yield Row(operation, kind, limit, figure=number)
