"""Whatever is done in whatever order, the library does what a model in plain Python says."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import INLINE_BYTES
from tests.core.state_machine.keys import KeysMachine
from tests.core.state_machine.machine import Machine
from tests.core.state_machine.place import Place

#: Each store on each database, both ways results take where there are two. A store in memory needs a catalogue too.
PLACES = {
    "memory-sqlite-stored": ("memory", "sqlite", "stored"),
    "memory-sqlite-inline": ("memory", "sqlite", "inline"),
    "file-sqlite-stored": ("file", "sqlite", "stored"),
    "file-sqlite-inline": ("file", "sqlite", "inline"),
    "file-postgresql-stored": ("file", "postgresql", "stored"),
    "file-postgresql-inline": ("file", "postgresql", "inline"),
    "database-sqlite": ("database", "sqlite", "inline"),
    "database-postgresql": ("database", "postgresql", "inline"),
}


#: Where a way of results is paired with a store and a database that run the other way already.
SLOW = {"memory-sqlite-inline", "file-sqlite-inline", "file-postgresql-stored"}


@pytest.fixture(
    params=[pytest.param(place, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, place in PLACES.items()]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each in turn."""
    store, database, way = request.param
    on_sqlite = database == "sqlite"
    opened = Place(
        store,
        inline_bytes=INLINE_BYTES[way],
        upgraded_file=request.getfixturevalue("upgraded_file") if on_sqlite else None,
        postgres_url=None if on_sqlite else request.getfixturevalue("core_postgres_url"),
        folder=tmp_path,
    )
    yield opened
    opened.close()


def run(place: Place, *, examples: int, steps: int, is_random: bool) -> None:
    run_state_machine_as_test(
        lambda: KeysMachine(place),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not is_random,
            print_blob=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of readings of what was damaged say so in the log; a failure shall show its steps."""
    caplog.set_level(logging.CRITICAL, logger="tenancy")


# A failure is made small before it is shown, which takes its time.
@pytest.mark.case(12, 13, 29, 60, 70, 79, 95, 96, 99, 111, 134, 137, 138, 141)
@pytest.mark.timeout(600)
def test_any_thirty_steps_leave_what_the_model_says(place: Place) -> None:
    # The same ones each time; a server is asked over a socket.
    run(place, examples=3 if place.on_postgresql else 5, steps=30, is_random=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_any_sixty_steps_leave_what_the_model_says(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "readings", 12)
    # Others each time, and as many as somebody has patience for, where that is asked for.
    asked = int(os.environ.get("STATE_MACHINE_EXAMPLES", "0"))
    run(place, examples=asked or (4 if place.on_postgresql else 10), steps=60, is_random=asked > 0)
