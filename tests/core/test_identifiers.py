"""Identifiers: hostile texts are refused or taken exactly as they are, and never get near a path or a pattern."""

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tenancy import ConfigurationError, Limits, ResultNotFound, ScopeError, Session, SessionManager
from tenancy.scope import Scope
from tests.core.ledger import Ledger

Open = Callable[..., Session]
FIELDS = ("tenant", "user", "session")
WHO = {"tenant": "acme", "user": "ann", "session": "chat"}

#: Texts that something between us and the disk might take for one and the same, or for a pattern of the other.
ALIKE = [
    ("user1", "user10"),
    ("user1", "user1-x"),
    ("Room", "room"),
    ("\u00e9", "e\u0301"),
    ("\u017f", "s"),
    ("\ufb01", "fi"),
    ("\u0130", "i\u0307"),
    ("a", "\u0430"),
    ("a_b", "aXb"),
    ("_", "x"),
    ("100%", "1000"),
    ("%", "anything"),
    ("%61", "a"),
    ("%2561", "%61"),
    ("a\\", "a\\\\"),
    ("a\\_b", "a_b"),
    (" a", "a"),
    ("a ", "a"),
    ("a\u00a0", "a "),
    ("..", "."),
    ("../acme", "acme"),
    ("/", "//"),
    ("C:", "c:"),
    ("a'--", "a"),
    ("a' OR '1'='1", "a"),
    ("x" * 254 + "a", "x" * 254 + "b"),
    ("\U0001f600" * 255, "\U0001f600" * 254),
    ("1", "01"),
    ("null", "None"),
    ("agent:main:x", "agent"),
    ("{tenant}", "%(tenant)s"),
    (":tenant", "?"),
]

REFUSED: list[Any] = [
    "",
    " ",
    "\u3000\u00a0",
    "\n",
    "a\x00b",
    "a\x1fb",
    "a\x7fb",
    "a\x85b",
    "a\n",
    "\ta",
    "\ud800",
    "a\udfffb",
    "\ud83d\ude00",
    "x" * 256,
    "x" * 1_000_000,
    1,
    1.0,
    True,
    b"x",
    ("x",),
    ["x"],
    object(),
]


class Text(str):
    """Not quite a string."""

    __slots__ = ()


@pytest.mark.parametrize("field", FIELDS)
def test_a_text_that_names_nobody_is_refused_before_anything_is_looked_up(
    manager: SessionManager, ledger: Ledger, field: str
) -> None:
    before = ledger.snapshot()
    for refused in [*REFUSED, Text("x")]:
        who = {**WHO, field: refused}
        calls: list[Callable[..., Any]] = [manager.session, manager.delete_session]
        calls += [manager.usage, manager.limits] if field == "session" else []
        for call in calls:
            with pytest.raises(ScopeError) as refusal:
                call(**who)
            # The error names the field and no part of the text.
            assert field in str(refusal.value)
            assert len(str(refusal.value)) < 100
            assert not isinstance(refused, str) or repr(refused) not in str(refusal.value)
        if field != "session":
            who.pop("session")
            for call in (manager.usage, manager.erase_user, lambda who=who: list(manager.sessions(**who))):
                with pytest.raises(ScopeError):
                    call(**who) if call in (manager.usage, manager.erase_user) else call()
    assert ledger.snapshot() == before


@pytest.mark.case(103)
def test_nobody_at_all_is_refused_too(manager: SessionManager) -> None:
    for field in ("tenant", "user"):
        with pytest.raises(ScopeError):
            manager.session(**{**WHO, field: None})  # type: ignore[arg-type]
    with pytest.raises(ScopeError):
        manager.erase_user(tenant="acme", user=None)  # type: ignore[arg-type]
    with pytest.raises(ScopeError):
        manager.erase_tenant(tenant=None)  # type: ignore[arg-type]


@pytest.mark.case(82, 86, 87, 88, 95, 96)
@pytest.mark.parametrize("field", FIELDS)
def test_texts_that_look_alike_are_different_people_and_rooms(
    manager: SessionManager, open_session: Open, ledger: Ledger, field: str
) -> None:
    levels = FIELDS[: FIELDS.index(field) + 1]
    for index, pair in enumerate(ALIKE):
        # The wider level is of this pair alone, so that no pair disturbs another.
        mine, theirs = ({**WHO, "tenant": f"t{index}", field: text} for text in pair)
        one, two = open_session(**mine), open_session(**theirs)
        reference = one.write("only mine")
        assert ledger.where() == ledger.ways(small=1)
        with pytest.raises(ResultNotFound):
            two.read(reference)
        assert list(two.results()) == []
        asked = {level: theirs[level] for level in levels}
        assert manager.usage(**asked).used_bytes == 0, pair
        assert manager.usage(**{level: mine[level] for level in levels}).used_bytes == 9
        if field != "session":
            assert [getattr(info, field) for info in manager.sessions(**asked)] == [theirs[field]]
        assert open_session(**mine).read(reference) == "only mine"
        assert manager.delete_session(**theirs).results == 0
        assert manager.delete_session(**mine).results == 1
    ledger.require_empty()


@pytest.mark.case(95, 96)
def test_erasing_one_of_two_who_look_alike_leaves_the_other(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    kept = []
    for gone, stays in ALIKE:
        # Each text stands in several pairs; a tenant of its own keeps them apart.
        tenant = f"t{len(kept)}"
        open_session(user=gone, tenant=tenant).write("gone")
        kept.append((tenant, stays, open_session(user=stays, tenant=tenant).write("stays")))
        assert manager.erase_user(tenant=tenant, user=gone).results == 1
    for tenant, user, reference in kept:
        assert open_session(user=user, tenant=tenant).read(reference) == "stays"
    assert ledger.where() == ledger.ways(small=len(ALIKE))
    ledger.require_balanced()


ACCEPTED = st.text(
    st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=255
).filter(lambda text: not text.isspace())  # fmt: skip


@given(text=ACCEPTED)
@example("x" * 255)
@example("\ufeff")
@example("\u202e")
def test_every_other_text_is_taken_exactly_as_it_is(text: str) -> None:
    scope = Scope.of(tenant=text, user=text, session=text)
    assert (scope.tenant, scope.user, scope.session) == (text, text, text)


@given(text=st.text(st.characters(), max_size=300))
def test_a_text_is_refused_exactly_if_the_rule_says_so(text: str) -> None:
    allowed = 1 <= len(text) <= 255 and not text.isspace()
    allowed = allowed and not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
    if allowed:
        assert Scope.of(tenant=text, user="u").tenant == text
    else:
        with pytest.raises(ScopeError):
            Scope.of(tenant=text, user="u")


@pytest.mark.case(79)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tenant=ACCEPTED, user=ACCEPTED, session=st.none() | ACCEPTED)
@example("../../etc", "/", "\\")
def test_any_accepted_text_opens_a_room_that_is_found_again(
    manager: SessionManager, ledger: Ledger, tenant: str, user: str, session: str | None
) -> None:
    reference = manager.session(tenant=tenant, user=user, session=session).write("x")
    assert manager.session(tenant=tenant, user=user, session=session).read(reference) == "x"
    assert (tenant, user, session) in [
        (info.tenant, info.user, info.session) for info in manager.sessions(tenant=tenant, user=user)
    ]
    # No identifier becomes a path: three fixed-width names are all there is.
    assert all(len(part) == 32 for path in ledger.files for part in path.parts[-3:])


def test_a_scope_shows_a_short_hash_and_no_name() -> None:
    scope = Scope.of(tenant="acme-secret", user="ann-secret", session="chat-secret")
    assert "secret" not in repr(scope) + str(scope) + f"{scope}" + scope.short_hash
    # The parts cannot be shifted into each other.
    assert Scope.of(tenant="ab", user="c").short_hash != Scope.of(tenant="a", user="bc").short_hash


@pytest.mark.case(103)
def test_a_session_without_its_user_is_refused_rather_than_taken_for_the_tenant(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    before = ledger.snapshot()
    for call in (manager.usage, manager.limits, lambda **who: manager.set_limits(Limits(session_bytes=1), **who)):
        with pytest.raises(ConfigurationError):
            call(tenant="acme", session="chat")
    assert ledger.snapshot() == before
    with pytest.raises(ConfigurationError):
        manager.sessions(user="ann")
