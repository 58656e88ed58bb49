"""Limits: which values are allowed, who inherits what, and when a change takes effect."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tenancy import (
    UNSET,
    ConfigurationError,
    Limits,
    QuotaExceeded,
    ResultTooLarge,
    Session,
    SessionManager,
    SessionNotFound,
)
from tenancy.quotas import FIELDS
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]
TENANT = {"tenant": "acme"}
USER = {**TENANT, "user": "ann"}
SESSION = {**USER, "session": "chat"}


@pytest.mark.case(51)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [-1, 2**63, 2**64, 1.0, 1.5, float("nan"), float("inf"), True, False, "1", b"1", []])
def test_a_limit_that_is_no_whole_number_is_refused_at_once(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Limits(**{field: value})
    assert field in str(refusal.value)


@pytest.mark.parametrize("field", FIELDS)
def test_the_smallest_and_the_largest_limit_are_kept_exactly(
    manager: SessionManager, session: Session, field: str
) -> None:
    for value in (0, 1, 2**63 - 1, None, UNSET):
        manager.set_limits(Limits(**{field: value}), **TENANT)
        assert manager.limits(**TENANT) == Limits(**{field: value})


@pytest.mark.parametrize(
    ("who", "wider"),
    [
        (SESSION, ["user_bytes", "user_results", "user_sessions", "tenant_bytes", "tenant_results", "tenant_sessions"]),
        (USER, ["tenant_bytes", "tenant_results", "tenant_sessions"]),
    ],
    ids=["session", "user"],
)
def test_a_field_of_a_wider_level_is_refused_and_changes_nothing(
    manager: SessionManager, session: Session, ledger: Ledger, who: dict[str, str], wider: list[str]
) -> None:
    manager.set_limits(Limits(max_result_bytes=5), **who)
    before = ledger.snapshot()
    for field in wider:
        for value in (1, None):
            with pytest.raises(ConfigurationError) as refusal:
                manager.set_limits(Limits(**{field: value, "session_bytes": 1}), **who)
            assert field in str(refusal.value)
            with pytest.raises(ConfigurationError):
                manager.session(**{**USER, "session": "new"}, limits=Limits(**{field: value}))
    assert ledger.snapshot() == before


def test_limits_of_nobody_are_not_found(manager: SessionManager, session: Session, ledger: Ledger) -> None:
    before = ledger.snapshot()
    for who in ({"tenant": "x"}, {**TENANT, "user": "x"}, {**USER, "session": "x"}, {"tenant": "x", "user": "ann"}):
        with pytest.raises(SessionNotFound):
            manager.limits(**who)
        with pytest.raises(SessionNotFound):
            manager.set_limits(Limits(session_bytes=1), **who)
    assert ledger.snapshot() == before


def test_a_session_inherits_from_its_user_from_its_tenant_from_the_manager(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    manager = make_manager(durability="process", limits=Limits(max_result_bytes=10))
    session = manager.session(**SESSION)
    # From the widest to the narrowest, each over the one before; then taken back one by one.
    steps = [(TENANT, 20), (USER, 5), (SESSION, 8)]
    for who, value in steps:
        manager.set_limits(Limits(max_result_bytes=value), **who)
        session.write("x" * value)
        with pytest.raises(ResultTooLarge) as refusal:
            session.write("x" * (value + 1))
        assert refusal.value.limit_bytes == value
        assert session.usage().max_result_bytes == value
    manager.set_limits(Limits(max_result_bytes=None), **SESSION)
    session.write("x" * 1000)
    assert session.usage().max_result_bytes is None
    for who, value in zip([SESSION, USER, TENANT], [5, 20, 10], strict=True):
        manager.set_limits(Limits(), **who)
        with pytest.raises(ResultTooLarge) as refusal:
            session.write("x" * (value + 1))
        assert refusal.value.limit_bytes == value
    assert ledger.count("tenancy_limits") == 0
    assert ledger.where() == ledger.ways(small=4)
    ledger.require_balanced()


def test_none_at_a_narrower_level_lifts_a_wider_levels_default(manager: SessionManager, session: Session) -> None:
    manager.set_limits(Limits(session_bytes=3), **TENANT)
    with pytest.raises(QuotaExceeded):
        session.write("four")
    manager.set_limits(Limits(session_bytes=None), **USER)
    session.write("four")
    manager.set_limits(Limits(session_bytes=UNSET), **USER)
    with pytest.raises(QuotaExceeded):
        session.write("five!")


def test_limits_given_at_opening_hold_for_that_session_and_only_when_it_is_created(
    manager: SessionManager, open_session: Open
) -> None:
    first = open_session(limits=Limits(session_bytes=3))
    again = open_session(limits=Limits(session_bytes=100))
    other = open_session("other")
    for session in (first, again):
        with pytest.raises(QuotaExceeded):
            session.write("four")
    other.write("four")
    assert manager.limits(**SESSION) == Limits(session_bytes=3)


def test_the_managers_own_limits_are_never_stored(make_manager: ManagerFactory, ledger: Ledger) -> None:
    strict = make_manager(durability="process", limits=Limits(session_bytes=3, user_sessions=1))
    session = strict.session(**SESSION)
    with pytest.raises(QuotaExceeded):
        session.write("four")
    generous = make_manager(durability="process", limits=Limits(session_bytes=None))
    generous.session(**SESSION).write("four")
    generous.session(**{**SESSION, "session": "second"})
    assert ledger.count("tenancy_limits") == 0
    assert generous.limits(**TENANT) == Limits()
    assert ledger.where() == ledger.ways(small=1)


def test_without_any_setting_a_result_may_have_64_mebibytes_and_a_user_a_gibibyte(
    manager: SessionManager, session: Session
) -> None:
    usage = session.usage()
    assert (usage.max_result_bytes, usage.limit_bytes, usage.limit_results) == (64 * 2**20, None, None)
    of_user, of_tenant = manager.usage(**USER), manager.usage(**TENANT)
    assert (of_user.limit_bytes, of_user.limit_results, of_user.limit_sessions) == (2**30, None, None)
    assert (of_tenant.limit_bytes, of_tenant.limit_results, of_tenant.limit_sessions) == (None, None, None)


def test_a_limit_counts_from_the_next_write_on_in_every_manager(make_manager: ManagerFactory, ledger: Ledger) -> None:
    one, two = make_manager(durability="process"), make_manager(durability="process")
    writer = two.session(**SESSION)
    writer.write("1234")
    one.set_limits(Limits(user_bytes=8), **USER)
    writer.write("5678")
    with pytest.raises(QuotaExceeded):
        writer.write("9")
    one.set_limits(Limits(user_bytes=9), **USER)
    writer.write("9")
    assert ledger.where() == ledger.ways(small=3)
    ledger.require_balanced()


def test_a_limit_below_what_is_in_use_refuses_writes_and_allows_reads_and_deletes(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    first, second = session.write("x" * 10), session.write("y" * 10)
    manager.set_limits(Limits(tenant_bytes=5, tenant_results=1), **TENANT)
    for content in ("", "z"):
        with pytest.raises(QuotaExceeded):
            session.write(content)
    assert session.read(first) == "x" * 10
    assert session.read_page(second, max_chars=3).text == "yyy"
    assert len(list(session.results())) == 2
    session.delete(first)
    with pytest.raises(QuotaExceeded):
        session.write("")
    session.delete(second)
    session.write("five!")
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def test_usage_says_what_is_used_and_allowed_at_each_level(manager: SessionManager, open_session: Open) -> None:
    open_session().write("x" * 10)
    open_session("second").write("x" * 20)
    open_session(user="bob").write("x" * 40)
    manager.set_limits(Limits(tenant_bytes=1000, user_sessions=7, session_results=3), **TENANT)

    def numbers(**who: str) -> tuple[int, int, int]:
        found = manager.usage(**who)
        return found.used_bytes, found.results, found.sessions

    assert numbers(**TENANT) == (70, 3, 3)
    assert numbers(**USER) == (30, 2, 2)
    assert numbers(**SESSION) == (10, 1, 1)
    assert manager.usage(**TENANT).limit_bytes == 1000
    assert manager.usage(**USER).limit_sessions == 7
    assert manager.usage(**SESSION).limit_results == 3
    assert open_session().usage() == manager.usage(**SESSION)
    for nobody in ({"tenant": "x"}, {**TENANT, "user": "x"}, {**USER, "session": "x"}):
        assert numbers(**nobody) == (0, 0, 0)


def test_a_refusal_survives_pickling_with_its_facts() -> None:
    quota = QuotaExceeded(level="user", unit="bytes", limit=10, used=8, requested=3)
    large = ResultTooLarge(limit_bytes=5, requested_bytes=6)
    assert vars(pickle.loads(pickle.dumps(quota))) == vars(quota)
    assert vars(pickle.loads(pickle.dumps(large))) == vars(large)
    assert (quota.limit_bytes, quota.used_bytes, quota.requested_bytes) == (10, 8, 3)


def test_limits_that_are_none_are_refused(manager: SessionManager) -> None:
    with pytest.raises(ConfigurationError):
        manager.set_limits(None, tenant="acme")  # type: ignore[arg-type]
