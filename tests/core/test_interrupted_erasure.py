"""Erasures that are interrupted, refused, or not alone: resumed by whoever comes next, under one receipt."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from stores.errors import StoreUnavailable
from tenancy import (
    Lifetime,
    Receipt,
    Session,
    SessionManager,
    SessionNotFound,
    StorageUnavailable,
)
from tests.conftest import ManagerFactory
from tests.core.interposed import Killed, Store, interpose
from tests.core.ledger import Ledger
from tests.core.people import LEVELS, TENANT, USER, People, erase_tenant, erase_user, numbers, require_nothing

Open = Callable[..., Session]


def stop_after_keys(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    """The process dies when the first transaction is through."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    patch.setattr("tenancy.cleanup.Cleaner.carry_out", die)


def stop_between_bytes_and_rows(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    """The process dies when the first session's bytes are gone and its rows are not."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    patch.setattr("tenancy.catalogue.reclaim.ReclaimTable.remove_sessions", die)


def stop_before_the_end(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    """The process dies when everything is gone but the owner itself."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    patch.setattr("tenancy.catalogue.erasure.ErasureTable.finish", die)


STOPS = [stop_after_keys, stop_between_bytes_and_rows, stop_before_the_end]


@pytest.mark.case(71)
@pytest.mark.parametrize("resumed_by", ["erasure", "cleanup", "verify"])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("level", LEVELS)
def test_an_interrupted_erasure_is_unreadable_at_once_and_resumes_under_its_receipt(
    manager: SessionManager, people: People, ledger: Ledger, level: str, stop: Any, resumed_by: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop(manager, patch)
        with pytest.raises(Killed):
            LEVELS[level](manager)
    # Unreadable from the first transaction on, whatever is left.
    for session, contents in people.victims:
        for reference in contents:
            with pytest.raises(SessionNotFound):
                session.read(reference)
        with pytest.raises(SessionNotFound):
            session.write("late")
    assert ledger.count("tenancy_session_keys") == (2 if level == "user" else 1)
    ((receipt_id, finished),) = ledger.all("SELECT receipt_id, finished_at_us FROM tenancy_receipts")
    assert finished is None
    ledger_findings = {finding.kind for finding in manager.verify().findings}
    assert ledger_findings == {"unfinished_erasure"}
    expected = USER if level == "user" else TENANT
    if resumed_by == "erasure":
        receipt = LEVELS[level](manager)
        assert receipt.receipt_id == receipt_id
        assert numbers(receipt) == expected
        assert receipt.finished_at is not None
    elif resumed_by == "cleanup":
        assert manager.cleanup().complete
    else:
        assert manager.verify(repair=True).ok
    rows = ledger.all(
        "SELECT receipt_id, users, sessions, results, size_bytes, keys_destroyed FROM tenancy_receipts"
        " WHERE finished_at_us IS NOT NULL"
    )
    assert rows == [(receipt_id, *expected)]
    require_nothing(LEVELS[level](manager))
    people.require_intact(people.stranger, *([people.colleague] if level == "user" else []))
    assert manager.verify().ok
    ledger.require_balanced()


def test_a_name_can_be_opened_again_while_its_erasure_is_half_done(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after_keys(manager, patch)
        with pytest.raises(Killed):
            erase_user(manager)
    new = manager.session(tenant="acme", user="ann", session="one")
    reference = new.write("new")
    assert manager.cleanup().complete
    assert new.read(reference) == "new"
    assert numbers(erase_user(manager)) == (1, 1, 1, 3, 1)
    ledger.require_balanced()


def test_erasing_a_half_erased_user_and_its_namesake_does_both(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after_keys(manager, patch)
        with pytest.raises(Killed):
            erase_user(manager)
    manager.session(tenant="acme", user="ann").write("namesake")
    erase_user(manager)
    rows = ledger.all("SELECT users, sessions, results FROM tenancy_receipts WHERE finished_at_us IS NOT NULL")
    assert sorted(rows) == [(1, 1, 1), (1, 3, 6)]
    assert [info.user for info in manager.sessions(tenant="acme")] == ["bob"]


def test_a_tenants_erasure_finishes_a_users_that_was_interrupted_under_its_own_receipt(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_between_bytes_and_rows(manager, patch)
        with pytest.raises(Killed):
            erase_user(manager)
    receipt = erase_tenant(manager)
    assert receipt.finished_at is not None
    rows = ledger.all(
        "SELECT level, users, sessions, results FROM tenancy_receipts WHERE finished_at_us IS NOT NULL ORDER BY level"
    )
    assert rows == [("tenant", 1, 1, 2), ("user", 1, 3, 6)]
    people.require_intact(people.stranger)
    ledger.require_balanced()


def test_a_user_of_a_half_erased_tenant_is_nobody_and_the_tenants_receipt_stays_open(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after_keys(manager, patch)
        with pytest.raises(Killed):
            erase_tenant(manager)
    require_nothing(erase_user(manager))
    assert ledger.all("SELECT level, finished_at_us FROM tenancy_receipts") == [("tenant", None)]
    assert numbers(erase_tenant(manager)) == TENANT


@pytest.mark.parametrize("level", LEVELS)
def test_two_erasures_at_once_share_one_receipt(make_manager: ManagerFactory, ledger: Ledger, level: str) -> None:
    managers = [make_manager(durability="process") for _ in range(4)]
    people = People(managers[0])
    ready = threading.Barrier(4)

    def erase(manager: SessionManager) -> Receipt:
        ready.wait()
        return LEVELS[level](manager)

    with ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(erase, managers))
    assert len({receipt.receipt_id for receipt in receipts} - {None}) == 1
    managers[0].cleanup()
    rows = ledger.all("SELECT users, sessions, results, size_bytes, keys_destroyed FROM tenancy_receipts")
    assert rows == [USER if level == "user" else TENANT]
    assert ledger.one("SELECT count(*) FROM tenancy_receipts WHERE finished_at_us IS NULL") == 0
    people.require_intact(people.stranger)
    ledger.require_balanced()


@pytest.mark.case(53)
def test_erasing_while_others_write_leaves_nothing_of_what_they_wrote(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    writing, erasing = make_manager(durability="process"), make_manager(durability="process")
    sessions = [writing.session(tenant="acme", user="ann", session=f"s{number % 4}") for number in range(8)]
    kept = writing.session(tenant="acme", user="bob")
    reference = kept.write("kept")
    begun = threading.Barrier(9)

    def write(session: Session) -> str:
        begun.wait()
        for number in range(200):
            try:
                session.write(b"x" * (40_000 if number % 5 == 0 else 10))
            except SessionNotFound:
                return "refused"
            except StorageUnavailable:
                continue  # its room was destroyed under it
        return "done"

    with ThreadPoolExecutor(9) as pool:
        writers = [pool.submit(write, session) for session in sessions]
        begun.wait()
        receipt = erase_user(erasing)
        assert {writer.result() for writer in writers} <= {"refused", "done"}
    assert receipt.level == "user"
    erasing.clock.advance(timedelta(minutes=5))
    assert erasing.cleanup().complete
    assert kept.read(reference) == "kept"
    assert ledger.where() == ledger.ways(small=1)
    assert erasing.verify().ok
    # Those of the one who stays: none for what is inline, a tenant's and a session's for what is not.
    assert len(ledger.directories) == (0 if ledger.ways(small=1) == (1, 0) else 2)
    ledger.require_balanced()


def test_an_erasure_that_the_store_refuses_is_loud_and_resumes(
    manager: SessionManager, people: People, store: Store, ledger: Ledger
) -> None:
    def refuse(operation: str, name: str) -> None:
        if operation == "destroy":
            raise StoreUnavailable("The store is away.")

    store.before = refuse
    with pytest.raises(StorageUnavailable):
        erase_user(manager)
    for session, _ in people.victims:
        with pytest.raises(SessionNotFound):
            session.usage()
    store.before = lambda operation, name: None
    assert numbers(erase_user(manager)) == USER
    people.require_intact(people.colleague, people.stranger)
    ledger.require_balanced()


def test_an_erasure_stops_at_nothing_that_another_worker_has_claimed(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    worker, eraser = make_manager(durability="process"), make_manager(durability="process")
    store = interpose(worker)
    worker.session(tenant="acme", user="ann", lifetime=Lifetime(idle=timedelta(hours=1))).write("x")
    worker.clock.advance(timedelta(hours=1))

    def die(operation: str, name: str) -> None:
        raise Killed

    store.before = die
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenancy.catalogue.reclaim.ReclaimTable.release", lambda *_, **__: None)
        with pytest.raises(Killed):
            worker.cleanup()
    assert ledger.one("SELECT count(*) FROM tenancy_sessions WHERE claimed_until_us IS NOT NULL") == 1
    receipt = erase_user(eraser)
    assert receipt.finished_at is not None
    assert numbers(receipt) == (1, 1, 1, 1, 0)
    ledger.require_empty()
