"""Processes whose clocks disagree: with a server there is one time, and nobody loses anything early."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from tenancy import Lifetime, Session, SessionManager, SessionNotFound
from tests.conftest import ManagerFactory
from tests.core.interposed import Store
from tests.core.ledger import Ledger

HOUR_NS = 3600 * 10**9


@pytest.fixture
def database_kind() -> str:
    """Who shares a SQLite file shares a machine, and its clock."""
    return "postgresql"


@pytest.fixture
def at_another_hour(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Moves the clock of this process, as far as the library can see it."""
    real = time.time_ns

    def moved(hours: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: real() + hours * HOUR_NS)

    return moved


@pytest.mark.parametrize("hours", [1, -1])
def test_a_cleaner_whose_clock_is_an_hour_off_reclaims_nothing_early(
    hours: int,
    make_manager: ManagerFactory,
    manager: SessionManager,
    ledger: Ledger,
    at_another_hour: Callable[[int], None],
) -> None:
    short = Lifetime(idle=timedelta(minutes=10), result=timedelta(minutes=5))
    session = manager.session(tenant="acme", user="ann", session="chat", lifetime=short)
    contents = {session.write(content): content for content in ("small", b"x" * 50_000)}
    at_another_hour(hours)
    other = make_manager(durability="process")
    report = other.cleanup()
    assert (report.sessions, report.results) == (0, 0)
    assert other.verify(repair=True).ok
    seen = other.session(tenant="acme", user="ann", session="chat")
    for reference, content in contents.items():
        assert session.read(reference) == seen.read(reference) == content
    ledger.require_balanced()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_write_under_way_is_left_alone_by_a_cleaner_whose_clock_is_an_hour_off(
    hours: int,
    make_manager: ManagerFactory,
    session: Session,
    store: Store,
    ledger: Ledger,
    at_another_hour: Callable[[int], None],
) -> None:
    reports = []

    def clean(operation: str, name: str) -> None:
        if operation == "put":
            at_another_hour(hours)
            other = make_manager(durability="process")
            reports.append(other.cleanup())
            reports.append(other.verify(repair=True))
            at_another_hour(0)

    store.after = clean
    reference = session.write(b"x" * 50_000)
    store.after = lambda operation, name: None
    assert len(reports) == 2
    assert session.read(reference) == b"x" * 50_000
    ledger.require_balanced()


def test_what_has_expired_has_expired_for_a_reader_whose_clock_is_an_hour_late_too(
    make_manager: ManagerFactory, manager: SessionManager, at_another_hour: Callable[[int], None]
) -> None:
    at_another_hour(-1)
    late = make_manager(durability="process")
    session = late.session(tenant="acme", user="ann", session="chat", lifetime=Lifetime(idle=timedelta(minutes=10)))
    reference = session.write("x")
    at_another_hour(0)
    assert session.read(reference) == "x"
    # Ten minutes later by the server's clock, whatever this process thinks.
    late.clock.advance(timedelta(minutes=10))
    with pytest.raises(SessionNotFound):
        session.read(reference)
