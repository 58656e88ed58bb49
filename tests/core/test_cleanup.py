"""Cleanup: reclaims what has ended, in bounded steps, by anybody, exactly once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tenancy import ConfigurationError, Lifetime, Session, SessionManager, cleanup
from tenancy.cleanup import Cleaner, CleanupReport
from tests.core.interposed import Killed, Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]


HOUR = timedelta(hours=1)


SHORT = Lifetime(idle=HOUR)


def summed(*reports: CleanupReport) -> tuple[int, int, int]:
    return (
        sum(report.sessions for report in reports),
        sum(report.results for report in reports),
        sum(report.reclaimed_bytes for report in reports),
    )


def fill(open_session: Open, *, sessions: int, lifetime: Lifetime = SHORT) -> None:
    """Sessions with a small and a large result each."""
    for number in range(sessions):
        session = open_session(f"s{number}", user=f"u{number % 2}", lifetime=lifetime)
        session.write("small")
        session.write(b"x" * 50_000)


def test_cleanup_removes_expired_sessions_with_all_they_had_and_nothing_else(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    fill(open_session, sessions=3)
    live = open_session("live", lifetime=Lifetime(idle=10 * HOUR))
    small, large = live.write("small"), live.write(b"y" * 50_000)
    assert manager.cleanup() == CleanupReport(sessions=0, results=0, reclaimed_bytes=0, dry_run=False, complete=True)
    manager.clock.advance(HOUR)
    report = manager.cleanup()
    assert report == CleanupReport(sessions=3, results=6, reclaimed_bytes=150_015, dry_run=False, complete=True)
    assert (live.read(small), live.read(large)) == ("small", b"y" * 50_000)
    assert ledger.where() == ledger.ways(small=1, large=1)
    assert len(ledger.directories) == 2
    ledger.require_balanced()
    manager.delete_session(tenant="acme", user="ann", session="live")
    ledger.require_empty()


@pytest.mark.parametrize("batch_size", [1, 2, 500])
def test_cleanup_works_in_batches_of_any_size(
    manager: SessionManager, open_session: Open, ledger: Ledger, batch_size: int
) -> None:
    fill(open_session, sessions=5)
    kept = open_session("kept", lifetime=Lifetime(idle=10 * HOUR, result=HOUR))
    for number in range(3):
        kept.write(f"{number}")
    manager.clock.advance(HOUR)
    expected = (5, 13, 250_028)
    assert summed(manager.cleanup(dry_run=True, batch_size=batch_size)) == expected
    assert summed(manager.cleanup(batch_size=batch_size)) == expected
    assert list(kept.results()) == []
    assert kept.usage().results == 0
    assert ledger.where() == (0, 0)
    ledger.require_balanced()


@pytest.mark.case(139)
def test_a_dry_run_says_what_the_real_run_does_and_changes_nothing(
    manager: SessionManager, open_session: Open, store: Store, ledger: Ledger
) -> None:
    fill(open_session, sessions=2)
    live = open_session("live", lifetime=Lifetime(idle=10 * HOUR))
    live.write("kept")
    leave_pending(live, store)
    leave_deleting(live, store)
    results = open_session("results", lifetime=Lifetime(idle=10 * HOUR, result=HOUR))
    results.write("expires on its own")
    manager.clock.advance(HOUR)
    before = ledger.snapshot()
    forecast = manager.cleanup(dry_run=True)
    assert ledger.snapshot() == before
    assert manager.cleaned_at() is None
    assert (forecast.dry_run, forecast.complete) == (True, True)
    report = manager.cleanup()
    assert summed(report) == summed(forecast)
    assert summed(report) == (2, 4 + 2 + 1, 100_010 + 80_000 + 18)
    assert manager.cleaned_at() is not None
    assert summed(manager.cleanup(dry_run=True)) == (0, 0, 0)
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def leave_pending(session: Session, store: Store) -> None:
    """A writer dies after its bytes are in the store."""

    def die(operation: str, name: str) -> None:
        raise Killed

    store.after = lambda operation, name: die(operation, name) if operation == "put" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenancy.catalogue.results.ResultTable.abandon", lambda *_: die("", ""))
        with pytest.raises(Killed):
            session.write(b"p" * 40_000)
    store.after = lambda operation, name: None


def leave_deleting(session: Session, store: Store) -> None:
    """A deleter dies before the bytes are gone."""
    reference = session.write(b"d" * 40_000)

    def die(operation: str, name: str) -> None:
        if operation == "delete":
            raise Killed

    store.before = die
    with pytest.raises(Killed):
        session.delete(reference)
    store.before = lambda operation, name: None


@pytest.mark.case(49, 138)
def test_what_a_dead_writer_or_deleter_left_is_reclaimed_when_its_lease_has_run_out(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    leave_pending(session, store)
    leave_deleting(session, store)
    assert ledger.states() == {"pending": 1, "deleting": 1}
    assert ledger.where() == (0, 2)
    assert list(session.results()) == []
    # Somebody may still be at it.
    assert summed(manager.cleanup()) == (0, 0, 0)
    manager.clock.advance(timedelta(seconds=115))
    assert summed(manager.cleanup()) == (0, 0, 0)
    assert session.usage().used_bytes == 80_000
    manager.clock.advance(timedelta(seconds=10))
    assert summed(manager.cleanup()) == (0, 2, 80_000)
    assert session.usage().used_bytes == 0
    assert ledger.where() == (0, 0)
    ledger.require_balanced()


def counting(steps: int) -> Callable[[], float]:
    """A clock that stands still so many times and then jumps."""
    ticks = iter([0.0] * steps)
    return lambda: next(ticks, 1000.0)


@pytest.mark.case(139)
@pytest.mark.case(126)
def test_a_bounded_cleanup_says_so_and_the_next_one_carries_on_at_once(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A step for each session.
    monkeypatch.setattr(cleanup, "STEP_SECONDS", 0)
    fill(open_session, sessions=6)
    kept = open_session("kept", lifetime=Lifetime(idle=10 * HOUR, result=HOUR))
    for _ in range(6):
        kept.write(b"z" * 50_000)
    manager.clock.advance(HOUR)
    forecast = manager.cleanup(dry_run=True)
    reports = []
    for _ in range(40):
        cleaner = Cleaner(manager._backend, across=True, monotonic=counting(4))
        reports.append(cleaner.run(dry_run=False, batch_size=500, max_seconds=10))
        if reports[-1].complete:
            break
        assert manager.cleaned_at() is None
    assert 3 < len(reports) < 20
    assert [report.complete for report in reports] == [False] * (len(reports) - 1) + [True]
    assert summed(*reports) == summed(forecast) == (6, 18, 6 * 50_005 + 6 * 50_000)
    assert ledger.where() == (0, 0)
    ledger.require_balanced()


def test_cleanup_with_a_real_bound_ends(manager: SessionManager, open_session: Open, ledger: Ledger) -> None:
    fill(open_session, sessions=3)
    manager.clock.advance(HOUR)
    reports = [manager.cleanup(max_seconds=1e-9)]
    while not reports[-1].complete:
        reports.append(manager.cleanup(max_seconds=1e-9))
        assert len(reports) < 50
    assert summed(*reports) == (3, 6, 150_015)
    ledger.require_empty()


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": -1}, {"max_seconds": 0}, {"max_seconds": -1.0}])
def test_bounds_that_are_none_are_refused(manager: SessionManager, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        manager.cleanup(**wrong)


def test_a_bound_that_is_not_a_number_is_refused(manager: SessionManager) -> None:
    with pytest.raises(ConfigurationError):
        manager.cleanup(max_seconds=float("nan"))


def test_cleanup_reports_how_far_it_is(manager: SessionManager, open_session: Open) -> None:
    fill(open_session, sessions=3)
    manager.clock.advance(HOUR)
    seen: list[tuple[int, int]] = []
    manager.cleanup(on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (9, 9)
    assert seen == sorted(seen)


@pytest.mark.case(134)
def test_an_expired_session_is_unreadable_before_any_of_its_bytes_are_removed(
    manager: SessionManager, open_session: Open, store: Store, ledger: Ledger
) -> None:
    fill(open_session, sessions=3)
    manager.clock.advance(HOUR)
    keys: list[int] = []

    def look(operation: str, name: str) -> None:
        keys.append(ledger.count("tenancy_session_keys"))
        # One look is enough, and on SQLite the second would wait for the transaction around it.
        store.before = lambda operation, name: None

    store.before = look
    manager.cleanup()
    assert keys == [0]
