"""Lifetimes: expired is gone at once and everywhere; use keeps a session alive, up to its maximum."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenancy import (
    ConfigurationError,
    KeyUnavailable,
    Lifetime,
    ResultNotFound,
    Session,
    SessionManager,
    SessionNotFound,
)
from tests.core.interposed import Statements
from tests.core.ledger import Ledger

Open = Callable[..., Session]
SESSION = {"tenant": "acme", "user": "ann", "session": "chat"}
HOUR = timedelta(hours=1)
MOMENT = timedelta(seconds=5)  # more than a test takes between two lines


def require_gone(manager: SessionManager, session: Session, reference: str) -> None:
    """Nothing of an ended session is there, for nobody."""
    calls: list[Callable[[], Any]] = [
        lambda: session.read(reference),
        lambda: session.read_page(reference, max_chars=1),
        lambda: list(session.results()),
        lambda: session.delete(reference),
        lambda: session.write("x"),
        session.usage,
    ]
    for call in calls:
        with pytest.raises(SessionNotFound):
            call()
    assert [info for info in manager.sessions() if info.session == "chat"] == []
    assert manager.usage(**SESSION).used_bytes == 0
    assert manager.usage(**SESSION).sessions == 0
    with pytest.raises(SessionNotFound):
        manager.limits(**SESSION)


@pytest.mark.case(134)
@pytest.mark.parametrize(
    "lifetime",
    [Lifetime(idle=HOUR), Lifetime(idle=2 * HOUR, maximum=HOUR)],
    ids=["idle", "maximum"],
)
def test_an_expired_session_is_gone_at_once_and_everywhere(
    manager: SessionManager, open_session: Open, ledger: Ledger, lifetime: Lifetime
) -> None:
    session = open_session(lifetime=lifetime)
    reference = session.write("soon gone")
    manager.clock.advance(HOUR - MOMENT)
    assert [info.session for info in manager.sessions()] == ["chat"]
    before = ledger.counts()
    manager.clock.advance(MOMENT)
    require_gone(manager, session, reference)
    # Gone, and nothing has been removed yet.
    assert ledger.counts() == before
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def use_read(session: Session, reference: str) -> None:
    session.read(reference)


def use_page(session: Session, reference: str) -> None:
    session.read_page(reference, max_chars=1)


def use_write(session: Session, reference: str) -> None:
    session.write("more")


def use_write_large(session: Session, reference: str) -> None:
    session.write(b"x" * 2_000_000)


def use_list(session: Session, reference: str) -> None:
    assert list(session.results()) != []


USES = [use_read, use_page, use_write, use_write_large, use_list]


@pytest.mark.case(135)
@pytest.mark.parametrize("use", USES)
def test_every_use_keeps_a_session_from_idling_out(
    manager: SessionManager, open_session: Open, use: Callable[[Session, str], None]
) -> None:
    session = open_session(lifetime=Lifetime(idle=HOUR))
    reference = session.write("kept")
    for _ in range(4):
        manager.clock.advance(timedelta(minutes=40))
        use(session, reference)
    assert session.read(reference) == "kept"
    manager.clock.advance(HOUR)
    with pytest.raises(SessionNotFound):
        session.read(reference)


def test_opening_a_session_again_is_use_too(manager: SessionManager, open_session: Open) -> None:
    session = open_session(lifetime=Lifetime(idle=HOUR))
    for _ in range(3):
        manager.clock.advance(timedelta(minutes=40))
        open_session()
    assert session.usage().results == 0


def test_looking_from_outside_is_no_use(manager: SessionManager, open_session: Open) -> None:
    open_session(lifetime=Lifetime(idle=HOUR))
    manager.clock.advance(timedelta(minutes=40))
    assert len(list(manager.sessions())) == 1
    assert manager.usage(**SESSION).sessions == 1
    manager.clock.advance(timedelta(minutes=20))
    assert list(manager.sessions()) == []


def test_use_moves_the_expiry_at_most_once_per_sixteenth_of_the_idle_time(
    manager: SessionManager, open_session: Open, ledger: Ledger, statements: Statements
) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(hours=16)))
    reference = session.write("x")

    def expires() -> int:
        return int(ledger.one("SELECT expires_at_us FROM tenancy_sessions"))

    first = expires()
    manager.clock.advance(HOUR - MOMENT)
    with statements.counted() as said:
        for use in (use_read, use_page, use_write, use_list):
            use(session, reference)
        open_session()
    assert expires() == first
    assert not any(text.startswith("UPDATE tenancy_sessions") for text in said)
    manager.clock.advance(2 * MOMENT)
    with statements.counted() as said:
        for use in (use_read, use_page, use_write, use_list):
            use(session, reference)
        open_session()
    assert sum(text.startswith("UPDATE tenancy_sessions") for text in said) == 1
    # As far as an hour and a moment later, however long this test took.
    assert 0 <= expires() - first - (HOUR + MOMENT) // timedelta(microseconds=1) < 60_000_000


@pytest.mark.case(135)
def test_no_use_moves_the_maximum(manager: SessionManager, open_session: Open) -> None:
    session = open_session(lifetime=Lifetime(idle=HOUR, maximum=2 * HOUR))
    reference = session.write("x")
    for _ in range(3):
        manager.clock.advance(timedelta(minutes=39))
        session.read(reference)
    manager.clock.advance(timedelta(minutes=3))
    require_gone(manager, session, reference)


def test_a_session_ends_by_what_it_was_opened_with_whatever_later_callers_ask_for(
    manager: SessionManager, open_session: Open
) -> None:
    first = open_session(lifetime=Lifetime(idle=HOUR))
    open_session(lifetime=Lifetime(idle=24 * HOUR))
    manager.clock.advance(HOUR)
    with pytest.raises(SessionNotFound):
        first.usage()


def test_without_any_setting_a_session_idles_out_after_a_day_and_ends_after_thirty(
    manager: SessionManager, open_session: Open
) -> None:
    open_session()
    (info,) = manager.sessions()
    assert abs(info.expires_at - datetime.now(UTC) - 24 * HOUR) < timedelta(minutes=1)
    session = open_session("busy")
    for _ in range(35):
        manager.clock.advance(20 * HOUR)
        session.write("x")
    manager.clock.advance(20 * HOUR)
    with pytest.raises(SessionNotFound):
        session.write("x")


@pytest.mark.case(134)
def test_a_result_ends_with_its_own_lifetime_and_its_session_lives_on(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    session = open_session(lifetime=Lifetime(idle=24 * HOUR, result=HOUR))
    small, large = session.write("small"), session.write(b"x" * 50_000)
    manager.clock.advance(timedelta(minutes=30))
    later = session.write("later")
    manager.clock.advance(timedelta(minutes=30))
    for reference in (small, large):
        for call in (session.read, session.delete, lambda text: session.read_page(text, max_chars=1)):
            with pytest.raises(ResultNotFound):
                call(reference)
    assert [result.reference for result in session.results()] == [later]
    assert session.read(later) == "later"
    assert ledger.where() == ledger.ways(small=2, large=1)
    ledger.require_balanced()


def test_a_listing_says_when_a_result_ends_at_the_latest(manager: SessionManager, open_session: Open) -> None:
    for name, lifetime, expected in (
        ("short", Lifetime(idle=24 * HOUR, result=HOUR), HOUR),
        ("none", Lifetime(idle=2 * HOUR), 2 * HOUR),
        # Longer than its session can live.
        ("long", Lifetime(idle=2 * HOUR, result=100 * HOUR), 2 * HOUR),
    ):
        session = open_session(name, lifetime=lifetime)
        session.write("x")
        (result,) = session.results()
        assert abs(result.expires_at - result.created_at - expected) < timedelta(minutes=1), name


def test_a_name_opened_again_after_expiry_is_a_new_room(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    old = open_session(lifetime=Lifetime(idle=HOUR))
    reference = old.write("old")
    manager.clock.advance(HOUR)
    new = open_session()
    assert list(new.results()) == []
    assert new.usage().used_bytes == 0
    with pytest.raises(ResultNotFound):
        new.read(reference)
    own = new.write("new")
    assert own.split("-")[1] == "1"
    for call in (old.read, old.delete):
        for text in (reference, own):
            with pytest.raises(SessionNotFound):
                call(text)
    with pytest.raises(SessionNotFound):
        old.write("late")
    rows = ledger.all("SELECT session_id, state FROM tenancy_sessions ORDER BY created_at_us")
    assert [state for _, state in rows] == ["ended", "live"]
    assert len({session for session, _ in rows}) == 2
    assert ledger.all("SELECT session_id FROM tenancy_session_keys") == [(rows[1][0],)]
    assert ledger.where() == ledger.ways(small=2)
    ledger.require_balanced()
    manager.cleanup()
    assert new.read(own) == "new"
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


@pytest.mark.parametrize("again", ["a", "d"])
def test_of_all_that_has_expired_only_what_is_opened_again_ends(
    again: str, manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    old = {name: open_session(name, lifetime=Lifetime(idle=HOUR))._opened.ids.session_id for name in "abcd"}
    manager.clock.advance(2 * HOUR)
    assert open_session(again).usage().results == 0
    ended = ledger.all("SELECT session_id FROM tenancy_sessions WHERE state = 'ended'")
    assert ended == [(old[again],)]


def test_time_is_moved_by_the_managers_clock_and_by_nothing_else(manager: SessionManager, open_session: Open) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(days=3650), maximum=timedelta(days=3650)))
    (info,) = manager.sessions()
    manager.clock.advance(timedelta(days=365))
    later = session.write("x")
    (result,) = session.results()
    assert result.reference == later
    assert timedelta(days=365) <= result.created_at - info.created_at < timedelta(days=365, minutes=5)


@pytest.mark.parametrize("field", ["idle", "maximum", "result"])
@pytest.mark.parametrize("value", [timedelta(0), -HOUR, 3600, 1.5, "1h", timedelta.max, True])
def test_a_lifetime_that_is_no_positive_duration_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Lifetime(**{field: value})
    assert field in str(refusal.value)


def test_what_is_no_lifetime_or_limits_is_refused_at_opening(manager: SessionManager, ledger: Ledger) -> None:
    before = ledger.snapshot()
    for wrong in ({"lifetime": HOUR}, {"lifetime": 3600}, {"limits": {"session_bytes": 1}}, {"limits": 5}):
        with pytest.raises(ConfigurationError):
            manager.session(**SESSION, **wrong)  # type: ignore[arg-type]
    assert ledger.snapshot() == before


def test_a_session_that_has_ended_is_gone_whatever_has_become_of_its_key(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = session.write("x")

    def disabled(*_: object, **__: object) -> None:
        raise KeyUnavailable("The key this data is under is disabled.")

    monkeypatch.setattr(manager._backend.keyring, "session_key", disabled)
    uses: list[Callable[[], object]] = [lambda: session.write("y"), lambda: session.read(reference)]
    for use in uses:
        with pytest.raises(KeyUnavailable):
            use()
    manager.clock.advance(timedelta(days=31))
    for use in uses:
        with pytest.raises(SessionNotFound):
            use()
