"""The Haystack seam as a matrix: every cell of the table, run with a real agent."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tenancy.manager import SessionManager
from tenancy.seam.binding import RoutedStore
from tests.conftest import ManagerFactory
from tests.haystack.conftest import Events
from tests.haystack.matrix import table
from tests.haystack.matrix.agents import Cast
from tests.haystack.matrix.table import GIVEN, PARTS, SHAPES, WAYS, NotApplicable, Outcome, cells, diagonal, expected
from tests.haystack.matrix.trial import Trial
from tests.haystack.matrix.verdict import SIGHTS
from tests.haystack.matrix.ways import WAYS as STARTERS


@pytest.fixture(scope="module")
def cast() -> Cast:
    """The agents of this module: made once, whatever the way, the session and the database."""
    return Cast()


@pytest.fixture
def sqlite_manager(sqlite_url: str, tmp_path: Path) -> Iterator[SessionManager]:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    factory = ManagerFactory(database_url=sqlite_url, inline_bytes=32768, folder=folder)
    yield factory(durability="process")
    factory.close()


def test_the_table_has_an_outcome_or_a_reason_for_every_cell() -> None:
    every = [expected(cell) for cell in cells()]
    assert len(every) == len(WAYS) * len(SHAPES) * len(PARTS) * len(GIVEN) == 7 * 5 * 4 * 9
    assert sum(isinstance(outcome, Outcome) for outcome in every) == 1260 - 7 * 6
    assert all(outcome.reason for outcome in every if isinstance(outcome, NotApplicable))
    assert {outcome.sight for outcome in every if isinstance(outcome, Outcome)} == set(SIGHTS)


def test_the_table_has_no_row_that_is_no_cell() -> None:
    assert set(STARTERS) == set(WAYS)
    assert set(table.SHEETS) == set(SHAPES)
    for sheet in (table.NESTED, table.PLAIN):
        assert set(sheet) == set(GIVEN)
        assert {len(row) for row in sheet.values()} == {len(PARTS)}


def test_the_diagonal_has_every_pair_that_matters() -> None:
    chosen = diagonal()
    assert {(cell.part, cell.given) for cell in chosen} == set(product(PARTS, GIVEN))
    assert {cell.way for cell in chosen} == set(WAYS)
    assert {cell.shape for cell in chosen} == set(SHAPES)
    assert all(isinstance(expected(cell), Outcome) for cell in chosen)


@pytest.mark.case(72, 73, 104, 105)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", WAYS)
def test_every_cell_comes_out_as_the_table_says(
    way: str, shape: str, cast: Cast, sqlite_manager: SessionManager, events: Events
) -> None:
    assert Trial(cast, sqlite_manager, events).failures(cells(way=way, shape=shape)) == []


@pytest.mark.case(12, 13, 72, 73, 81, 90, 104, 105)
def test_the_diagonal_comes_out_alike_on_every_database(
    make_manager: Callable[..., SessionManager], cast: Cast, events: Events
) -> None:
    assert Trial(cast, make_manager(durability="process"), events).failures(diagonal()) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_no_constructor_of_ours_holds_a_store_that_could_take_anything(shape: str, cast: Cast) -> None:
    agent = cast.agent(shape=shape, part="pruning")
    offload, compaction = agent.hooks["after_tool"][0], agent.hooks["before_llm"][-1]
    stores = [offload.hook.store, offload._driven.store, compaction._offload.compactor.store]
    assert {type(store) for store in stores} == {RoutedStore}
    assert [vars(store) for store in stores] == [{}, {}, {}]
