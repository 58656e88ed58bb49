"""Contents of every kind: what comes back is what was written, whole and in pages."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenancy import SessionManager
from tests.core.hostile import SHARED, TEXTS
from tests.core.ledger import Ledger

#: What a codec, a text mode, a terminal or a database changes, joins, cuts off or takes for something else.
AWKWARD = (
    "\r", "\n", "\r\n", "\n\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\0", "\ufeff", "\ufffe", "\ufffd",
    "\ud800", "\udbff", "\udc00", "\udfff", "\ud83d\ude00", "\U0001f600", "\U0010ffff", "e\u0301", "\u00e9", "\x1a",
    "\x08", " ", "\t", "a", "\\", "\x7f", "\xff",
)  # fmt: skip
CHARACTERS = st.lists(st.sampled_from(AWKWARD) | st.characters(), max_size=30).map("".join)
BYTES = st.lists(st.binary(max_size=4) | st.sampled_from([b"\xef\xbb\xbf", b"\r\n", b"\0", b"\xff\xfe"]), max_size=20)
#: Around the length of a chunk, of a segment, and of what goes inline.
REPEATS = st.sampled_from([1, 1, 1, 16_384, 32_768, 33_000])


@pytest.mark.case(36, 78, 113, 114, 116)
@SHARED
@given(content=CHARACTERS | TEXTS | BYTES.map(b"".join), repeats=REPEATS, extra=st.integers(0, 2))
@example(content="\r\n", repeats=16_384, extra=1)
@example(content="\ud83d", repeats=32_768, extra=0)
@example(content=b"\xc3\xa9", repeats=1, extra=0)
def test_whatever_is_written_comes_back_exactly_and_of_its_kind(
    manager: SessionManager, content: str | bytes, repeats: int, extra: int
) -> None:
    # A result is no longer than some hundred thousand characters: many examples, not large ones.
    whole = content[:4] * repeats + content[4 : 4 + extra] if repeats > 1 else content
    session = manager.session(tenant="acme", user="ann")
    reference = session.write(whole)  # type: ignore[arg-type]
    found = session.read(reference)
    # In a word, or a failure would print all of it.
    is_same = type(found) is type(whole) and found == whole
    assert is_same
    (listed,) = session.results()
    assert listed.kind == ("text" if isinstance(whole, str) else "bytes")
    if isinstance(whole, str):
        assert listed.total_chars == len(whole)
        assert listed.size_bytes == len(whole.encode("utf-8", "surrogatepass"))
    session.delete(reference)


@pytest.mark.case(113, 116, 118, 119)
@SHARED
@given(content=CHARACTERS, repeats=st.sampled_from([1, 1, 5_000]), page=st.integers(1, 70_000))
def test_pages_make_the_text_again_whatever_is_in_it(
    manager: SessionManager, ledger: Ledger, content: str, repeats: int, page: int
) -> None:
    whole = content * repeats
    page = max(page, len(whole) // 12 + 1)
    session = manager.session(tenant="acme", user="ann")
    reference = session.write(whole)
    parts, offset = [], 0
    while True:
        found = session.read_page(reference, offset=offset, max_chars=page)
        parts.append(found.text)
        assert len(found.text) <= page
        assert (found.total_chars, found.offset) == (len(whole), offset)
        if found.next_offset is None:
            break
        assert found.next_offset > offset
        offset = found.next_offset
    is_same = "".join(parts) == whole
    assert is_same
    session.delete(reference)
    assert ledger.where() == (0, 0)
