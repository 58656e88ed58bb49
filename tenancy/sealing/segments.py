"""
How text is cut into segments, so that a page of it can be opened without the rest.

A segment is at most 32 KiB of UTF-8, cut between characters and compressed on its own when that makes it shorter. The
table of the segments is sealed with the result's card. `docs/format.md` pins both.
"""

import struct
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import accumulate
from operator import le
from typing import Final

from tenancy.errors import ResultCorrupt
from tenancy.records import record
from tenancy.sealing.halves import in_two_threads

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SEGMENT_BYTES: Final = 32 * 1024

#: Below this a frame's own bytes eat what it saves.
_WORTH_TRYING_BYTES = 512
#: The cheapest level: the text is read back once or twice, if at all.
_LEVEL = 1
#: The bit in the fifth byte of a frame (RFC 8878, 3.1.1.1.1.2) that says: one piece, no window but the content itself.
_SINGLE_SEGMENT = 0x20
#: Half a segment: so many bytes of text are there at least for each segment but one, so that a table stays small.
_FILL_BYTES = SEGMENT_BYTES // 2
_CONTINUATION = bytes(range(0x80, 0xC0))
#: How many characters more than the last segment had the next one may have without a second look. Most texts are alike
#: all the way, and each byte too much is encoded twice.
_MARGIN = 256
_HEAD = struct.Struct("<QQIB")
_RAW, _PACKED = 0, 1
#: Columns in the table: stored bytes, plain bytes, characters, newlines.
_COLUMNS = 4


@record
class SegmentTable:
    """
    Where each segment is and what it holds; one entry a segment in each column.

    :param total_lines: Newlines in the whole text, and one more for an unfinished last line.
    """

    stored_bytes: tuple[int, ...] = field(repr=False)
    plain_bytes: tuple[int, ...] = field(repr=False)
    chars: tuple[int, ...] = field(repr=False)
    newlines: tuple[int, ...] = field(repr=False)
    total_chars: int
    total_lines: int

    @property
    def is_compressed(self) -> bool:
        """Whether any segment is stored compressed."""
        return self.stored_bytes != self.plain_bytes

    def spans(self, offset: int, max_chars: int) -> Iterator[tuple[int, int, int]]:
        """
        Find the segments that hold the characters from `offset` on.

        :returns: For each its index, where its stored bytes start, and how many characters stand before it.
        """
        end = min(offset + max_chars, self.total_chars)
        if offset >= end:
            return
        ends = list(accumulate(self.chars))
        first, last = bisect_right(ends, offset), bisect_right(ends, end - 1)
        start = sum(self.stored_bytes[:first])
        for index in range(first, last + 1):
            yield index, start, ends[index] - self.chars[index]
            start += self.stored_bytes[index]

    def line_end(self, number: int) -> tuple[int, int, int]:
        """
        Find the segment that holds the end of a line.

        :param number: Of the line, from 1 on; there is such a line, and a newline ends it.
        :returns: Its index, how many characters stand before it, and which of its newlines this is, from 1 on.
        """
        ends = list(accumulate(self.newlines))
        index = bisect_left(ends, number)
        return index, sum(self.chars[:index]), number - (ends[index] - self.newlines[index])


def cut(text: str, *, compress: bool) -> tuple[int, list[bytes], SegmentTable]:
    """
    Cut a text into segments and compress those for which it pays.

    :returns: The size of the text in bytes of UTF-8 (lone surrogates as three bytes), the segments as they are stored,
        and their table.
    """
    plain: list[bytes] = []
    chars: list[int] = []
    at, total_chars = 0, len(text)
    while at < total_chars:
        # One piece after the other: in one go a long text takes several times its size in memory, and twice the time.
        segment, length = _segment_at(text, at, guess=min(SEGMENT_BYTES, chars[-1] + _MARGIN) if at else SEGMENT_BYTES)
        plain.append(segment)
        chars.append(length)
        at += length
    plain_bytes = tuple(map(len, plain))
    size = sum(plain_bytes)
    newlines = tuple(segment.count(b"\n") for segment in plain)
    segments: list[bytes] = in_two_threads(_packed, plain) if compress and size >= _WORTH_TRYING_BYTES else plain
    table = SegmentTable(
        stored_bytes=tuple(map(len, segments)),
        plain_bytes=plain_bytes,
        chars=tuple(chars),
        newlines=newlines,
        total_chars=total_chars,
        total_lines=sum(newlines) + (total_chars > 0 and text[-1] != "\n"),
    )
    return size, segments, table


def _segment_at(text: str, at: int, *, guess: int) -> tuple[bytes, int]:
    """
    Encode the segment that begins at a character.

    :param guess: How many characters to begin with, at least 1 and at most those of a segment.
    :returns: Its bytes, as many as a segment holds or the text has, and how many characters that is.
    """
    end = at + guess
    data = text[at:end].encode("utf-8", "surrogatepass")
    while (room := SEGMENT_BYTES - len(data)) > 0 and end < len(text):
        # No more characters fit than there are bytes left.
        data += text[end : end + room].encode("utf-8", "surrogatepass")
        end += room
    chars = min(end, len(text)) - at
    if room >= 0:
        return data, chars
    cut_at = SEGMENT_BYTES
    # Back to the start of a character.
    while data[cut_at] & 0xC0 == 0x80:
        cut_at -= 1
    # What is left over is counted, since there mostly is little of it.
    return data[:cut_at], chars - len(data[cut_at:].translate(None, _CONTINUATION))


def _packed(segments: Sequence[bytes]) -> list[bytes]:
    """Compress each segment for which that pays."""
    compressor = zstd.ZstdCompressor(level=_LEVEL)
    packed: list[bytes] = []
    for segment in segments:
        if len(segment) >= _WORTH_TRYING_BYTES:
            frame = compressor.compress(segment, zstd.ZstdCompressor.FLUSH_FRAME)
            packed.append(frame if len(frame) < len(segment) else segment)
        else:
            packed.append(segment)
    return packed


def open_segments(content: bytes, table: SegmentTable) -> str:
    """
    Turn the stored bytes of all segments back into the text.

    :raises ResultCorrupt: See `open_segment`.
    """
    if len(table.stored_bytes) == 1:
        return open_segment(content, table, 0)
    view = memoryview(content)
    starts = [end - stored for end, stored in zip(accumulate(table.stored_bytes), table.stored_bytes, strict=True)]

    def opened(indexes: Sequence[int]) -> list[str]:
        return [open_segment(view[starts[index] :], table, index) for index in indexes]

    return "".join(in_two_threads(opened, range(len(starts))))


def open_segment(content: bytes | memoryview, table: SegmentTable, index: int) -> str:
    """
    Turn one segment's stored bytes back into text. Inflating stops at its length, whatever its frame claims.

    :param content: Stored bytes that start with the segment; what follows does not matter.
    :raises ResultCorrupt: If the segment is not exactly one frame of exactly that many bytes and characters.
    """
    stored, plain_bytes = content[: table.stored_bytes[index]], table.plain_bytes[index]
    plain = stored if len(stored) == plain_bytes else _inflate(stored, plain_bytes)
    text = None
    try:  # noqa: SIM105 - one more block takes as long as a short segment
        text = str(plain, "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        pass
    # Out of the handler: the decoder's error holds the whole segment.
    if text is None or len(text) != table.chars[index]:
        raise ResultCorrupt
    return text


def pack_table(table: SegmentTable) -> bytes:
    """Write the table: totals, the number of segments, and the columns one after the other, packed when it pays."""
    columns = (*table.stored_bytes, *table.plain_bytes, *table.chars, *table.newlines)
    raw = struct.pack(f"<{len(columns)}I", *columns)
    packed = zstd.compress(raw, _LEVEL) if len(raw) >= _WORTH_TRYING_BYTES else raw
    # Of a table that is larger than the compressor's window the frame would not be in one piece.
    pays = len(packed) < len(raw) and packed[4] & _SINGLE_SEGMENT
    body, how = (packed, _PACKED) if pays else (raw, _RAW)
    return _HEAD.pack(table.total_chars, table.total_lines, len(table.stored_bytes), how) + body


def unpack_table(data: bytes, *, size_bytes: int, content_bytes: int) -> SegmentTable:
    """
    Read what `pack_table` wrote, and hold it against what is known of the content.

    :param size_bytes: The bytes of the whole text.
    :param content_bytes: The bytes of all stored segments together.
    :raises ResultCorrupt: If it is not exactly a table, or not the table of a text and content of these sizes.
    """
    if len(data) < _HEAD.size:
        raise ResultCorrupt
    total_chars, total_lines, count, how = _HEAD.unpack_from(data)
    # Before it gets memory.
    if count > 1 + size_bytes // _FILL_BYTES or how not in (_RAW, _PACKED):
        raise ResultCorrupt
    raw_bytes = count * _COLUMNS * 4
    raw = data[_HEAD.size :] if how == _RAW else _inflate(data[_HEAD.size :], raw_bytes)
    if len(raw) != raw_bytes:
        raise ResultCorrupt
    values = struct.unpack(f"<{count * _COLUMNS}I", raw)
    stored, plain = values[:count], values[count : 2 * count]
    chars, newlines = values[2 * count : 3 * count], values[3 * count :]
    lines = sum(newlines)
    is_consistent = (
        sum(plain) == size_bytes
        and sum(stored) == content_bytes
        and sum(chars) == total_chars
        and lines <= total_lines <= lines + (size_bytes > 0)
        and min(stored, default=1) > 0
        and max(plain, default=0) <= SEGMENT_BYTES
        and all(map(le, stored, plain))
        and all(map(le, chars, plain))
        and all(map(le, newlines, chars))
    )
    if not is_consistent:
        raise ResultCorrupt
    return SegmentTable(stored, plain, chars, newlines, total_chars, total_lines)


def _inflate(frame: bytes | memoryview, plain_bytes: int) -> bytes:
    plain = None
    try:
        # Every frame of ours says how long it is, and is in one piece; any other is not opened at all. So inflating
        # takes the memory of `plain_bytes`, whatever the frame goes on to claim.
        if zstd.get_frame_info(frame).decompressed_size == plain_bytes and frame[4] & _SINGLE_SEGMENT:
            decompressor = zstd.ZstdDecompressor()
            plain = decompressor.decompress(frame, max_length=plain_bytes)
            if not decompressor.eof or decompressor.unused_data:
                plain = None
    except zstd.ZstdError:
        pass
    if plain is None or len(plain) != plain_bytes:
        raise ResultCorrupt
    return plain
