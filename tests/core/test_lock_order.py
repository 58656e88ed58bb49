"""Whoever ends the same sessions from two sides waits for each other, never both at once."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from tenancy import Lifetime, SessionManager

_SESSIONS = 60
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
