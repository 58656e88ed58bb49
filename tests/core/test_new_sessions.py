"""Creating sessions: within which limits, and beside what others do at the same moment."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tenancy import Lifetime, Limits, QuotaExceeded, Session, SessionManager
from tenancy.catalogue.sessions import SessionTable
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]
TENANT = {"tenant": "acme"}
USER = {**TENANT, "user": "ann"}
HOUR = timedelta(hours=1)
UNLIMITED = 9


def created(open_session: Open, user: str, *, upto: int) -> int:
    """How many sessions a user may create before the first refusal."""
    for number in range(upto):
        try:
            open_session(f"chat {number}", user=user)
        except QuotaExceeded:
            return number
    return upto


@pytest.mark.parametrize(
    ("of_manager", "of_tenant", "of_user", "expected"),
    [
        (3, {}, {}, 3),
        (3, {"user_sessions": 2}, {}, 2),
        (3, {"user_sessions": None}, {}, UNLIMITED),
        (3, {"user_sessions": 2}, {"user_sessions": 4}, 4),
        (3, {"user_sessions": 2}, {"user_sessions": None}, UNLIMITED),
        (3, {"user_sessions": 2}, {"user_bytes": 5}, 2),
        (None, {"user_sessions": 2**63 - 1}, {}, UNLIMITED),
        (None, {"tenant_sessions": 4, "user_sessions": None}, {"user_sessions": 7}, 3),
    ],
)
def test_the_narrowest_limit_that_is_set_says_how_many_sessions_a_user_may_have(
    make_manager: ManagerFactory,
    of_manager: int | None,
    of_tenant: dict[str, int | None],
    of_user: dict[str, int | None],
    expected: int,
) -> None:
    manager = make_manager(durability="process", limits=Limits(user_sessions=of_manager))

    def open_session(session: str, *, user: str) -> Session:
        return manager.session(**TENANT, user=user, session=session)

    # Somebody else's, which counts for the tenant.
    open_session("chat", user="bob")
    open_session("chat 0", user="ann")
    for limits, names in ((of_tenant, TENANT), (of_user, USER)):
        if limits:
            manager.set_limits(Limits(**limits), **names)
    assert created(open_session, "ann", upto=UNLIMITED) == expected
    assert manager.usage(**USER).sessions == expected


@pytest.mark.parametrize("level", ["user", "tenant"])
@pytest.mark.parametrize("is_new", ["nobody", "user", "tenant"])
def test_a_refused_session_leaves_nothing_of_whoever_is_new_and_says_why(
    make_manager: ManagerFactory, ledger: Ledger, level: str, is_new: str
) -> None:
    manager = make_manager(durability="process")
    if is_new != "tenant":
        manager.session(**TENANT, user="ann" if is_new == "nobody" else "bob")
    strict = make_manager(durability="process", limits=Limits(**{f"{level}_sessions": 0}))
    before = ledger.snapshot()
    with pytest.raises(QuotaExceeded) as refusal:
        strict.session(**USER, session="chat")
    error = refusal.value
    used = {"nobody": 1, "user": int(level == "tenant"), "tenant": 0}[is_new]
    assert (error.level, error.unit, error.limit, error.used, error.requested) == (level, "sessions", 0, used, 1)
    assert ledger.snapshot() == before


def test_a_limit_that_is_set_while_a_session_opens_holds_for_it(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_session()
    create = SessionTable.create

    def create_late(self: SessionTable, *arguments: Any, **named: Any) -> None:
        manager.set_limits(Limits(user_sessions=1), **USER)
        create(self, *arguments, **named)

    monkeypatch.setattr(SessionTable, "create", create_late)
    with pytest.raises(QuotaExceeded):
        open_session("second")
    ledger.require_balanced()


@pytest.mark.parametrize("level", ["user", "tenant"])
def test_many_who_open_sessions_at_once_use_a_limit_up_and_never_exceed_it(
    manager: SessionManager, open_session: Open, ledger: Ledger, level: str
) -> None:
    open_session()
    manager.set_limits(Limits(**{f"{level}_sessions": 6}), **TENANT)
    ready = threading.Barrier(8)

    def use(number: int) -> int:
        user = "ann" if level == "user" else f"user {number}"
        ready.wait()
        return created(lambda name, user: open_session(f"{number}: {name}", user=user), user, upto=2)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(use, range(8))) == 5
    assert manager.usage(**TENANT).sessions == 6
    ledger.require_balanced()


def test_an_expired_name_that_many_open_again_at_their_limit_is_one_new_room_for_all(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    old = open_session(lifetime=Lifetime(idle=HOUR))
    # The old one counts as well until it is reclaimed.
    manager.set_limits(Limits(user_sessions=2), **USER)
    manager.clock.advance(HOUR)
    ready = threading.Barrier(8)

    def use(_: int) -> str:
        ready.wait()
        return open_session()._opened.ids.session_id

    with ThreadPoolExecutor(8) as pool:
        (new,) = set(pool.map(use, range(8)))
    assert new != old._opened.ids.session_id
    assert ledger.all("SELECT session_id FROM tenancy_session_keys") == [(new,)]
    assert ledger.all("SELECT session_id FROM tenancy_sessions WHERE state = 'live'") == [(new,)]
    opened = (
        "SELECT owner_id FROM tenancy_usage WHERE open = 1 AND owner_id IN (SELECT session_id FROM tenancy_sessions)"
    )
    assert ledger.all(opened) == [(new,)]
    ledger.require_balanced()


def test_a_session_that_expires_while_its_name_is_opened_makes_way(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, begun = SessionTable.create, []

    def create_late(self: SessionTable, *arguments: Any, **named: Any) -> None:
        if not begun:
            # Somebody else opened it for a moment, and that is over.
            begun.append(True)
            begun.append(open_session(lifetime=Lifetime(idle=HOUR)))
            manager.clock.advance(HOUR)
        create(self, *arguments, **named)

    open_session("other", lifetime=Lifetime(idle=30 * HOUR))
    monkeypatch.setattr(SessionTable, "create", create_late)
    new = open_session()
    assert new.read(new.write("here")) == "here"
    states = ledger.all("SELECT state FROM tenancy_sessions WHERE name = 'chat' ORDER BY created_at_us")
    assert states == [("ended",), ("live",)]
    ledger.require_balanced()
