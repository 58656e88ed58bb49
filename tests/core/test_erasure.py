"""Erasure: keys, bytes, rows, and a receipt; resumed by whoever comes next; nobody else is touched."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stores.errors import StoreUnavailable
from tenancy import (
    Lifetime,
    QuotaExceeded,
    Receipt,
    ResultNotFound,
    Session,
    SessionManager,
    SessionNotFound,
    StorageUnavailable,
)
from tests.conftest import ManagerFactory
from tests.core.interposed import Killed, Store, interpose
from tests.core.ledger import Ledger

Open = Callable[..., Session]
Erase = Callable[[SessionManager], Receipt]


def erase_user(manager: SessionManager) -> Receipt:
    return manager.erase_user(tenant="acme", user="ann")


def erase_tenant(manager: SessionManager) -> Receipt:
    return manager.erase_tenant(tenant="acme")


LEVELS = {"user": erase_user, "tenant": erase_tenant}


class People:
    """A tenant with two users and a second tenant, all of whom have something stored."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        self.victims = [self.fill("acme", "ann", name) for name in ("one", "two", None)]
        self.colleague = self.fill("acme", "bob", "one")
        self.stranger = self.fill("globex", "ann", "one")

    def fill(self, tenant: str, user: str, name: str | None) -> tuple[Session, dict[str, str | bytes]]:
        session = self.manager.session(tenant=tenant, user=user, session=name)
        contents: list[str | bytes] = [f"small of {tenant} {user}", user.encode() * 15_000]
        return session, {session.write(content): content for content in contents}

    def require_intact(self, *others: tuple[Session, dict[str, str | bytes]]) -> None:
        for session, contents in others:
            assert {reference: session.read(reference) for reference in contents} == contents


@pytest.fixture
def people(manager: SessionManager) -> People:
    return People(manager)


def numbers(receipt: Receipt) -> tuple[int, ...]:
    return (receipt.users, receipt.sessions, receipt.results, receipt.used_bytes, receipt.keys_destroyed)


SMALL = len("small of acme ann")
USER = (1, 3, 6, 3 * (SMALL + 45_000), 3)
TENANT = (2, 4, 8, 4 * (SMALL + 45_000), 5)


def require_nothing(receipt: Receipt) -> None:
    assert numbers(receipt) == (0, 0, 0, 0, 0)
    assert (receipt.receipt_id, receipt.started_at, receipt.finished_at) == (None, None, None)
    assert receipt.statement == "There was nothing to erase."


def test_an_erased_user_is_gone_and_everybody_else_is_intact(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    others = [people.colleague, people.stranger]
    kept = {path: path.read_bytes() for path in ledger.files}
    receipt = erase_user(manager)
    assert numbers(receipt) == USER
    assert (receipt.level, len(receipt.receipt_id or "")) == ("user", 32)
    assert receipt.started_at is not None
    assert receipt.finished_at is not None
    assert receipt.started_at <= receipt.finished_at
    for session, contents in people.victims:
        for reference in contents:
            with pytest.raises(SessionNotFound):
                session.read(reference)
    people.require_intact(*others)
    # Byte for byte: nobody wrote their files anew.
    assert all(kept[path] == path.read_bytes() for path in ledger.files)
    assert ledger.where() == ledger.ways(small=2, large=2)
    assert [info.user for info in manager.sessions(tenant="acme")] == ["bob"]
    assert manager.usage(tenant="acme", user="ann").sessions == 0
    assert ledger.one("SELECT count(*) FROM tenancy_users WHERE name = 'ann'") == 1
    ledger.require_balanced()


def test_an_erased_tenant_is_gone_with_its_keys_and_everybody_else_is_intact(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    assert numbers(erase_tenant(manager)) == TENANT
    people.require_intact(people.stranger)
    assert [info.tenant for info in manager.sessions()] == ["globex"]
    assert ledger.where() == ledger.ways(small=1, large=1)
    for table in ("tenants", "users", "sessions", "tenant_keys", "session_keys"):
        assert ledger.count(f"tenancy_{table}") == 1, table
    assert ledger.count("tenancy_usage") == 3
    ledger.require_balanced()
    assert numbers(manager.erase_tenant(tenant="globex"))[:3] == (1, 1, 2)
    for table, count in ledger.counts().items():
        assert count == 0, table
    ledger.require_empty()


def test_a_deleted_session_is_gone_and_the_users_others_are_not(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    for name, victim in (("one", people.victims[0]), (None, people.victims[2])):
        receipt = manager.delete_session(tenant="acme", user="ann", session=name)
        assert numbers(receipt) == (0, 1, 2, SMALL + 45_000, 1)
        assert (receipt.level, receipt.receipt_id) == ("session", None)
        with pytest.raises(SessionNotFound):
            victim[0].usage()
        require_nothing(manager.delete_session(tenant="acme", user="ann", session=name))
    people.require_intact(people.victims[1], people.colleague, people.stranger)
    assert ledger.where() == ledger.ways(small=3, large=3)
    ledger.require_balanced()


@pytest.mark.parametrize("level", LEVELS)
def test_erasing_twice_or_what_never_was_counts_nothing(
    manager: SessionManager, people: People, ledger: Ledger, level: str
) -> None:
    LEVELS[level](manager)
    before = ledger.snapshot()
    require_nothing(LEVELS[level](manager))
    require_nothing(manager.erase_user(tenant="acme", user="nobody"))
    require_nothing(manager.erase_tenant(tenant="nobody"))
    require_nothing(manager.delete_session(tenant="nobody", user="nobody", session="nothing"))
    assert ledger.snapshot() == before


def test_an_expired_session_that_is_deleted_loses_its_bytes_at_once(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    open_session(lifetime=Lifetime(idle=timedelta(hours=1))).write("x")
    manager.clock.advance(timedelta(hours=1))
    receipt = manager.delete_session(tenant="acme", user="ann", session="chat")
    assert numbers(receipt) == (0, 1, 1, 1, 1)
    ledger.require_empty()


@pytest.mark.parametrize("level", LEVELS)
def test_a_name_that_is_opened_again_after_erasure_is_new_in_everything(
    manager: SessionManager, people: People, ledger: Ledger, level: str
) -> None:
    old, contents = people.victims[0]
    before = ledger.all("SELECT tenant_id, user_id, session_id FROM tenancy_sessions")
    LEVELS[level](manager)
    new = manager.session(tenant="acme", user="ann", session="one")
    assert list(new.results()) == []
    own = new.write("new")
    for reference in contents:
        with pytest.raises(ResultNotFound):
            new.read(reference)
    with pytest.raises(SessionNotFound):
        old.read(own)
    after = ledger.all(
        "SELECT s.tenant_id, s.user_id, s.session_id FROM tenancy_sessions s JOIN tenancy_users u ON"
        " u.user_id = s.user_id JOIN tenancy_tenants t ON t.tenant_id = s.tenant_id"
        " WHERE u.name = 'ann' AND t.name = 'acme'"
    )
    assert len(after) == 1
    assert after[0][1] not in {row[1] for row in before}
    assert after[0][2] not in {row[2] for row in before}
    if level == "tenant":
        assert after[0][0] not in {row[0] for row in before}
    ledger.require_balanced()


def stop_after_keys(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    """The process dies when the first transaction is through."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    patch.setattr("tenancy.cleanup.Cleaner.carry_out", die)


def stop_between_bytes_and_rows(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    """The process dies when the first session's bytes are gone and its rows are not."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    patch.setattr("tenancy.catalogue.reclaim.ReclaimTable.remove_session", die)


def stop_before_the_end(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    """The process dies when everything is gone but the owner itself."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    patch.setattr("tenancy.catalogue.erasure.ErasureTable.finish", die)


STOPS = [stop_after_keys, stop_between_bytes_and_rows, stop_before_the_end]


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
    assert manager_is_sound(erasing)
    ledger.require_balanced()


def manager_is_sound(manager: SessionManager) -> bool:
    return manager.verify().ok


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


def test_a_receipt_names_nobody(manager: SessionManager, people: People, ledger: Ledger) -> None:
    manager.session(tenant="secret-tenant", user="secret-user", session="secret-session").write("secret-content")
    receipts = [
        manager.delete_session(tenant="secret-tenant", user="secret-user", session="secret-session"),
        manager.erase_user(tenant="secret-tenant", user="secret-user"),
        manager.erase_tenant(tenant="secret-tenant"),
    ]
    assert receipts[2].users == 0
    assert "secret" not in repr(receipts)
    assert "secret" not in repr(ledger.all("SELECT * FROM tenancy_receipts"))
    assert "Rows, bytes and wrapped keys are gone" in receipts[1].statement


def test_erasing_one_frees_what_was_charged_to_the_tenant(
    manager: SessionManager, people: People, ledger: Ledger
) -> None:
    from tenancy import Limits

    used = manager.usage(tenant="acme").used_bytes
    manager.set_limits(Limits(tenant_bytes=used), tenant="acme")
    session, _ = people.colleague
    with pytest.raises(QuotaExceeded):
        session.write("x")
    erase_user(manager)
    session.write("x")
    ledger.require_balanced()


def test_what_is_erased_does_not_stand_in_the_database_file_any_more(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger, database_kind: str
) -> None:
    if database_kind == "postgresql":
        # The server decides when a page is written anew; what is promised there are the rows.
        erase_user(manager)
        assert ledger.count("tenancy_session_keys") == 2
        return
    wrapped = [row[0] for row in ledger.all("SELECT wrapped FROM tenancy_session_keys")]
    ids = [row[0] for row in ledger.all("SELECT session_id FROM tenancy_sessions")]
    erase_user(manager)
    left = {row[0] for row in ledger.all("SELECT wrapped FROM tenancy_session_keys")}
    # sqlite:///PATH and its log
    path = make_manager.database_url.removeprefix("sqlite:///")
    stored = b"".join(Path(path + suffix).read_bytes() for suffix in ("", "-wal"))
    assert all(key in stored for key in left)
    assert not [key for key in wrapped if key not in left and key in stored]
    assert len(ids) == 5


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
