"""References that come from models: one that was not given out here is not found, whatever it looks like."""

import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy import ResultNotFound, Session, SessionManager
from tests.conftest import ManagerFactory
from tests.core.hostile import SHARED, TEXTS, paths_into, require_nothing_outside
from tests.core.interposed import Statements, Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]


def uses(session: Session) -> list[Callable[[Any], Any]]:
    """Everything that takes a reference."""
    return [session.read, lambda text: session.read_page(text, max_chars=10), session.delete]


def require_not_found(session: Session, text: Any) -> None:
    for use in uses(session):
        with pytest.raises(ResultNotFound) as answer:
            use(text)
        # The same of everything, and nothing of what was asked.
        assert str(answer.value) == "There is no such result in this session."


@pytest.mark.case(11, 24, 79)
@SHARED
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
def test_a_hostile_text_is_no_reference_and_nobody_is_asked_about_it(
    manager: SessionManager, make_manager: ManagerFactory, store: Store, statements: Statements, texts: list[str]
) -> None:
    session = manager.session(tenant="acme", user="ann")
    reference = session.write("mine")
    store.calls.clear()
    statements.texts.clear()
    for text in [
        *texts,
        *(f"{text}{reference}" for text in texts if text),
        *(reference + text for text in texts if text),
    ]:
        require_not_found(session, text)
    assert (statements.texts, store.calls) == ([], [])
    assert session.read(reference) == "mine"
    require_nothing_outside(make_manager)


@pytest.mark.case(9, 102)
def test_no_path_is_a_reference_also_not_that_of_a_results_own_file(
    manager: SessionManager, make_manager: ManagerFactory, store: Store, statements: Statements
) -> None:
    session = manager.session(tenant="acme", user="ann")
    # One that goes inline where that is on, and one that never does.
    references = [session.write("small", name="web.txt"), session.write(b"x" * 40_000, name="web.bin")]
    paths = paths_into(make_manager.folder)
    assert any(path.endswith(".json/") for path in paths)
    store.calls.clear()
    statements.texts.clear()
    for path in [*paths, *(f"{path}/{reference}" for path in paths for reference in references)]:
        require_not_found(session, path)
    assert (statements.texts, store.calls) == ([], [])
    # Of the grammar, made of the names of files.
    for path in sorted(make_manager.results.rglob("*")):
        require_not_found(session, f"web-1-{path.name[:10]}.txt")


#: What may happen to a character of a reference on its way through a model, a browser or a database.
CHANGES: list[Callable[[str], str]] = [
    str.upper,
    lambda character: chr(ord(character) + 0xFEE0),
    lambda character: {"a": "\u0430", "e": "\u0435", "o": "\u043e", "c": "\u0441", "-": "\u2010"}.get(
        character, "\u0456"
    ),
    lambda character: unicodedata.normalize("NFD", character + "\u0301"),
    lambda character: {"1": "\u0661", "2": "\u00b2", "3": "\u00b3"}.get(character, "\u2074"),
    lambda character: f"%{ord(character):02x}",
    lambda character: f"%25{ord(character):02x}",
    lambda character: f"\\u{ord(character):04x}",
    lambda character: character + "\u200b",
    lambda character: character + "\u0000",
    lambda character: character * 2,
    lambda character: "",
    lambda character: " ",
    lambda character: "b" if character == "a" else "a",
    lambda character: "3" if character == "2" else "2",
]


@pytest.mark.case(10, 82)
@SHARED
@given(places=st.lists(st.tuples(st.integers(0, 30), st.integers(0, len(CHANGES) - 1)), min_size=1, max_size=8))
def test_a_reference_with_anything_changed_is_not_found(
    manager: SessionManager, ledger: Ledger, places: list[tuple[int, int]]
) -> None:
    session = manager.session(tenant="acme", user="ann")
    reference, another = (session.write(content, name="web.txt") for content in ("mine", "another"))
    before = ledger.counts()
    for place, change in places:
        at = place % len(reference)
        changed = reference[:at] + CHANGES[change](reference[at]) + reference[at + 1 :]
        if changed not in (reference, another):
            require_not_found(session, changed)
    for form in (quote(reference, safe=""), quote(quote(reference, safe="-"), safe=""), reference.replace("-", "%2D")):
        if form != reference:
            require_not_found(session, form)
    assert (session.read(reference), session.read(another)) == ("mine", "another")
    assert ledger.counts() == before


@pytest.mark.case(12, 13, 81)
@settings(SHARED, max_examples=2)
@given(key=TEXTS, content=st.text(max_size=20) | st.binary(max_size=20))
def test_a_reference_is_good_in_its_own_session_only(
    manager: SessionManager, statements: Statements, key: str, content: str | bytes
) -> None:
    rooms = [
        manager.session(tenant=tenant, user=user, session=session)
        for tenant in ("acme", "acm_")
        for user in ("ann", "an%")
        for session in ("chat", None)
    ]
    written = [room.store.write(key=key, content=content) for room in rooms]
    assert len(set(written)) == len(rooms)
    asked = set()
    for at, room in enumerate(rooms):
        for other, reference in enumerate(written):
            if other == at:
                assert room.read(reference) == content
            else:
                with statements.counted() as said:
                    require_not_found(room, reference)
                asked.add(tuple(said))
        # A reference that never was is asked about in the same words.
        with statements.counted() as said:
            require_not_found(room, f"result-{7 + at}-aaaaaaaaaa")
        asked.add(tuple(said))
    assert len(asked) == 1


@pytest.mark.case(12, 13, 81)
def test_a_reference_given_out_by_equal_chance_is_still_another_sessions(
    open_session: Open, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    # The same words, number and random part everywhere: what keeps them apart is whose they are.
    monkeypatch.setattr("tenancy.writing.mint_tag", lambda: "aaaaaaaaaa")
    rooms = [open_session(), open_session("other"), open_session(user="bob"), open_session(tenant="globex")]
    written = [room.write(f"of {at}", name="web.txt") for at, room in enumerate(rooms)]
    assert set(written) == {"web-1-aaaaaaaaaa.txt"}
    assert [room.read(written[0]) for room in rooms] == ["of 0", "of 1", "of 2", "of 3"]
    rooms[0].delete(written[0])
    require_not_found(rooms[0], written[0])
    assert [room.read(written[0]) for room in rooms[1:]] == ["of 1", "of 2", "of 3"]
    ledger.require_balanced()
