"""The suites of the command, by name."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from benchmarks.speed.chats import agent_rows, opening_rows, sequence_rows
from benchmarks.speed.counts import count_rows
from benchmarks.speed.crowds import process_rows, thread_rows
from benchmarks.speed.endings import cleanup_rows
from benchmarks.speed.floors import floor_rows
from benchmarks.speed.memory import memory_rows
from benchmarks.speed.rivalry import rival_rows
from benchmarks.speed.rows import Row
from benchmarks.speed.starts import start_rows
from benchmarks.speed.trips import trip_rows
from benchmarks.speed.works import durable_rows, page_rows, postgresql_rows, sqlite_rows, uncompressed_rows

#: Each is told how many blocks of calls a contender has; what is not timed in blocks takes no notice.
SUITES: Final[Mapping[str, Callable[[int], Iterator[Row]]]] = {
    "counts": count_rows,
    "trips": trip_rows,
    "sqlite": sqlite_rows,
    "uncompressed": uncompressed_rows,
    "floors": floor_rows,
    "pages": page_rows,
    "durable": durable_rows,
    "postgresql": postgresql_rows,
    "opening": opening_rows,
    "sequence": sequence_rows,
    "agent": agent_rows,
    "threads": thread_rows,
    "processes": process_rows,
    "cleanup": cleanup_rows,
    "memory": memory_rows,
    "imports": start_rows,
    "rivals": rival_rows,
}


def rows_of(suite: str, *, rounds: int) -> Iterator[Row]:
    """
    Measure one part of the table.

    :param rounds: How many blocks of calls each contender has; large results have fewer.
    """
    return SUITES[suite](rounds)
