"""Pages of a text, listings, deleting, and the way back from a message."""

from collections.abc import Callable

import pytest
from haystack.dataclasses import ChatMessage, ToolCall
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy import ResultNotFound, Session, SessionManager
from tests.core.ledger import Ledger

Open = Callable[..., Session]


def pages_of(session: Session, reference: str, max_chars: int) -> list[str]:
    """Read page after page, and check what each says of itself."""
    text = session.read(reference)
    assert isinstance(text, str)
    pages, offset = [], 0
    while True:
        page = session.read_page(reference, offset=offset, max_chars=max_chars)
        assert page.offset == offset
        assert page.total_chars == len(text)
        assert page.total_lines == text.count("\n") + (text != "" and not text.endswith("\n"))
        pages.append(page.text)
        if page.next_offset is None:
            return pages
        assert page.next_offset == offset + len(page.text)
        assert page.next_offset > offset
        offset = page.next_offset


@pytest.mark.case(119)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(), max_size=40),
    repeated=st.sampled_from([1, 3, 5000]),
    max_chars=st.integers(1, 60),
)
def test_pages_tile_a_text_exactly(session: Session, text: str, repeated: int, max_chars: int) -> None:
    whole = text * repeated
    reference = session.write(whole)
    size = max_chars * repeated
    pages = pages_of(session, reference, size)
    assert "".join(pages) == whole
    assert all(len(page) == size for page in pages[:-1])


@pytest.mark.case(118)
def test_a_single_line_of_a_megabyte_is_read_in_bounded_pages(session: Session, ledger: Ledger) -> None:
    reference = session.write("".join(chr(0x4E00 + number % 20_000) for number in range(350_000)))
    pages = pages_of(session, reference, 40_000)
    assert [len(page) for page in pages] == [40_000] * 8 + [30_000]
    assert ledger.where() == (0, 1)


def test_a_page_behind_the_end_is_empty_and_the_last(session: Session) -> None:
    reference = session.write("abc")
    for offset in (3, 4, 10**18):
        page = session.read_page(reference, offset=offset, max_chars=1)
        assert (page.text, page.next_offset, page.total_chars) == ("", None, 3)
    assert session.read_page(session.write(""), max_chars=5).total_lines == 0


def test_a_page_of_bytes_or_out_of_range_is_refused(session: Session) -> None:
    text, data = session.write("abc"), session.write(b"abc")
    with pytest.raises(ValueError, match="not text"):
        session.read_page(data, max_chars=1)
    assert session.read_page(text, offset=-1, max_chars=1).text == "c"
    for wrong in ({"max_chars": 0}, {"max_chars": -1}, {"max_chars": 1, "max_lines": 0}):
        with pytest.raises(ValueError, match="max_chars"):
            session.read_page(text, **wrong)


def test_a_listing_shows_every_result_newest_first_over_many_pages(session: Session, ledger: Ledger) -> None:
    written = [session.write(f"{number}", name=f"call_{number}.txt") for number in range(130)]
    found = list(session.results())
    assert [result.reference for result in found] == written[::-1]
    assert [result.name for result in found] == [f"call_{number}.txt" for number in range(129, -1, -1)]
    assert [result.size_bytes for result in found[:3]] == [3, 3, 3]
    assert found == sorted(found, key=lambda result: result.created_at, reverse=True)
    assert ledger.where() == ledger.ways(small=130)


def test_a_listing_of_exactly_one_page_ends(session: Session) -> None:
    for _ in range(50):
        session.write("x")
    assert len(list(session.results())) == 50


def test_a_listing_says_what_a_result_is(session: Session) -> None:
    session.write_result("a\nb", name="notes.txt", tool="web_search", media_type="text/plain")
    session.write(b"\x00")
    newest, oldest = session.results()
    assert (newest.kind, newest.total_chars, newest.total_lines, newest.tool) == ("bytes", None, None, None)
    assert (oldest.kind, oldest.total_chars, oldest.total_lines) == ("text", 3, 2)
    assert (oldest.name, oldest.tool, oldest.media_type) == ("notes.txt", "web_search", "text/plain")
    assert oldest.created_at.utcoffset() is not None
    assert oldest.created_at < oldest.expires_at


def test_a_deleted_result_is_gone_with_its_bytes_and_its_charge(session: Session, ledger: Ledger) -> None:
    small, large = session.write("x" * 10), session.write(b"y" * 50_000)
    kept = session.write("kept")
    assert ledger.where() == ledger.ways(small=2, large=1)
    for reference in (small, large):
        session.delete(reference)
        with pytest.raises(ResultNotFound):
            session.read(reference)
    assert [result.reference for result in session.results()] == [kept]
    assert session.usage().used_bytes == 4
    assert session.usage().results == 1
    assert ledger.where() == ledger.ways(small=1)
    assert ledger.states() == {"committed": 1}
    ledger.require_balanced()


@pytest.mark.case(50)
def test_deleting_twice_or_what_is_unknown_or_foreign_changes_nothing(
    manager: SessionManager, session: Session, open_session: Open, ledger: Ledger
) -> None:
    other = open_session(user="bob")
    foreign, reference = other.write("foreign"), session.write("gone")
    session.write("kept")
    session.delete(reference)
    before = ledger.snapshot()
    for wrong in (reference, reference, foreign, "result-9-aaaaaaaaaa", "../x"):
        with pytest.raises(ResultNotFound):
            session.delete(wrong)
    assert ledger.snapshot() == before
    assert other.read(foreign) == "foreign"
    assert manager.usage(tenant="acme").results == 2
    assert ledger.where() == ledger.ways(small=2)
    ledger.require_balanced()


def message(text: str, references: list[str] | None = None) -> ChatMessage:
    call = ToolCall(tool_name="search", arguments={}, id="1")
    meta = {} if references is None else {"tool_result_offloaded": references}
    return ChatMessage.from_tool(text, origin=call, meta=meta)


def test_a_message_is_resolved_to_what_it_stood_for(session: Session, open_session: Open) -> None:
    text, data = session.write("the whole text"), session.write(b"\x89PNG")
    assert session.resolve(message("pointer", [text])) == "the whole text"
    assert session.resolve(message("pointer", [text, data])) == ["the whole text", b"\x89PNG"]
    assert session.resolve(message("short enough")) == "short enough"
    assert session.resolve(ChatMessage.from_user("a question")) == "a question"
    with pytest.raises(ResultNotFound):
        open_session(user="bob").resolve(message("pointer", [text]))
    session.delete(text)
    with pytest.raises(ResultNotFound):
        session.resolve(message("pointer", [data, text]))
