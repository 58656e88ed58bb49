"""
Seal and open one result. Format version 1: `docs/format.md` pins every byte of it, and files of it must open for ever.

A sealed result is three things: a row's columns, which say in clear how it was sealed and how large it is; the card,
which is sealed into the row and says what the result is called and how it is cut; and the body, which goes to the
store. Each is bound to all the others and to whom the result belongs, so that nothing can be swapped or edited.
"""

from dataclasses import field

from tenancy.errors import ResultCorrupt
from tenancy.keys.material import SecretKey
from tenancy.records import record
from tenancy.sealing.card import MAX_NAME_CHARS, Card, pack_card, unpack_card
from tenancy.sealing.cipher import message_bytes, open_message, seal_in_one, seal_message
from tenancy.sealing.columns import (
    FORMAT,
    SUITE_COBBLESTONE_256,
    Binding,
    Codec,
    Envelope,
    Kind,
    bound_columns,
    card_context,
    content_context,
    require_bound_columns,
)
from tenancy.sealing.ranges import Fetch, RangedReader
from tenancy.sealing.segments import SegmentTable, cut, open_segment, open_segments, pack_table, unpack_table

__all__ = [
    "FORMAT",
    "MAX_NAME_CHARS",
    "SUITE_COBBLESTONE_256",
    "Binding",
    "Card",
    "Codec",
    "Contents",
    "Envelope",
    "Fetch",
    "Kind",
    "open_card",
    "open_whole",
    "read_chars",
    "seal",
    "size_of_text",
]


@record
class Contents:
    """
    What the card says: the names of a result and, of text, where everything in it is.

    :param bound: What the card was bound to, and the content is.
    """

    card: Card
    segments: SegmentTable | None
    bound: bytes = field(repr=False)

    @property
    def total_chars(self) -> int | None:
        """The characters of the text; `None` for bytes."""
        return None if self.segments is None else self.segments.total_chars

    @property
    def total_lines(self) -> int | None:
        """The lines of the text, an unfinished last one included; `None` for bytes."""
        return None if self.segments is None else self.segments.total_lines


def seal(
    content: str | bytes, *, key: SecretKey, key_version: int, binding: Binding, card: Card, compress: bool = True
) -> tuple[Envelope, bytes]:
    """
    Seal one result.

    :param content: Text or bytes; the kind is kept. Lone surrogates are kept too.
    :param key: The session's key.
    :param card: What it is called.
    :param compress: Whether text is compressed where that makes it shorter.
    :returns: The row's columns, and the body for the store.
    :raises TypeError: If the content is neither.
    :raises KeyUnavailable: If the key is closed.
    """
    table: SegmentTable | None = None
    parts: list[bytes]
    if isinstance(content, str):
        size_bytes, parts, table = cut(content, compress=compress)
        kind, codec = Kind.TEXT, Codec.ZSTD if table.is_compressed else Codec.IDENTITY
    elif isinstance(content, bytes):
        size_bytes, parts, kind, codec = len(content), [content], Kind.BYTES, Codec.IDENTITY
    else:
        raise TypeError("A result is a str or bytes.")
    bound = bound_columns(
        format_=FORMAT,
        suite=SUITE_COBBLESTONE_256,
        kind=kind,
        codec=codec,
        size_bytes=size_bytes,
        key_version=key_version,
        binding=binding,
    )
    inside = pack_card(card) + (b"" if table is None else pack_table(table))
    with key.exposed() as view:
        header, body = seal_message(parts, key=view, context=content_context(bound))
        sealed_card = seal_in_one(inside, key=view, context=card_context(bound, header))
    envelope = Envelope(
        format=FORMAT,
        suite=SUITE_COBBLESTONE_256,
        # Plain numbers: a database driver need not know what an enum is.
        kind=int(kind),
        codec=int(codec),
        size_bytes=size_bytes,
        stored_bytes=len(body),
        key_version=key_version,
        header=header,
        card=sealed_card,
    )
    return envelope, body


def open_card(envelope: Envelope, *, key: SecretKey, binding: Binding) -> Contents:
    """
    Open the card alone. The store is not needed.

    :raises ResultCorrupt: If anything of the row is not what was sealed, or format or suite are unknown.
    :raises KeyUnavailable: If the key is closed.
    """
    with key.exposed() as view:
        return _open_card(envelope, require_bound_columns(envelope, binding), view)


def open_whole(envelope: Envelope, contents: Contents, body: bytes, *, key: SecretKey) -> str | bytes:
    """
    Open one result, after all of it has been verified.

    :param contents: What `open_card` returned for this very row.
    :returns: Exactly what was sealed, of the kind that was sealed.
    :raises ResultCorrupt: If anything of row or body is not what was sealed, or format or suite are unknown.
    :raises KeyUnavailable: If the key is closed.
    """
    with key.exposed() as view:
        content = open_message(envelope.header, body, key=view, context=content_context(contents.bound))
    if len(content) != message_bytes(envelope.stored_bytes):
        raise ResultCorrupt
    return content if contents.segments is None else open_segments(content, contents.segments)


def read_chars(
    envelope: Envelope,
    contents: Contents,
    fetch: Fetch,
    *,
    key: SecretKey,
    offset: int,
    max_chars: int,
) -> tuple[str, int]:
    """
    Open some characters of a text. Of the body only the last chunk, which proves its length, and the chunks that hold
    these characters are got and opened; memory follows `max_chars`, not the size of the result.

    :param contents: What `open_card` returned for this very row.
    :param fetch: Gets parts of the body in one go. What it raises goes through.
    :param offset: The first character, counted from 0. Behind the end there is nothing: the text is `""`.
    :param max_chars: How many characters at most.
    :returns: `text[offset : offset + max_chars]`, and the number of the line it begins in, from 1 on.
    :raises ValueError: If a number is negative, or the result is not text.
    :raises ResultCorrupt: If anything that was opened is not what was sealed.
    :raises KeyUnavailable: If the key is closed.
    """
    if contents.segments is None or offset < 0 or max_chars < 0:
        raise ValueError("A page is of text, and starts and ends at a positive number of characters.")
    table = contents.segments
    reader = _ranged_reader(envelope, contents, table, fetch, key=key)
    spans = list(table.spans(offset, max_chars))
    if not spans:
        reader.verify_length()
        return "", table.total_lines or 1
    start = spans[0][1]
    stored = memoryview(reader.read(start, sum(table.stored_bytes[index] for index, _, _ in spans)))
    pages = []
    line = 1 + sum(table.newlines[: spans[0][0]])
    for index, at, chars_before in spans:
        text = open_segment(stored[at - start :], table, index)
        line += text.count("\n", 0, max(0, offset - chars_before))
        pages.append(text[max(0, offset - chars_before) : max(0, offset + max_chars - chars_before)])
    return "".join(pages), line


def find_line(envelope: Envelope, contents: Contents, fetch: Fetch, *, key: SecretKey, line: int) -> int:
    """
    Find where a line begins. Opens the last chunk, and those of the one segment in which the line before it ends.

    :param line: From 1 on. Behind the last one it begins where the text ends.
    :returns: Its first character, counted from 0.
    :raises ValueError: If the number is not positive, or the result is not text.
    :raises TenancyError: See `read_chars`.
    """
    table = contents.segments
    if table is None or line < 1:
        raise ValueError("A line is of text, and has a positive number.")
    if line == 1:
        return 0
    if line > sum(table.newlines) + 1:
        return table.total_chars
    index, chars_before, nth = table.line_end(line - 1)
    reader = _ranged_reader(envelope, contents, table, fetch, key=key)
    stored = reader.read(sum(table.stored_bytes[:index]), table.stored_bytes[index])
    text = open_segment(memoryview(stored), table, index)
    if text.count("\n") != table.newlines[index]:
        raise ResultCorrupt
    at = -1
    for _ in range(nth):
        at = text.index("\n", at + 1)
    return chars_before + at + 1


def _ranged_reader(
    envelope: Envelope, contents: Contents, table: SegmentTable, fetch: Fetch, *, key: SecretKey
) -> RangedReader:
    context = content_context(contents.bound)
    with key.exposed() as view:
        reader = RangedReader(envelope.header, body_bytes=envelope.stored_bytes, fetch=fetch, key=view, context=context)
    if sum(table.stored_bytes) != reader.size_bytes:
        raise ResultCorrupt
    return reader


def size_of_text(text: str) -> int:
    """Tell how many bytes are charged for a text: its UTF-8, three bytes for a lone surrogate."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _open_card(envelope: Envelope, bound: bytes, key: memoryview) -> Contents:
    content_bytes = message_bytes(envelope.stored_bytes)
    inside = open_message(envelope.card, key=key, context=card_context(bound, envelope.header))
    card, rest = unpack_card(inside)
    if envelope.kind == Kind.BYTES:
        if rest or envelope.codec != Codec.IDENTITY or content_bytes != envelope.size_bytes:
            raise ResultCorrupt
        return Contents(card, None, bound)
    table = unpack_table(rest, size_bytes=envelope.size_bytes, content_bytes=content_bytes)
    if table.is_compressed != (envelope.codec == Codec.ZSTD):
        raise ResultCorrupt
    return Contents(card, table, bound)
