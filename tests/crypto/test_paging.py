import os
import random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.errors import ResultCorrupt
from tenancy.keys.material import SecretKey
from tenancy.sealing.columns import content_context, require_bound_columns
from tenancy.sealing.envelope import open_card, read_chars, seal
from tenancy.sealing.ranges import RangedReader
from tests.crypto.conftest import BINDING, CARD

KEY = SecretKey(bytes(range(32)))
PIECES = st.text(st.sampled_from("ab \n\r\u00e9\u6f22\U0001f600\ud800\udc00\0"), min_size=1, max_size=50)


class Page:
    """One sealed text, and what its body's store was asked for."""

    def __init__(self, text, *, compress=True):
        self.text = text
        self.envelope, self.body = seal(text, key=KEY, key_version=1, binding=BINDING, card=CARD, compress=compress)
        self.contents = open_card(self.envelope, key=KEY, binding=BINDING)
        self.fetched = []
        self.asked = 0

    def fetch(self, ranges):
        assert all(0 <= start < start + length <= len(self.body) for start, length in ranges)
        self.asked += 1
        self.fetched += ranges
        return [self.body[start : start + length] for start, length in ranges]

    def read(self, offset, max_chars, fetch=None):
        return read_chars(
            self.envelope,
            self.contents,
            fetch or self.fetch,
            key=KEY,
            offset=offset,
            max_chars=max_chars,
        )[0]


@pytest.mark.case(119)
@settings(max_examples=60, deadline=None)
@given(PIECES, st.integers(1, 4000), st.integers(1, 40_000), st.booleans())
def test_pages_tile_any_text_exactly(piece, repeats, page_chars, compress):
    page = Page(piece * repeats, compress=compress)
    text, offset = "", 0
    # 200 pages at most, of the size asked for or so.
    page_chars = max(page_chars, len(page.text) // 200 + 1)
    while offset < page.contents.total_chars:
        part = page.read(offset, page_chars)
        assert part == page.text[offset : offset + page_chars]
        assert part
        text, offset = text + part, offset + len(part)
    assert text == page.text


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_page_is_a_slice(data):
    page = data.draw(st.sampled_from(PAGES))
    offset = data.draw(st.integers(0, len(page.text) + 10))
    max_chars = data.draw(st.integers(0, len(page.text) + 10))
    assert page.read(offset, max_chars) == page.text[offset : offset + max_chars]


CHANCE = random.Random(7)
PAGES = [
    Page(""),
    Page("a"),
    Page("one line of five megabytes " * 200_000),
    Page("".join(CHANCE.choices("ab\n\u00e9\u6f22\U0001f600\ud800", k=200_000))),
    Page(CHANCE.randbytes(100_000).hex(), compress=False),
    Page("a" * 32768 + "\u6f22" * 40_000),
]


def test_single_characters_around_every_border_are_the_right_ones():
    page = PAGES[3]
    starts = [sum(page.contents.segments.chars[:index]) for index in range(len(page.contents.segments.chars))]
    for start in starts:
        for offset in range(max(0, start - 2), start + 3):
            assert page.read(offset, 1) == page.text[offset : offset + 1]


def test_a_page_behind_the_end_is_empty():
    for page in PAGES:
        assert page.read(len(page.text), 10) == ""
        assert page.read(1 << 60, 1 << 60) == ""


@pytest.mark.parametrize(("offset", "max_chars"), [(-1, 1), (0, -1)])
def test_a_negative_page_is_refused(offset, max_chars):
    with pytest.raises(ValueError, match="positive"):
        PAGES[1].read(offset, max_chars)


def test_bytes_have_no_pages():
    envelope, body = seal(b"bytes", key=KEY, key_version=1, binding=BINDING, card=CARD)
    contents = open_card(envelope, key=KEY, binding=BINDING)
    with pytest.raises(ValueError, match="text"):
        read_chars(envelope, contents, lambda *_: body, key=KEY, offset=0, max_chars=1)


def test_a_page_of_a_large_text_opens_a_tiny_part_of_it():
    page = Page(os.urandom(4 << 20).hex(), compress=False)
    for offset in (0, 3_000_000, len(page.text) - 4096):
        page.fetched.clear()
        page.asked = 0
        assert page.read(offset, 4096) == page.text[offset : offset + 4096]
        # The last chunk, and at most three for a segment on each side of a border: 2 * 32 KiB.
        assert sum(length for _, length in page.fetched) <= 6 * 16400
        assert len(page.fetched) <= 2
        assert page.asked == 1


def test_the_last_chunk_is_opened_before_any_other(monkeypatch):
    page = Page(os.urandom(1 << 20).hex(), compress=False)
    opened = []

    class Listening:
        def __init__(self, key):
            self._aead = AESGCM(key)

        def decrypt(self, nonce, data, associated_data):
            opened.append(bytes(data))
            return self._aead.decrypt(nonce, data, associated_data)

    monkeypatch.setattr("tenancy.sealing.ranges.AESGCM", Listening)
    page.read(0, 100)
    last = len(page.body) // 16400 * 16400
    assert opened == [page.body[last:], page.body[:16400], page.body[16400 : 2 * 16400]]
    opened.clear()
    with pytest.raises(ResultCorrupt):
        page.read(0, 100, lambda ranges: [bytes(ranges[0][1]), *page.fetch(ranges[1:])])
    assert len(opened) == 1


def test_a_small_text_is_got_in_one_go():
    page = Page(os.urandom(10_000).hex(), compress=False)
    page.read(5, 15_000)
    assert page.fetched == [(0, len(page.body))]


def test_a_long_page_is_got_in_bounded_pieces():
    page = Page(os.urandom(1 << 20).hex(), compress=False)
    assert page.read(0, len(page.text)) == page.text
    assert max(length for _, length in page.fetched) == 16 * 16400
    # Nothing is got twice.
    assert sum(length for _, length in page.fetched) == len(page.body)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: [part[:-1] for part in parts],
        lambda parts: [*parts[:-1], parts[-1] + b"\0"],
        lambda parts: [b"" for _ in parts],
        lambda parts: parts[:-1],
        lambda parts: [*parts, b""],
    ],
)
def test_a_store_that_gives_too_few_or_too_many_bytes_is_not_believed(change):
    for page in PAGES[1:]:
        with pytest.raises(ResultCorrupt):
            page.read(0, 10, lambda ranges: change(page.fetch(ranges)))  # noqa: B023


def test_what_the_store_raises_reaches_the_caller():
    def fetch(ranges):
        raise ConnectionError

    with pytest.raises(ConnectionError):
        PAGES[1].read(0, 10, fetch)


def test_contents_of_another_text_are_refused():
    one, other = PAGES[2], PAGES[3]
    one_with_other = Page(one.text)
    one_with_other.contents = other.contents
    with pytest.raises(ResultCorrupt):
        one_with_other.read(0, 10)


def reader_of(page, *, context):
    with KEY.exposed() as key:
        return RangedReader(page.envelope.header, body_bytes=len(page.body), fetch=page.fetch, key=key, context=context)


def test_a_range_that_is_none_is_refused():
    page = PAGES[2]
    reader = reader_of(page, context=content_context(require_bound_columns(page.envelope, BINDING)))
    for start, length in ((-1, 1), (0, -1), (0, reader.size_bytes + 1), (reader.size_bytes + 1, 0)):
        with pytest.raises(ValueError, match="range"):
            reader.read(start, length)


def test_another_context_is_refused_before_anything_is_got():
    page = Page("text")
    with pytest.raises(ResultCorrupt):
        reader_of(page, context=b"another")
    assert page.fetched == []
