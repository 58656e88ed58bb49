"""Several workers, workers that die, and sessions that cannot be removed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stores.errors import StoreUnavailable
from tenancy import Lifetime, Session, SessionManager, cleanup
from tenancy.cleanup import CleanupReport
from tests.conftest import ManagerFactory
from tests.core.interposed import Killed, Store, interpose
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


@pytest.mark.case(136)
def test_several_workers_at_once_reclaim_each_session_exactly_once(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    managers = [make_manager(durability="process") for _ in range(3)]
    first = managers[0]

    def opened(name: str, *, user: str, lifetime: Lifetime) -> Session:
        return first.session(tenant=f"t-{user}", user=user, session=name, lifetime=lifetime)

    fill(opened, sessions=12)
    kept = opened("kept", user="u0", lifetime=Lifetime(idle=10 * HOUR, result=HOUR))
    for _ in range(6):
        kept.write(b"z" * 50_000)
    survivor = opened("survivor", user="u1", lifetime=Lifetime(idle=10 * HOUR))
    reference = survivor.write("here")
    for manager in managers:
        manager.clock.advance(HOUR)
    forecast = first.cleanup(dry_run=True)
    ready = threading.Barrier(3)

    def work(manager: SessionManager) -> CleanupReport:
        ready.wait()
        return manager.cleanup(batch_size=2)

    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(work, managers))
    assert summed(*reports) == summed(forecast) == (12, 30, 12 * 50_005 + 300_000)
    assert survivor.read(reference) == "here"
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def test_one_session_that_cannot_be_removed_keeps_no_other_from_being_reclaimed(
    manager: SessionManager, open_session: Open, store: Store, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    fill(open_session, sessions=3)
    manager.clock.advance(HOUR)
    stuck: list[int] = []

    def refuse(operation: str, name: str) -> None:
        if operation == "destroy" and len(stuck) < 1:
            stuck.append(1)
            raise StoreUnavailable("Cannot be removed.")

    store.before = refuse
    report = manager.cleanup()
    assert (summed(report), report.complete) == ((2, 4, 100_010), False)
    assert manager.cleaned_at() is None
    events = [record for record in caplog.records if getattr(record, "event", "") == "not_reclaimed"]
    assert len(events) == 1
    ledger.require_balanced()
    # Without waiting for anything.
    report = manager.cleanup()
    assert (summed(report), report.complete) == ((1, 2, 50_005), True)
    ledger.require_empty()


@pytest.mark.case(139)
@pytest.mark.parametrize(("step_seconds", "left"), [(0, 3), (1000, 4)], ids=["one-by-one", "together"])
def test_a_worker_killed_in_the_middle_leaves_what_the_next_one_finishes(
    make_manager: ManagerFactory, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, step_seconds: float, left: int
) -> None:
    monkeypatch.setattr(cleanup, "STEP_SECONDS", step_seconds)
    dying, next_one = make_manager(durability="process"), make_manager(durability="process")
    store = interpose(dying)

    def opened(name: str, *, user: str, lifetime: Lifetime) -> Session:
        return dying.session(tenant="acme", user=user, session=name, lifetime=lifetime)

    fill(opened, sessions=4)
    dying.clock.advance(HOUR)
    next_one.clock.advance(HOUR)
    calls: list[str] = []

    def die(operation: str, name: str) -> None:
        calls.append(operation)
        if calls.count("destroy") == 3:
            raise Killed

    store.after = die
    with pytest.MonkeyPatch.context() as patch:
        # A process that is gone gives nothing back.
        patch.setattr("tenancy.catalogue.reclaim.ReclaimTable.release", lambda *_, **__: None)
        with pytest.raises(Killed):
            dying.cleanup()
    assert ledger.count("tenancy_sessions") == left
    # Its claims keep others away for a minute and no longer.
    next_one.cleanup()
    next_one.clock.advance(timedelta(seconds=61))
    report = next_one.cleanup()
    assert (report.sessions, report.complete) == (left, True)
    ledger.require_empty()


def test_a_session_that_somebody_else_removed_meanwhile_is_refunded_once(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    worker, eraser = make_manager(durability="process"), make_manager(durability="process")
    store = interpose(worker)
    kept = worker.session(tenant="acme", user="bob", lifetime=Lifetime(idle=10 * HOUR))
    reference = kept.write("kept")
    worker.session(tenant="acme", user="ann", session="gone", lifetime=SHORT).write("gone")
    worker.clock.advance(HOUR)

    def erase(operation: str, name: str) -> None:
        # The worker has the session's files removed, and not yet its rows.
        store.after = lambda operation, name: None
        assert eraser.erase_user(tenant="acme", user="ann").sessions == 1

    store.after = erase
    report = worker.cleanup()
    assert (summed(report), report.complete) == ((0, 0, 0), True)
    assert eraser.usage(tenant="acme").sessions == 1
    assert kept.read(reference) == "kept"
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()
