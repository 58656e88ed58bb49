"""The rows of several ended sessions go in one transaction, which is neither large nor any tenant's but one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stores.errors import StoreUnavailable
from tenancy import Lifetime, Session, SessionManager
from tenancy.catalogue import reclaim
from tenancy.catalogue.reclaim import ReclaimTable, Removed
from tenancy.catalogue.sessions import Ids
from tenancy.cleanup import SESSIONS_AT_ONCE
from tests.conftest import INLINE_BYTES
from tests.core.interposed import Statements
from tests.core.ledger import Ledger

Open = Callable[..., Session]
HOUR = timedelta(hours=1)


@pytest.fixture
def inline_bytes() -> int:
    """Rows are what goes together."""
    return INLINE_BYTES["inline"]


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, Removed]]]:
    """Of each transaction that removes sessions, whose they were and what went."""
    seen: list[list[tuple[str, Removed]]] = []
    real = ReclaimTable.remove_sessions

    def remove(table: ReclaimTable, sessions: list[Ids], **settings: Any) -> list[Removed]:
        done = real(table, sessions, **settings)
        seen.append([(ids.tenant_id, one) for ids, one in zip(sessions, done, strict=False)])
        return done

    monkeypatch.setattr(ReclaimTable, "remove_sessions", remove)
    return seen


def expire(
    manager: SessionManager, open_session: Open, sessions: int, *, results: int = 1, size: int = 10, **names: str
) -> None:
    """End sessions of three users in turn."""
    for number in range(sessions):
        session = open_session(f"s{number}", user=f"u{number % 3}", lifetime=Lifetime(idle=HOUR), **names)
        for _ in range(results):
            session.write("x" * size)
    manager.clock.advance(HOUR)


def test_the_rows_of_many_sessions_go_in_few_transactions(
    manager: SessionManager, open_session: Open, ledger: Ledger, removed: list[list[tuple[str, Removed]]]
) -> None:
    expire(manager, open_session, 2 * SESSIONS_AT_ONCE + 2)
    assert manager.cleanup().sessions == 2 * SESSIONS_AT_ONCE + 2
    # The first by itself.
    assert [len(each) for each in removed] == [1, SESSIONS_AT_ONCE, SESSIONS_AT_ONCE, 1]
    ledger.require_empty()


@pytest.mark.parametrize(("limit", "most"), [("RESULTS_AT_ONCE", 5), ("BYTES_AT_ONCE", 50)])
def test_no_transaction_removes_much_more_than_its_share(
    manager: SessionManager,
    open_session: Open,
    ledger: Ledger,
    removed: list[list[tuple[str, Removed]]],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    most: int,
) -> None:
    monkeypatch.setattr(reclaim, limit, most)
    expire(manager, open_session, 8, results=2)
    report = manager.cleanup()
    assert (report.sessions, report.results, report.reclaimed_bytes, report.complete) == (8, 16, 160, True)
    # Whatever has reached it with a third session of two results.
    assert [len(each) for each in removed] == [1, 3, 3, 1]
    ledger.require_empty()


def test_no_transaction_removes_what_belongs_to_two_tenants(
    manager: SessionManager, open_session: Open, ledger: Ledger, removed: list[list[tuple[str, Removed]]]
) -> None:
    for tenant in ("acme", "globex"):
        for number in range(4):
            open_session(f"s{number}", tenant=tenant, lifetime=Lifetime(idle=HOUR)).write("x")
    manager.clock.advance(HOUR)
    assert manager.cleanup().sessions == 8
    assert [len({tenant_id for tenant_id, _ in each}) for each in removed] == [1] * len(removed)
    assert len(removed) == 3
    ledger.require_balanced()


def test_an_erasure_removes_sessions_together_too(
    manager: SessionManager, open_session: Open, ledger: Ledger, removed: list[list[tuple[str, Removed]]]
) -> None:
    for number in range(SESSIONS_AT_ONCE + 3):
        open_session(f"s{number}", user=f"u{number % 3}").write("x")
    receipt = manager.erase_tenant(tenant="acme")
    assert (receipt.sessions, receipt.results, receipt.users) == (SESSIONS_AT_ONCE + 3, SESSIONS_AT_ONCE + 3, 3)
    assert [len(each) for each in removed] == [SESSIONS_AT_ONCE, 3]
    ledger.require_empty()


def test_a_session_that_is_refused_keeps_none_that_is_removed_with_it(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(manager, open_session, 7)
    backend = manager._backend
    stuck = sorted(session_id for (session_id,) in ledger.all("SELECT session_id FROM tenancy_sessions"))[3]
    real = type(backend).drop_all

    def drop_all(self: Any, ids: Ids, transaction: Any) -> None:
        real(self, ids, transaction)
        if ids.session_id == stuck:
            raise StoreUnavailable("Cannot be removed.")

    with monkeypatch.context() as patch:
        patch.setattr(type(backend), "drop_all", drop_all)
        report = manager.cleanup()
    assert (report.sessions, report.results, report.complete) == (6, 6, False)
    assert ledger.all("SELECT session_id FROM tenancy_sessions") == [(stuck,)]
    ledger.require_balanced()
    assert manager.cleanup().sessions == 1
    ledger.require_empty()


def test_a_further_session_takes_few_statements(
    manager: SessionManager, open_session: Open, statements: Statements
) -> None:
    counts = []
    for sessions in (5, 15):
        expire(manager, open_session, sessions, results=3)
        with statements.counted() as said:
            assert manager.cleanup().results == 3 * sessions
        counts.append(len(said))
    # Is it still there; its results, bytes, keys, limits, counters, and its own row.
    assert counts[1] - counts[0] == 10 * 7
