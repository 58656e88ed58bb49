"""
A million results in the catalogue: what everybody does all day costs what it costs with ten thousand.

Not measured in time, which says more about the machine: SQLite counts the instructions of its own that it runs.
`benchmarks/growth.py` measures time, on PostgreSQL too.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from tenancy import SessionManager
from tests.core.bulk import PROBES, Probe, Shape, drifts, fill
from tests.core.daily import Daily
from tests.core.query_plans import MAY_GO_THROUGH_ALL, plans

FEW, MANY = 10_000, 1_000_000
ROUNDS = 9
_PAGE = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Instructions:
    """Counts the instructions that SQLite runs for a manager."""

    def __init__(self, manager: SessionManager) -> None:
        self._count = 0
        # There is one connection, which this thread gets each time.
        pool = manager._backend.catalogue.database.pool
        connection = pool.take()
        connection.set_progress_handler(self._one_more, 1)
        pool.give(connection)

    def taken(self) -> int:
        """Say how many there were since it was last asked."""
        count, self._count = self._count, 0
        return count

    def _one_more(self) -> int:
        self._count += 1
        return 0


@dataclass(frozen=True, slots=True)
class Filled:
    """A catalogue with so many results."""

    manager: SessionManager
    probes: list[Probe]
    database_url: str


def filled(folder: Path, results: int) -> Filled:
    manager = SessionManager.local(folder, durability="process")
    url = f"sqlite:///{folder / 'catalogue.sqlite3'}"
    return Filled(manager, fill(manager, url, Shape(results)), url)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Filled, Filled]]:
    """A small and a large catalogue. Filling the large one takes a minute."""
    folder = tmp_path_factory.mktemp("growth")
    small, large = filled(folder / "small", FEW), filled(folder / "large", MANY)
    yield small, large
    for each in (small, large):
        each.manager.close()


@pytest.mark.case(136)
def test_no_call_takes_more_of_the_database_among_a_million_results_than_among_ten_thousand(
    both: tuple[Filled, Filled],
) -> None:
    medians: list[dict[str, float]] = []
    for of in both:
        assert drifts(of.database_url) == 0
        counter, operations = Instructions(of.manager), Daily(of.manager, of.probes).operations
        counts: dict[str, list[int]] = {name: [] for name in operations}
        for _ in range(ROUNDS):
            for name, prepare in operations.items():
                call = prepare()
                counter.taken()
                call()
                counts[name].append(counter.taken())
        medians.append({name: statistics.median(found) for name, found in counts.items()})
        assert drifts(of.database_url) == 0
    small, large = medians
    assert min(small.values()) > 50
    assert {name: (small[name], count) for name, count in large.items() if count > 1.05 * small[name]} == {}


@pytest.mark.case(136)
def test_no_statement_somebody_waits_for_goes_through_a_whole_table(both: tuple[Filled, Filled]) -> None:
    _, large = both
    found = plans(large.manager, large.probes[-1].names)
    assert {name for name, plan in found.items() if plan.whole} - set(MAY_GO_THROUGH_ALL) == set()
    assert len(found) > 60
    # A list of exceptions that grew stale would hide the next one.
    assert set(MAY_GO_THROUGH_ALL) <= set(found)


def test_the_last_page_of_a_listing_takes_no_more_than_the_first(both: tuple[Filled, Filled]) -> None:
    _, large = both
    counter = Instructions(large.manager)
    sessions = large.manager.sessions(tenant="huge")
    taken = []
    while page := list(islice(sessions, _PAGE)):
        taken.append(counter.taken() / len(page))
    assert len(taken) > 20
    assert max(taken) < 1.5 * min(taken)


def test_the_oldest_results_of_the_longest_session_are_found_as_quickly_as_the_newest(
    both: tuple[Filled, Filled],
) -> None:
    _, large = both
    counter, results = Instructions(large.manager), large.manager._backend.catalogue.results
    ids = large.manager.session(**large.probes[0].names)._opened.ids
    taken = []
    for before in (None, MANY // 20, 51):
        counter.taken()
        assert len(results.list(ids, before=before, page=50).results) == 50
        taken.append(counter.taken())
    assert max(taken) < 1.1 * min(taken)
    assert len(large.probes) == PROBES
