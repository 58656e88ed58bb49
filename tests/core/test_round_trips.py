"""How often one call waits for PostgreSQL: counted on the wire."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenancy import Lifetime, Limits, Session, SessionManager
from tests.conftest import ManagerFactory

HOUR = timedelta(hours=1)
WHO = {"tenant": "acme", "user": "ann", "session": "chat"}


@pytest.fixture
def inline_bytes() -> int:
    """So that there are results of both ways."""
    return 32768


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """SQLite is not reached over a wire."""
    return postgres_url


@contextmanager
def counted(manager: SessionManager, trace: Path) -> Iterator[list[int]]:
    """Count how often it is the server's turn to speak."""
    engine = manager._backend.catalogue.database.engine
    borrowed = engine.raw_connection()
    driver: psycopg.Connection = borrowed.driver_connection  # type: ignore[assignment]
    borrowed.close()
    # It is the only one there is, so that it serves whatever comes.
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    found: list[int] = []
    with trace.open("w") as file:
        driver.pgconn.trace(file.fileno())
        try:
            yield found
        finally:
            driver.pgconn.untrace()
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    directions = re.findall(r"^[-0-9: .]+\t([FB])\t", trace.read_text(errors="replace"), re.MULTILINE)
    found.append("".join(directions).count("FB"))


@pytest.mark.parametrize(
    ("trips", "act"),
    [
        (2, lambda session, _: session.write(b"x" * 4000)),
        (2, lambda session, _: session.write(b"x" * 30_000)),
        # A row that is pending, and its commit.
        (3, lambda session, _: session.write(b"x" * 50_000)),
        (1, lambda session, reference: session.read(reference)),
        (1, lambda session, reference: session.read_page(reference, max_chars=10)),
        (3, lambda session, reference: session.delete(reference)),
    ],
    ids=["small write", "write", "write to a file", "read", "page", "delete"],
)
def test_a_call_waits_for_the_server_this_often(
    make_manager: ManagerFactory, tmp_path: Path, trips: int, act: Callable[[Session, str], object]
) -> None:
    manager = make_manager(durability="process")
    session = manager.session(**WHO)
    # Everything is prepared.
    references = [session.write(f"result {number}") for number in range(5)]
    session.write(b"x" * 50_000)
    with counted(manager, tmp_path / "trace") as found:
        act(session, references[0])
    assert found == [trips]


def test_a_session_that_is_there_is_opened_in_one_round_trip(make_manager: ManagerFactory, tmp_path: Path) -> None:
    manager = make_manager(durability="process")
    for _ in range(2):
        manager.session(**WHO).close()
    with counted(manager, tmp_path / "trace") as found:
        manager.session(**WHO)
    assert found == [1]


@pytest.mark.parametrize(
    ("trips", "who", "settings"),
    [
        (2, {}, {}),
        (2, {}, {"limits": Limits(session_bytes=1000), "lifetime": Lifetime(idle=HOUR)}),
        (2, {"session": "expired"}, {}),
        (2, {"user": "new"}, {}),
        # Its name is looked up, and nothing is there to be looked at.
        (2, {"tenant": "new"}, {}),
    ],
    ids=["session", "limits", "expired", "user", "tenant"],
)
def test_a_new_session_takes_this_many_round_trips(
    make_manager: ManagerFactory, tmp_path: Path, trips: int, who: dict[str, str], settings: dict[str, Any]
) -> None:
    manager = make_manager(durability="process")
    manager.session(**WHO)
    manager.session(**{**WHO, "session": "expired"}, lifetime=Lifetime(idle=HOUR))
    manager.clock.advance(HOUR)
    with counted(manager, tmp_path / "trace") as found:
        manager.session(**{**WHO, "session": "later", **who}, **settings)
    assert found == [trips]
