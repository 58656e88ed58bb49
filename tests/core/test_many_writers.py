"""Many writers of one catalogue at once: nothing is lost, nothing is given out twice, nobody meets an error."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenancy import Session
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.forked import in_children

WRITERS = 8


@pytest.mark.case(109)
@pytest.mark.parametrize("writes_each", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_eight_processes_that_write_at_once_lose_nothing(
    writes_each: int, make_manager: ManagerFactory, ledger: Ledger
) -> None:
    def writes(number: int) -> list[str]:
        with make_manager(durability="process") as manager:
            # Two sessions, so that four processes write into each.
            session = manager.session(tenant="acme", user="u", session=f"s{number % 2}")
            return [session.write(f"{number} {n}") for n in range(writes_each)]

    written: list[list[str]] = in_children([lambda number=number: writes(number) for number in range(WRITERS)])

    manager = make_manager(durability="process")
    for half in (0, 1):
        session = manager.session(tenant="acme", user="u", session=f"s{half}")
        references = [reference for number in range(half, WRITERS, 2) for reference in written[number]]
        assert len(references) == len(set(references)) == WRITERS // 2 * writes_each
        assert {result.reference for result in session.results()} == set(references)
        for number in range(half, WRITERS, 2):
            texts = [session.read(reference) for reference in written[number]]
            assert texts == [f"{number} {n}" for n in range(writes_each)]
    ledger.require_balanced()


@pytest.mark.case(110)
def test_fifty_writes_of_one_name_at_once_are_fifty_results(session: Session, ledger: Ledger) -> None:
    everybody_is_here = threading.Barrier(50)

    def write(number: int) -> str:
        everybody_is_here.wait(timeout=60)
        return session.write(f"text {number}", name="1_fetch_call0.txt")

    with ThreadPoolExecutor(max_workers=50) as pool:
        references = list(pool.map(write, range(50)))

    assert len(set(references)) == 50
    assert [session.read(reference) for reference in references] == [f"text {number}" for number in range(50)]
    assert {result.name for result in session.results()} == {"1_fetch_call0.txt"}
    ledger.require_balanced()
