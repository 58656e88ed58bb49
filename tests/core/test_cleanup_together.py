"""The rows of several ended sessions go in one transaction, which is neither large nor any tenant's but one."""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from stores.errors import StoreUnavailable
from stores.sql import Statement, Transaction
from tenancy import Lifetime, Session, SessionManager, StorageUnavailable, cleanup
from tenancy.catalogue import reclaim
from tenancy.catalogue.reclaim import ReclaimTable, Removed
from tenancy.catalogue.result_rows import Doomed
from tenancy.catalogue.sessions import Ids
from tenancy.cleanup import SESSIONS_AT_ONCE, Cleaner
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
    # However busy the machine is.
    monkeypatch.setattr(cleanup, "STEP_SECONDS", 1000.0)
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
    assert [len(each) for each in removed] == [SESSIONS_AT_ONCE, SESSIONS_AT_ONCE, 2]
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
    assert [len(each) for each in removed] == [3, 3, 2]
    ledger.require_empty()


def test_no_transaction_removes_what_belongs_to_two_tenants(
    manager: SessionManager, open_session: Open, ledger: Ledger, removed: list[list[tuple[str, Removed]]]
) -> None:
    for tenant in ("acme", "globex"):
        for number in range(4):
            open_session(f"s{number}", tenant=tenant, lifetime=Lifetime(idle=HOUR)).write("x")
    manager.clock.advance(HOUR)
    assert manager.cleanup().sessions == 8
    assert [(len(each), len({tenant_id for tenant_id, _ in each})) for each in removed] == [(4, 1), (4, 1)]
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


def test_a_run_that_is_stopped_has_given_back_whatever_has_no_files_any_more(
    manager: SessionManager,
    open_session: Open,
    ledger: Ledger,
    removed: list[list[tuple[str, Removed]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expire(manager, open_session, 10)
    emptied: list[Ids] = []
    time = [0.0]

    def destroy_files(_: Any, ids: Ids, *, shred: bool) -> None:
        assert not shred
        emptied.append(ids)
        time[0] += 0.04

    monkeypatch.setattr(cleanup, "STEP_SECONDS", 0.1)
    monkeypatch.setattr(Cleaner, "_destroy_files", destroy_files)
    cleaner = Cleaner(manager._backend, across=True, monotonic=lambda: time[0])
    report = cleaner.run(dry_run=False, batch_size=100, max_seconds=0.2)
    # Two steps of three rooms each.
    assert (report.sessions, report.complete) == (len(emptied), False) == (6, False)
    assert [len(each) for each in removed] == [3, 3]
    ledger.require_balanced()
    assert cleaner.run(dry_run=False, batch_size=100, max_seconds=None).sessions == 4
    ledger.require_empty()


def test_an_erasure_gives_back_what_comes_before_a_room_that_cannot_be_removed(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        open_session(f"s{number}").write("x" * 10)
    stuck = sorted(session_id for (session_id,) in ledger.all("SELECT session_id FROM tenancy_sessions"))[4]
    real = Cleaner._destroy_files

    def destroy_files(cleaner: Cleaner, ids: Ids, *, shred: bool) -> None:
        if ids.session_id == stuck:
            raise StoreUnavailable("Cannot be removed.")
        real(cleaner, ids, shred=shred)

    with monkeypatch.context() as patch:
        patch.setattr(Cleaner, "_destroy_files", destroy_files)
        with pytest.raises(StorageUnavailable):
            manager.erase_user(tenant="acme", user="ann")
        assert manager.usage(tenant="acme").used_bytes == 20
        ledger.require_balanced()
    manager.erase_user(tenant="acme", user="ann")
    ledger.require_balanced()
    assert manager.usage(tenant="acme").used_bytes == 0


def test_what_is_left_is_released_in_the_order_in_which_all_wait_for_it(
    manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [Ids(f"t{number % 3}", "u", f"s{number}") for number in range(40)]
    doomed = [Doomed(each, number, "r", inline=True, size_bytes=1) for each in ids for number in (11, 2)]
    for some in (ids, doomed):
        Random(7).shuffle(some)
    said: list[tuple[Transaction, list[tuple[Any, ...]]]] = []

    def execute_many(transaction: Transaction, _: Statement, rows: list[dict[str, Any]]) -> None:
        keys = ("of_tenant", "of_session", "of_number")
        said.append((transaction, [tuple(row[key] for key in keys if key in row) for row in rows]))

    monkeypatch.setattr(Transaction, "execute_many", execute_many)
    manager._backend.across.reclaim.release(sessions=ids, results=doomed)
    (first, sessions), (second, results) = said
    assert first is not second
    assert sessions == sorted((one.tenant_id, one.session_id) for one in ids)
    assert results == sorted((one.ids.tenant_id, one.ids.session_id, one.number) for one in doomed)


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
