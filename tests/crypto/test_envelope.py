import os
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.errors import KeyUnavailable, ResultCorrupt
from tenancy.keys.material import SecretKey
from tenancy.sealing.envelope import MAX_NAME_CHARS, Card, open_card, open_whole, seal, size_of_text
from tenancy.sealing.segments import SEGMENT_BYTES, cut
from tests.crypto.conftest import BINDING, CARD

any_text = st.text(st.characters(codec=None), max_size=300)  # lone surrogates included
any_content = st.one_of(any_text, st.binary(max_size=300))
KEY = SecretKey(bytes(range(32)))

SIZES = [0, 1, 511, 512, 16383, 16384, 16385, 32767, 32768, 32769, 65536, 3_000_000]
TEXTS = {
    "bom": "\ufeffa",
    "crlf": "a\r\nb\rc\r\n",
    "nul": "\0a\0",
    "lone-high": "\ud800",
    "lone-low": "a\udfff",
    "pair-of-lone-surrogates": "\ud83d\ude00",
    "astral": "\U0001f600" * 20_000,
    "noncharacter": "\uffff\U0010ffff",
    "line-separators": "a\u2028b\x85c\x0b",
    "cut-in-three-bytes": "ab" + "\u6f22" * 30_000,
    "cut-in-surrogates": "a" + "\udc00" * 30_000,
}


def words(size):
    return (" ".join(f"word {number} of a result\n" for number in range(size // 20 + 1)))[:size]


@pytest.mark.case(36, 114)
@given(any_content, st.booleans())
def test_what_was_written_comes_back_exactly_and_of_its_kind(content, compress):
    envelope, body = seal(content, key=KEY, key_version=7, binding=BINDING, card=CARD, compress=compress)
    opened = open_whole(envelope, open_card(envelope, key=KEY, binding=BINDING), body, key=KEY)
    assert type(opened) is type(content)
    assert opened == content
    assert envelope.size_bytes == (len(content) if isinstance(content, bytes) else size_of_text(content))
    assert envelope.stored_bytes == len(body)


@pytest.mark.case(36)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [os.urandom, bytes, words, lambda size: os.urandom(size).decode("latin-1")])
def test_every_size_around_a_chunk_and_a_segment_comes_back(sealed, size, make):
    content = make(size)
    result = sealed(content)
    assert result.open_whole() == content
    if isinstance(content, str):
        assert result.read_chars() == content


@pytest.mark.case(113, 116)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_text_comes_back(sealed, text):
    result = sealed(text)
    assert result.open_whole() == text
    assert result.read_chars() == text
    assert result.envelope.size_bytes == len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.case(78)
def test_bytes_that_are_valid_text_stay_bytes(sealed):
    assert sealed(b"plain ascii").open_whole() == b"plain ascii"
    assert sealed(b"").open_whole() == b""
    assert sealed("").open_whole() == ""


def test_a_subclass_of_text_is_sealed_as_text(sealed):
    class Markup(str):
        __slots__ = ()

    assert type(sealed(Markup("a")).open_whole()) is str


@pytest.mark.parametrize("content", [bytearray(b"a"), memoryview(b"a"), None, 1, ["a"]])
def test_what_is_neither_text_nor_bytes_is_refused(sealed, content):
    with pytest.raises(TypeError):
        sealed(content)


@pytest.mark.case(33)
@pytest.mark.parametrize("content", [words(5000), b"\0" * 5000, ""])
def test_the_same_content_sealed_twice_has_nothing_in_common(sealed, content):
    one, other = sealed(content), sealed(content)
    for mine, theirs in ((one.envelope.header, other.envelope.header), (one.envelope.card, other.envelope.card)):
        assert mine[:24] != theirs[:24]
        assert mine[24:56] != theirs[24:56]
    mine, theirs = one.envelope.card[56:] + one.body, other.envelope.card[56:] + other.body
    same = sum(a == b for a, b in zip(mine, theirs, strict=True))
    # By chance one byte in 256.
    assert same < len(mine) / 64 + 8


def test_nothing_sealed_contains_what_it_seals(sealed):
    canary = "canary-plaintext-7f3a"
    result = sealed(canary * 50, card=replace(CARD, name=canary, tool=canary, media_type=canary, hint=canary))
    everything = result.body + result.envelope.card + result.envelope.header
    assert canary.encode() not in everything
    assert canary not in repr(result.envelope)


@given(st.builds(Card, any_text, any_text, any_text, any_text, st.none() | any_text, st.none() | any_text))
def test_the_card_comes_back_exactly(card):
    envelope, _ = seal(b"", key=KEY, key_version=1, binding=BINDING, card=card)
    assert open_card(envelope, key=KEY, binding=BINDING).card == card


def test_a_name_keeps_its_first_characters():
    card = replace(CARD, name="\udfff" * 1_000_000, tool="t" * 5000)
    envelope, _ = seal("", key=KEY, key_version=1, binding=BINDING, card=card)
    opened = open_card(envelope, key=KEY, binding=BINDING).card
    assert opened.name == "\udfff" * MAX_NAME_CHARS
    assert opened.tool == "t" * MAX_NAME_CHARS


def test_a_card_shows_its_texts_in_no_repr():
    envelope, _ = seal("secret", key=KEY, key_version=1, binding=BINDING, card=CARD)
    shown = repr(open_card(envelope, key=KEY, binding=BINDING)) + repr(BINDING)
    assert "web" not in shown
    assert BINDING.tenant_id not in shown


@pytest.mark.parametrize(
    ("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("\n", 1), ("a\nb", 2), ("\n\n", 2), ("a\r\nb\rc", 2)]
)
def test_lines_are_counted_as_they_are_read(text, lines):
    envelope, _ = seal(text, key=KEY, key_version=1, binding=BINDING, card=CARD)
    contents = open_card(envelope, key=KEY, binding=BINDING)
    assert contents.total_lines == lines == len(text.replace("\r", "").splitlines())
    assert contents.total_chars == len(text)


def test_bytes_have_no_characters_and_no_lines():
    envelope, _ = seal(b"a\nb", key=KEY, key_version=1, binding=BINDING, card=CARD)
    contents = open_card(envelope, key=KEY, binding=BINDING)
    assert (contents.total_chars, contents.total_lines) == (None, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("a\n\u00e9\u6f22\U0001f600\ud800"), st.integers(1, 40_000)), max_size=6))
def test_each_segment_takes_as_many_characters_as_it_can_hold(runs):
    text = "".join(character * count for character, count in runs)
    _, segments, table = cut(text, compress=False)
    assert b"".join(segments) == text.encode("utf-8", "surrogatepass")
    assert tuple(map(len, segments)) == table.plain_bytes
    at = 0
    for segment, chars, newlines in zip(segments, table.chars, table.newlines, strict=True):
        assert segment == text[at : at + chars].encode("utf-8", "surrogatepass")
        assert newlines == text.count("\n", at, at + chars)
        at += chars
        assert len(segment) <= SEGMENT_BYTES
        if at < len(text):
            assert len(segment) + len(text[at].encode("utf-8", "surrogatepass")) > SEGMENT_BYTES
    assert at == len(text)


@settings(max_examples=30)
@given(st.text(st.sampled_from("a\n\u00e9\u6f22\U0001f600\ud800"), min_size=10, max_size=100))
def test_the_totals_of_many_segments_are_those_of_the_text(piece):
    text = piece * 1500
    envelope, _ = seal(text, key=KEY, key_version=1, binding=BINDING, card=CARD)
    contents = open_card(envelope, key=KEY, binding=BINDING)
    assert contents.total_chars == len(text)
    assert contents.total_lines == text.count("\n") + (not text.endswith("\n"))


def test_text_is_compressed_when_it_pays_and_only_then(sealed):
    assert sealed(words(100_000)).envelope.stored_bytes < 40_000
    assert sealed(words(100_000)).envelope.codec == 1
    assert sealed("a line of a few words").envelope.codec == 0
    assert sealed(words(100_000), compress=False).envelope.codec == 0
    assert sealed(b"a" * 100_000).envelope.stored_bytes > 100_000


def test_a_segment_that_does_not_get_shorter_is_stored_as_it_is(sealed):
    chance = random.Random(0)
    # So many different bytes in so short a text that a frame of them is longer.
    tail = "".join(chr(chance.randrange(*chance.choice([(128,)] * 3 + [(128, 2048)]))) for _ in range(440))
    size = size_of_text(tail)
    assert size > 512
    mixed = words(32768) + tail
    result = sealed(mixed)
    table = open_card(result.envelope, key=SecretKey(result.key_bytes), binding=BINDING).segments
    assert table.stored_bytes[0] < table.plain_bytes[0] == 32768
    assert table.stored_bytes[1] == table.plain_bytes[1] == size
    assert result.open_whole() == mixed == result.read_chars()


def test_the_card_of_a_long_text_is_short(sealed):
    # 92 segments of four numbers of four bytes each.
    assert len(sealed(words(3_000_000)).envelope.card) < 1000


def test_the_size_that_is_charged_is_the_size_in_utf_8():
    assert size_of_text("") == 0
    assert size_of_text("ab") == 2
    assert size_of_text("\u00e9\u6f22\U0001f600\ud800") == 2 + 3 + 4 + 3


@pytest.mark.case(130)
def test_another_key_opens_nothing(sealed):
    for content in ("text", b"bytes"):
        replace(sealed(content), key_bytes=os.urandom(32)).require_corrupt()


def test_a_closed_key_seals_and_opens_nothing(sealed):
    result = sealed("text")
    closed = SecretKey(result.key_bytes)
    contents = open_card(result.envelope, key=closed, binding=BINDING)
    closed.close()
    with pytest.raises(KeyUnavailable):
        seal("text", key=closed, key_version=1, binding=BINDING, card=CARD)
    with pytest.raises(KeyUnavailable):
        open_whole(result.envelope, contents, result.body, key=closed)
    with pytest.raises(KeyUnavailable):
        open_card(result.envelope, key=closed, binding=BINDING)


def test_what_is_refused_says_nothing(sealed):
    result = sealed("canary-plaintext" * 2000)
    body = result.body[:-1] + bytes([result.body[-1] ^ 1])
    with pytest.raises(ResultCorrupt) as refusal:
        replace(result, body=body).open_whole()
    assert str(refusal.value) == "The stored result is damaged or was tampered with."
    assert refusal.value.__suppress_context__
