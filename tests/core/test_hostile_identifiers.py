"""Identifiers that come from outside: each is somebody of its own, whatever else it looks like to anybody."""

import os
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tenancy import Limits, ResultNotFound, ScopeError, Session, SessionManager
from tests.conftest import ManagerFactory
from tests.core.hostile import IDENTIFIERS, PIECES, SHARED, TEXTS, is_identifier, require_nothing_outside
from tests.core.ledger import Ledger
from tests.stores.files import CALLS

Open = Callable[..., Session]
Names = tuple[str, str, str]


def require_apart(manager: SessionManager, one: Names, other: Names) -> None:
    """Whatever is done as the first one shows and changes nothing of the other's."""
    mine, theirs = (manager.session(tenant=names[0], user=names[1], session=names[2]) for names in (one, other))
    reference, kept = mine.write("mine"), theirs.write(b"theirs")
    for reader, foreign in ((mine, kept), (theirs, reference)):
        with pytest.raises(ResultNotFound):
            reader.read(foreign)
    for names, session, size in ((one, mine, 4), (other, theirs, 6)):
        tenant, user, name = names
        assert [result.size_bytes for result in session.results()] == [size]
        assert manager.usage(tenant=tenant, user=user, session=name).used_bytes == size
        for listed in (manager.sessions(), manager.sessions(tenant=tenant), manager.sessions(tenant=tenant, user=user)):
            assert names in [(info.tenant, info.user, info.session) for info in listed]
        if one[0] != other[0]:
            assert manager.usage(tenant=tenant).used_bytes == size
            assert [info.tenant for info in manager.sessions(tenant=tenant)] == [tenant]
        elif one[1] != other[1]:
            assert manager.usage(tenant=tenant, user=user).used_bytes == size
            assert [info.user for info in manager.sessions(tenant=tenant, user=user)] == [user]
    manager.set_limits(Limits(session_bytes=4), tenant=one[0], user=one[1], session=one[2])
    theirs.write("more than four")
    assert manager.delete_session(tenant=one[0], user=one[1], session=one[2]).results == 1
    if one[:2] != other[:2]:
        assert manager.erase_user(tenant=one[0], user=one[1]).users == 1
    if one[0] != other[0]:
        assert manager.erase_tenant(tenant=one[0]).level == "tenant"
    assert theirs.read(kept) == b"theirs"


def cleared(manager: SessionManager, *names: Names) -> None:
    for tenant, _, _ in names:
        manager.erase_tenant(tenant=tenant)


def folded(text: str) -> str:
    """What is left of a text when everybody has made of it what they make of texts."""
    return unicodedata.normalize("NFKC", unquote(unquote(text))).casefold().strip().rstrip(".").replace("\\", "/")


@pytest.mark.case(79, 86, 95, 96)
@settings(SHARED, max_examples=6)
@given(one=st.tuples(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS), position=st.integers(0, 2), other=IDENTIFIERS)
def test_whoever_differs_in_one_name_is_somebody_else(
    manager: SessionManager, make_manager: ManagerFactory, one: Names, position: int, other: str
) -> None:
    assume(one[position] != other)
    second = (*one[:position], other, *one[position + 1 :])
    require_apart(manager, one, second)  # type: ignore[arg-type]
    require_nothing_outside(make_manager)
    cleared(manager, one, second)  # type: ignore[arg-type]


@pytest.mark.case(82, 87, 95, 96)
@settings(SHARED, max_examples=8)
@given(
    text=IDENTIFIERS,
    change=st.sampled_from(["encoded", "twice", "folded", "longer", "pattern"]),
    piece=st.sampled_from(PIECES),
)
def test_a_name_is_not_what_somebody_would_make_of_it(
    manager: SessionManager, text: str, change: str, piece: str
) -> None:
    made = {
        "encoded": quote(text, safe=""),
        "twice": quote(quote(text, safe=""), safe=""),
        "folded": folded(text),
        "longer": text + piece,
        "pattern": "".join("_" if at % 2 else character for at, character in enumerate(text)) + "%",
    }[change]
    assume(made != text and is_identifier(made))
    one, other = ("acme", text, "chat"), ("acme", made, "chat")
    require_apart(manager, one, other)
    cleared(manager, one)


@pytest.mark.case(79)
@SHARED
@given(texts=st.lists(TEXTS, min_size=5, max_size=5))
def test_hostile_texts_everywhere_at_once_write_nothing_outside(
    manager: SessionManager, make_manager: ManagerFactory, ledger: Ledger, texts: list[str]
) -> None:
    tenant, user, session, key, reference = texts
    names = {"tenant": tenant, "user": user, "session": session}
    if not all(map(is_identifier, names.values())):
        with pytest.raises(ScopeError):
            manager.session(**names)
        assert ledger.count("tenancy_sessions") == 0
        return
    with manager.session(**names) as opened:
        written = opened.store.write(key=key, content=key)
        assert opened.read(written) == key
        with pytest.raises(ResultNotFound):
            opened.read(reference)
    require_nothing_outside(make_manager)
    # In clear it stands in the tables that name somebody, and nowhere else.
    assert ledger.all("SELECT name FROM tenancy_tenants") == [(tenant,)]
    assert manager.erase_tenant(tenant=tenant).results == 1
    ledger.require_empty()


@pytest.mark.case(88)
@pytest.mark.parametrize("name", ["agent:main:x", "agent:main", ":", "a:b:c:d", "::1", "urn:uuid:0"])
def test_a_name_with_colons_works_like_any_other(manager: SessionManager, ledger: Ledger, name: str) -> None:
    names = {"tenant": name, "user": name, "session": name}
    session = manager.session(**names)
    reference = session.store.write(key=f"1_search_{name}.txt", content=name)
    assert manager.session(**names).read(reference) == name
    session.delete(reference)
    with pytest.raises(ResultNotFound):
        session.read(reference)
    assert manager.delete_session(**names).sessions == 1
    ledger.require_empty()


@pytest.mark.case(68)
def test_what_is_unique_is_so_within_its_tenant_only(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worst of chances: every id, every reference and every hash of one that anybody gets, somebody else has too.
    ids = {tenant: iter([f"{tenant[0]}" * 32, "u" * 32, "s" * 32]) for tenant in ("acme", "globex")}
    made = []
    for tenant in ids:
        monkeypatch.setattr("tenancy.opening.mint_name", lambda tenant=tenant: next(ids[tenant]))
        made.append(open_session("same", user="same", tenant=tenant))
    monkeypatch.setattr("tenancy.writing.mint_name", lambda: "r" * 32)
    monkeypatch.setattr("tenancy.writing.mint_tag", lambda: "aaaaaaaaaa")
    sizes = (10, 50_000)
    for size in sizes:
        monkeypatch.setattr("tenancy.writing.mint_name", lambda size=size: ("r" if size == 10 else "q") * 32)
        written = [
            session.write(tenant.encode() * size, name="same.txt") for tenant, session in zip(ids, made, strict=True)
        ]
        assert len(set(written)) == 1
        contents = [session.read(written[0]) for session in made]
        assert contents == [tenant.encode() * size for tenant in ids]
    hashes = ledger.all("SELECT reference_hash, count(*) FROM tenancy_results GROUP BY reference_hash")
    assert sorted(count for _, count in hashes) == [2, 2]
    assert manager.erase_tenant(tenant="acme").results == 2
    assert made[1].read(written[0]) == b"globex" * sizes[1]
    ledger.require_balanced()


@pytest.mark.case(68)
def test_a_name_that_somebody_else_has_is_free_for_everybody(manager: SessionManager, ledger: Ledger) -> None:
    names = [
        ("acme", "acme", "acme"),
        ("globex", "acme", "acme"),
        ("globex", "globex", "acme"),
        ("globex", "globex", "globex"),
    ]
    for tenant, user, session in names:
        manager.session(tenant=tenant, user=user, session=session).write("x", name="acme")
    assert {(info.tenant, info.user, info.session) for info in manager.sessions()} == set(names)
    for tenant, user, session in names:
        assert manager.usage(tenant=tenant, user=user, session=session).results == 1
    assert ledger.where() == ledger.ways(small=len(names))


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file system that takes names in any case and any Unicode form for one. Returns the names it was given."""
    seen: list[str] = []

    def fold(name: Any) -> Any:
        if not isinstance(name, str) or name.startswith("/"):
            return name
        seen.append(name)
        return unicodedata.normalize("NFC", name).casefold()

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            at_a_descriptor = any(option in options for option in ("dir_fd", "src_dir_fd"))
            return real(*(fold(one) if at_a_descriptor else one for one in arguments), **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return seen


@pytest.mark.case(87)
@pytest.mark.parametrize("field", ["tenant", "user", "session"])
def test_names_that_a_file_system_folds_are_different_rooms_on_it(
    make_manager: ManagerFactory, folding: list[str], ledger: Ledger, field: str
) -> None:
    manager = make_manager(durability="process")
    who = {"tenant": "acme", "user": "ann", "session": "chat"}
    names = ["Room", "room", "ROOM", "\u00f1", "n\u0303", "\u212a", "k", "\u017f", "s"]
    written = {}
    for name in names:
        session = manager.session(**{**who, field: name})
        written[name] = session.write(name.encode() * 50_000)
        session.write(name)
    for name, reference in written.items():
        session = manager.session(**{**who, field: name})
        assert session.read(reference) == name.encode() * 50_000
        assert len(list(session.results())) == 2
    # Nothing that it would fold was ever asked of it.
    assert folding != []
    assert [name for name in folding if name != unicodedata.normalize("NFC", name).casefold()] == []
    assert ledger.where() == ledger.ways(small=len(names), large=len(names))
    ledger.require_balanced()
