"""Erasure: keys, bytes, rows, and a receipt; nobody else is touched."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tenancy import (
    Lifetime,
    QuotaExceeded,
    ResultNotFound,
    Session,
    SessionManager,
    SessionNotFound,
)
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.core.people import LEVELS, SMALL, TENANT, USER, People, erase_tenant, erase_user, numbers, require_nothing

Open = Callable[..., Session]


@pytest.mark.case(137)
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


@pytest.mark.case(137)
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


@pytest.mark.case(137)
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


@pytest.mark.case(71, 137)
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
    # Most builds of SQLite overwrite what is deleted by themselves; ours sets that anew after each erasure.
    manager.erase_tenant(tenant="globex")
    wrapped = [row[0] for row in ledger.all("SELECT wrapped FROM tenancy_session_keys")]
    ids = [row[0] for row in ledger.all("SELECT session_id FROM tenancy_sessions")]
    erase_user(manager)
    left = {row[0] for row in ledger.all("SELECT wrapped FROM tenancy_session_keys")}
    # sqlite:///PATH and its log
    path = make_manager.database_url.removeprefix("sqlite:///")
    stored = b"".join(Path(path + suffix).read_bytes() for suffix in ("", "-wal"))
    assert all(key in stored for key in left)
    assert not [key for key in wrapped if key not in left and key in stored]
    assert len(ids) == 4
