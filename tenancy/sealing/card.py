"""What a result is called. Sealed next to the content, since tool names and file names are nobody else's business."""

import struct
from dataclasses import field
from typing import Final

from tenancy.errors import ResultCorrupt
from tenancy.records import record

#: Names come from models and tools and may be a megabyte long; this many characters of them are kept.
MAX_NAME_CHARS: Final = 1024

_LENGTH = struct.Struct("<I")
_LENGTH_BYTES = _LENGTH.size
#: Stands for "no value" where a length stands.
_NONE = 0xFFFF_FFFF
_FIELDS, _NEEDED = 6, 4


@record
class Card:
    """
    The names of one result. Texts come back as they went in, lone surrogates included; the repr shows none of them.

    :param hint: The letters of the result's reference.
    :param tag: The random part of the reference.
    :param suffix: The suffix of the reference, or `""`.
    :param name: What the writer called it; the first `MAX_NAME_CHARS` characters are kept.
    :param tool: The tool it came from, where that is known; as many characters are kept.
    :param media_type: Its MIME type, where that is known; as many characters are kept.
    """

    hint: str = field(repr=False)
    tag: str = field(repr=False)
    suffix: str = field(repr=False)
    name: str = field(repr=False)
    tool: str | None = field(default=None, repr=False)
    media_type: str | None = field(default=None, repr=False)


def pack_card(card: Card) -> bytes:
    """Write the six texts, each behind its length in bytes. Not JSON, which joins two lone surrogates into one."""
    pieces: list[bytes] = []
    for text in (card.hint, card.tag, card.suffix, card.name, card.tool, card.media_type):
        if text is None:
            pieces.append(_LENGTH.pack(_NONE))
        else:
            value = text[:MAX_NAME_CHARS].encode("utf-8", "surrogatepass")
            pieces += (_LENGTH.pack(len(value)), value)
    return b"".join(pieces)


def unpack_card(data: bytes) -> tuple[Card, bytes]:
    """
    Read what `pack_card` wrote.

    :returns: The card, and the bytes behind it.
    :raises ResultCorrupt: If `data` does not start with a card.
    """
    texts: list[str | None] = []
    at, end = 0, len(data)
    try:
        for _ in range(_FIELDS):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH_BYTES
            if length == _NONE:
                texts.append(None)
                continue
            start, at = at, at + length
            if at > end:
                break
            texts.append(str(data[start:at], "utf-8", "surrogatepass"))
    except (struct.error, UnicodeDecodeError):
        # The decoder's error holds the value, so ours is raised out of the handler.
        texts.clear()
    if len(texts) < _FIELDS or None in texts[:_NEEDED]:
        raise ResultCorrupt
    return Card(*texts), data[at:]  # type: ignore[arg-type]
