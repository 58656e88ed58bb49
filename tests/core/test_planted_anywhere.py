"""Whatever is planted wherever below the store's root, and whatever is called in between: nothing gets in or out."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy import Session, SessionManager, TenancyError
from tests.conftest import ManagerFactory
from tests.core.intruder import LARGE_BYTES, LARGE_TEXT, Intruder
from tests.core.ledger import Ledger
from tests.stores.plants import PLANTS, Plant, plant_fifo, plant_link_to_a_directory

#: What is called, on the session in question or beside it.
CALLS: Final[dict[str, Callable[[SessionManager, Session, str], object]]] = {
    "read": lambda manager, session, reference: session.read(reference),
    "page": lambda manager, session, reference: session.read_page(reference, offset=90_000, max_chars=10).text,
    "write": lambda manager, session, reference: session.write(LARGE_BYTES),
    "list": lambda manager, session, reference: list(session.results()),
    "delete": lambda manager, session, reference: session.delete(next(session.results()).reference),
    "verify": lambda manager, session, reference: manager.verify(),
    "cleanup": lambda manager, session, reference: manager.cleanup(),
    "other": lambda manager, session, reference: manager.session(tenant="globex", user="bob").write(LARGE_BYTES),
}
#: What may come back, if anything does.
ANSWERS: Final = {"read": LARGE_TEXT, "page": LARGE_TEXT[90_000:90_010]}
#: Something is planted, and then several things are called.
ROUNDS: Final = st.lists(
    st.tuples(
        st.sampled_from(["file", "session", "tenant"]),
        # In place of a directory, a link to another is the most dangerous thing there is.
        st.sampled_from(PLANTS) | st.sampled_from([plant_fifo, plant_link_to_a_directory]),
        st.lists(st.sampled_from(list(CALLS)), min_size=3, max_size=6, unique=True),
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A folder for each example."""
    return (tmp_path / f"example {number}" for number in itertools.count())


class Planter:
    """Puts things in place of a session's files and directories, and keeps aside what was there."""

    def __init__(self, intruder: Intruder, session: Session, aside: Path) -> None:
        self._intruder = intruder
        self._room = intruder.room_of(session)
        # The text, which is read again and again.
        self._file = max(self._room.iterdir(), key=lambda path: path.stat().st_size)
        self._aside = aside
        self._moved: dict[Path, Path] = {}

    def plant(self, level: str, plant: Plant) -> None:
        place = {"file": self._file, "session": self._room, "tenant": self._room.parent}[level]
        # Not through what was planted before.
        if {place, *place.parents}.isdisjoint(self._moved) and place.exists():
            self._moved[place] = self._aside / str(len(self._moved))
            place.rename(self._moved[place])
            plant(place, self._intruder.target_for(self._file))

    def put_back(self) -> None:
        for place, moved in reversed(self._moved.items()):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            place.unlink(missing_ok=True)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            moved.rename(place)


@pytest.mark.case(14, 16, 17, 18, 23, 89)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=ROUNDS)
def test_whatever_is_planted_wherever_nothing_gets_in_or_out_and_nothing_is_charged_for_ever(
    manager: SessionManager,
    make_manager: ManagerFactory,
    ledger: Ledger,
    folders: Iterator[Path],
    rounds: list[tuple[str, Plant, list[str]]],
) -> None:
    folder = next(folders)
    folder.mkdir()
    session = manager.session(tenant=folder.name, user="ann")
    reference = session.write(LARGE_TEXT)
    session.write(LARGE_BYTES)
    intruder = Intruder(make_manager, ledger, folder)
    planter = Planter(intruder, session, folder)
    for level, plant, calls in rounds:
        planter.plant(level, plant)
        for call in calls:
            with suppress(TenancyError, StopIteration):
                answer = CALLS[call](manager, session, reference)
                assert answer == ANSWERS.get(call, answer)
            assert intruder.changes() == []
    planter.put_back()
    manager.erase_tenant(tenant=folder.name)
    manager.erase_tenant(tenant="globex")
    manager.clock.advance(timedelta(minutes=3))
    manager.cleanup()
    assert intruder.changes() == []
    assert [found.kind for found in manager.verify().findings if found.kind != "unknown_bytes"] == []
    assert [row for row in ledger.counters() if any(row[1:])] == []
    assert ledger.count("tenancy_results") == 0
