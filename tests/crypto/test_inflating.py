"""
An attacker who has the session's key seals what this library never would. Refused, in bounded memory.

Everything here is sealed by hand; the first test shows that the hand is good.
"""

import struct
import sys
import tracemalloc

import pytest

from tests.crypto.second_reader import give_table

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BOMB = bytes.fromhex("28b52ffde06c06060663636363")
PLAIN = b"a line of text\n" * 2000
SIZE = len(PLAIN)
FRAME = zstd.compress(PLAIN, 1)


def table_of(content, *, plain=SIZE, chars=SIZE, newlines=2000, lines=2000):
    return give_table(chars, lines, [[len(content)], [plain], [chars], [newlines]])


def checksummed(data):
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def lying_frame(claimed_bytes, *, real_blocks):
    """A frame in one piece that claims `claimed_bytes` and holds as many in each of its blocks of one repeated byte."""
    header = b"\x28\xb5\x2f\xfd" + b"\xa0" + struct.pack("<I", claimed_bytes)
    block = claimed_bytes << 3 | 1 << 1
    blocks = [struct.pack("<I", block | (number == real_blocks - 1))[:3] + b"a" for number in range(real_blocks)]
    return header + b"".join(blocks)


def unsized(data):
    """A frame that does not say how long its content is."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.content_size_flag: 0})
    return compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def test_what_is_sealed_by_hand_with_nothing_wrong_opens(forged):
    result = forged(content=FRAME, table=table_of(FRAME), size_bytes=SIZE)
    assert result.open_whole() == result.read_chars() == PLAIN.decode()
    assert forged(content=b"ab", table=b"", size_bytes=2, kind=1, codec=0).open_whole() == b"ab"
    honest = lying_frame(SIZE, real_blocks=1)
    table = table_of(honest, newlines=0, lines=1)
    assert forged(content=honest, table=table, size_bytes=SIZE).open_whole() == "a" * SIZE
    assert zstd.decompress(checksummed(PLAIN)) == PLAIN


FRAMES = {
    "claims a terabyte": BOMB,
    "claims less than it holds": zstd.compress(PLAIN + b"more", 1),
    "claims more than it holds": zstd.compress(PLAIN[:-1], 1),
    "claims nothing": unsized(PLAIN),
    "is followed by bytes": FRAME + b"trailing",
    "is followed by a second frame": zstd.compress(PLAIN[:100], 1) + zstd.compress(PLAIN[100:], 1),
    "is followed by an empty frame": FRAME + zstd.compress(b"", 1),
    "is cut": FRAME[:-1],
    "is cut in its checksum": checksummed(PLAIN)[:-1],
    "holds more than it claims": lying_frame(SIZE, real_blocks=2),
    "is none": b"no frame at all",
    "is skippable": bytes.fromhex("502a4d1804000000aaaaaaaa"),
    "is nearly empty": b"\x28\xb5\x2f\xfd",
}


@pytest.mark.case(44)
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_segment_that_is_not_one_frame_of_its_length_is_refused(forged, frame):
    forged(content=frame, table=table_of(frame), size_bytes=SIZE).require_corrupt()


@pytest.mark.case(44)
@pytest.mark.parametrize(
    "frame",
    [BOMB, zstd.compress(bytes(50_000_000), 1), lying_frame(SIZE, real_blocks=5000)],
    ids=["claims 1 TB", "holds 50 MB", "claims little and holds 150 MB"],
)
def test_a_bomb_gets_no_memory(forged, frame):
    result = forged(content=frame, table=table_of(frame), size_bytes=SIZE)
    result.require_corrupt()
    tracemalloc.start()
    try:
        result.require_corrupt()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * SIZE


@pytest.mark.case(44)
def test_a_frame_that_is_not_in_one_piece_is_refused(forged):
    flags = FRAME[4]
    # A content size of two bytes, in one piece: bit 6 and bit 5.
    assert flags & 0xE0 == 0x60
    # The same frame with a window of 8 MiB (exponent 13 above 1 KiB) before its content size.
    windowed = FRAME[:4] + bytes([flags & ~0x20, 13 << 3]) + FRAME[5:]
    assert zstd.decompress(windowed) == PLAIN
    forged(content=windowed, table=table_of(windowed), size_bytes=SIZE).require_corrupt()


@pytest.mark.parametrize(
    "change",
    [{"plain": 29_999}, {"chars": 29_999}, {"newlines": 30_001}, {"lines": 1999}, {"lines": 2002}],
    ids=lambda change: next(iter(change)),
)
def test_a_table_that_contradicts_the_content_is_refused(forged, change):
    forged(content=FRAME, table=table_of(FRAME, **change), size_bytes=SIZE).require_corrupt()


def test_content_that_is_longer_than_its_table_says_is_refused(forged):
    forged(content=FRAME + b"more", table=table_of(FRAME), size_bytes=SIZE).require_card_corrupt()
    forged(content=FRAME, table=table_of(FRAME), size_bytes=SIZE + 1).require_card_corrupt()


def columns(*segments):
    return [list(column) for column in zip(*segments, strict=True)]


#: Forty thousand characters that are stored as they are.
RAW = b"a" * 40_000
GOOD = give_table(40_000, 1, columns((32_768, 32_768, 32_768, 0), (7_232, 7_232, 7_232, 0)))
HEAD = struct.Struct("<QQIB")
TABLES = {
    "missing": b"",
    "cut": GOOD[:-1],
    "followed by bytes": GOOD + b"\0",
    "of an unknown kind": HEAD.pack(40_000, 1, 2, 2) + GOOD[HEAD.size :],
    "of an unknown kind, packed": HEAD.pack(40_000, 1, 2, 2) + zstd.compress(GOOD[HEAD.size :], 1),
    "said to be packed": HEAD.pack(40_000, 1, 2, 1) + GOOD[HEAD.size :],
    "of no segment": give_table(40_000, 1, [[], [], [], []]),
    "of one segment": give_table(40_000, 1, columns((40_000, 40_000, 40_000, 0))),
    "with an empty segment": give_table(
        40_000, 1, columns((32_768, 32_768, 32_768, 0), (7_232, 7_232, 7_232, 0), (0, 0, 0, 0))
    ),
    "that stores nothing of a segment": give_table(
        40_000, 1, columns((32_768, 32_768, 32_768, 0), (7_232, 7_231, 7_231, 0), (0, 1, 1, 0))
    ),
    "that stores a segment in more bytes than it has": give_table(
        40_000, 1, columns((32_768, 32_767, 32_767, 0), (7_232, 7_233, 7_233, 0))
    ),
    "with more characters than bytes": give_table(
        40_000, 1, columns((32_768, 32_768, 32_767, 0), (7_232, 7_232, 7_233, 0))
    ),
    "with more newlines than characters": give_table(
        40_000, 32_769, columns((32_768, 32_768, 32_768, 32_769), (7_232, 7_232, 7_232, 0))
    ),
    "with characters that do not add up": give_table(
        39_999, 1, columns((32_768, 32_768, 32_768, 0), (7_232, 7_232, 7_232, 0))
    ),
    "with stored bytes that do not add up": give_table(
        40_000, 1, columns((32_767, 32_768, 32_768, 0), (7_232, 7_232, 7_232, 0))
    ),
    "with too many segments": give_table(40_000, 1, columns(*[(10_000, 10_000, 10_000, 0)] * 4)),
    "with four billion segments": HEAD.pack(40_000, 1, 0xFFFF_FFFF, 1) + zstd.compress(bytes(4_000_000), 1),
    "that is a bomb": HEAD.pack(40_000, 1, 2, 1) + BOMB,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_that_is_none_is_refused(forged, table):
    assert forged(content=RAW, table=GOOD, size_bytes=40_000, codec=0).read_chars() == RAW.decode()
    packed = HEAD.pack(40_000, 1, 2, 1) + zstd.compress(GOOD[HEAD.size :], 1)
    assert forged(content=RAW, table=packed, size_bytes=40_000, codec=0).read_chars() == RAW.decode()
    # Of whichever codec: it is the table that is refused.
    forged(content=RAW, table=table, size_bytes=40_000, codec=0).require_card_corrupt()
    forged(content=RAW, table=table, size_bytes=40_000, codec=1).require_card_corrupt()


NAME = b"\x04\0\0\0name"
ABSENT = b"\xff\xff\xff\xff"
CARDS = {
    "empty": b"",
    "cut in a length": NAME * 5 + b"\x04\0\0",
    "cut in a text": NAME * 5 + NAME[:-1],
    "with a text too few": NAME * 5,
    "with a text too many": NAME * 7,
    "with a length beyond all": NAME * 5 + b"\xfe\xff\xff\xff",
    "that is no text": NAME * 5 + b"\x01\0\0\0\xff",
    "without a hint": ABSENT + NAME * 5,
    "without a tag": NAME + ABSENT + NAME * 4,
    "without a suffix": NAME * 2 + ABSENT + NAME * 3,
    "without a name": NAME * 3 + ABSENT + NAME * 2,
}


@pytest.mark.parametrize("names", CARDS.values(), ids=CARDS)
def test_a_card_that_is_none_is_refused(forged, names):
    good = NAME * 4 + ABSENT * 2
    assert forged(content=b"ab", table=b"", size_bytes=2, kind=1, codec=0, names=good).open_whole() == b"ab"
    forged(content=b"ab", table=b"", size_bytes=2, kind=1, codec=0, names=names).require_card_corrupt()


def test_a_segment_larger_than_a_segment_is_refused(forged):
    size = 32_769
    table = give_table(size, 1, columns((size, size, size, 0)))
    forged(content=b"a" * size, table=table, size_bytes=size, codec=0).require_corrupt()


def test_a_codec_that_contradicts_the_table_is_refused(forged):
    forged(content=FRAME, table=table_of(FRAME), size_bytes=SIZE, codec=0).require_corrupt()
    forged(content=RAW, table=GOOD, size_bytes=40_000, codec=1).require_corrupt()
    forged(content=b"ab", table=b"", size_bytes=2, kind=1, codec=1).require_corrupt()


def test_bytes_with_a_table_or_another_size_are_refused(forged):
    table = table_of(b"ab", plain=2, chars=2, newlines=0, lines=1)
    forged(content=b"ab", table=table, size_bytes=2, kind=1, codec=0).require_corrupt()
    forged(content=b"ab", table=b"", size_bytes=3, kind=1, codec=0).require_corrupt()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\xc3", b"\x80a", b"\xf8\x88"])
def test_a_segment_that_is_no_text_is_refused(forged, content):
    size = len(content)
    table = give_table(size, 1, columns((size, size, size, 0)))
    forged(content=content, table=table, size_bytes=size, codec=0).require_corrupt()


def test_a_segment_cut_within_a_character_is_refused_by_both_readers(forged):
    text = "a" * 32_767 + "\u00e9"
    table = give_table(32_769, 1, columns((32_768, 32_768, 32_768, 0), (1, 1, 1, 0)))
    forged(content=text.encode(), table=table, size_bytes=32_769, codec=0).require_corrupt()
