"""Whoever ends the same sessions from two sides waits for each other, never both at once."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from stores.sql import Transaction
from tenancy import Lifetime, Receipt, SessionManager, SessionNotFound
from tenancy.catalogue.charges import charge_session
from tests.conftest import ManagerFactory

_SESSIONS = 60
_PATIENCE_SECONDS = 1.0
_DAY = Lifetime(idle=timedelta(days=1), maximum=timedelta(days=1))


def _reopen(manager: SessionManager, index: int) -> None:
    manager.session(tenant="t", user=f"u{index % 6}", session=f"s{index}")


def _delete(manager: SessionManager, index: int) -> None:
    manager.delete_session(tenant="t", user=f"u{index % 6}", session=f"s{index}")


def _erase(manager: SessionManager, index: int) -> None:
    manager.erase_user(tenant="t", user=f"u{index % 6}")


@pytest.mark.parametrize("action", [_reopen, _delete, _erase], ids=["reopen", "delete", "erase"])
def test_ending_a_session_beside_a_cleanup_deadlocks_nobody(
    manager: SessionManager, action: Callable[[SessionManager, int], None]
) -> None:
    failures: list[Exception] = []
    for _ in range(3):
        for index in range(_SESSIONS):
            manager.session(tenant="t", user=f"u{index % 6}", session=f"s{index}", lifetime=_DAY)
        manager.clock.advance(timedelta(days=2))
        gate = threading.Barrier(3)

        def act(first: int, gate: threading.Barrier = gate) -> None:
            gate.wait()
            for index in range(first, _SESSIONS, 2):
                try:
                    action(manager, index)
                except Exception as error:
                    failures.append(error)

        def clean(gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                manager.cleanup()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=act, args=(first,)) for first in (0, 1)] + [threading.Thread(target=clean)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        manager.erase_tenant(tenant="t")
        manager.cleanup()
    assert failures == []
    assert manager.verify().findings == ()


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_a_session_created_while_its_tenant_is_erased_deadlocks_nobody(
    make_manager: ManagerFactory, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.session(tenant="t", user="u", session="s")
    other = make_manager(durability="process")
    erasures: list[Future[Receipt]] = []

    def charge_late(transaction: Transaction, *arguments: Any, **named: Any) -> None:
        if not erasures:
            # Everything is written but the charge; another process now goes as far as it gets.
            transaction.say()
            erasures.append(pool.submit(other.erase_tenant, tenant="t"))
            with suppress(NotDone):
                erasures[0].result(_PATIENCE_SECONDS)
        charge_session(transaction, *arguments, **named)

    monkeypatch.setattr("tenancy.catalogue.sessions.charge_session", charge_late)
    with ThreadPoolExecutor(1) as pool:
        created = manager.session(tenant="t", user="u", session="new")
    # It was first, and the erasure took it along.
    assert erasures[0].result().sessions == 2
    with pytest.raises(SessionNotFound):
        created.write("x")
    assert list(manager.sessions(tenant="t")) == []
