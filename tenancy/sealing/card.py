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
_FIELDS = 6


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
    for _ in range(_FIELDS):
        start = at + _LENGTH_BYTES
        if start > end:
            raise ResultCorrupt
        length = int.from_bytes(data[at:start], "little")
        if length == _NONE:
            at = start
            texts.append(None)
            continue
        at = start + length
        if at > end:
            raise ResultCorrupt
        texts.append(_decoded(data[start:at]))
    hint, tag, suffix, name, tool, media_type = texts
    if hint is None or tag is None or suffix is None or name is None:
        raise ResultCorrupt
    return Card(hint, tag, suffix, name, tool, media_type), data[at:]


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        pass
    # Out of the handler: the decoder's error holds the value.
    raise ResultCorrupt
