"""
The columns of a sealed result, and the context they bind it to.

They stand in clear in the catalogue, so whoever can write there can edit them. Each is a field of the bound context:
an edited one makes the result unreadable and nothing else.
"""

import struct
from dataclasses import field
from enum import IntEnum
from functools import lru_cache
from typing import Final

from tenancy.errors import ResultCorrupt
from tenancy.records import record
from tenancy.sealing.context import bound_context

FORMAT: Final = 1
SUITE_COBBLESTONE_256: Final = 1

#: Six numbers as `bound_context` writes them, in one call.
_NUMBERS = struct.Struct("<" + 6 * "IQ")
_LENGTH_OF_HEADER = struct.Struct("<I")
_CONTENT_LABEL = bound_context("haystack-tenancy result content v1")
_CARD_LABEL = bound_context("haystack-tenancy result card v1")


class Kind(IntEnum):
    """What was written, and so what reading gives back. Never guessed from the bytes."""

    TEXT = 0
    BYTES = 1


class Codec(IntEnum):
    """How the segments are stored. `ZSTD`: at least one of them is compressed."""

    IDENTITY = 0
    ZSTD = 1


#: Plain numbers, which are compared sooner than members.
_KINDS: Final = frozenset(map(int, Kind))
_CODECS: Final = frozenset(map(int, Codec))
_ONLY_NUMBERS: Final = {int}


@record
class Binding:
    """Whose result it is and which: opaque ids, each a field of the bound context."""

    tenant_id: str = field(repr=False)
    user_id: str = field(repr=False)
    session_id: str = field(repr=False)
    result_id: str = field(repr=False)


@record
class Envelope:
    """
    A result's columns in the catalogue.

    :param size_bytes: The plaintext's size: of text, in UTF-8. What is charged.
    :param stored_bytes: The body's size.
    :param key_version: Which of the session's keys it is sealed with.
    :param header: Salt and commitment of the body, 56 bytes. Without it the body is noise.
    :param card: The sealed card, with a header of its own.
    """

    format: int
    suite: int
    kind: int
    codec: int
    size_bytes: int
    stored_bytes: int
    key_version: int
    header: bytes = field(repr=False)
    card: bytes = field(repr=False)


def bound_columns(
    *, format_: int, suite: int, kind: int, codec: int, size_bytes: int, key_version: int, binding: Binding
) -> bytes:
    """Write down what card and content are both bound to. A part of a context; a label goes in front."""
    numbers = _NUMBERS.pack(8, format_, 8, suite, 8, kind, 8, codec, 8, size_bytes, 8, key_version)
    of_session = _session_context(binding.tenant_id, binding.user_id, binding.session_id)
    return numbers + of_session + bound_context(binding.result_id)


@lru_cache(maxsize=1024)
def _session_context(tenant_id: str, user_id: str, session_id: str) -> bytes:
    # Remembered, since all results of a session have the same ids.
    return bound_context(tenant_id, user_id, session_id)


def require_bound_columns(envelope: Envelope, binding: Binding) -> bytes:
    """
    Refuse what this version does not know, and write down what the rest is bound to.

    :raises ResultCorrupt: If a column has no value that sealing could have written.
    """
    format_, suite, kind, codec = envelope.format, envelope.suite, envelope.kind, envelope.codec
    size_bytes, stored_bytes, key_version = envelope.size_bytes, envelope.stored_bytes, envelope.key_version
    # SQLite keeps whatever it is given: a text in a column of numbers, a number in one of bytes.
    types = {*map(type, (format_, suite, kind, codec, size_bytes, stored_bytes, key_version))}
    if (
        types != _ONLY_NUMBERS
        or not (type(envelope.header) is type(envelope.card) is bytes)
        or format_ != FORMAT
        or suite != SUITE_COBBLESTONE_256
        or kind not in _KINDS
        or codec not in _CODECS
        or not 0 <= size_bytes < 1 << 63
        or not 0 <= key_version < 1 << 63
    ):
        raise ResultCorrupt
    return bound_columns(
        format_=format_,
        suite=suite,
        kind=kind,
        codec=codec,
        size_bytes=size_bytes,
        key_version=key_version,
        binding=binding,
    )


def content_context(bound: bytes) -> bytes:
    """The context of the content. `bound` comes from one of the functions above."""
    return _CONTENT_LABEL + bound


def card_context(bound: bytes, header: bytes) -> bytes:
    """The context of the card. The content's header binds it to this very sealing, and to nothing once overwritten."""
    return _CARD_LABEL + bound + _LENGTH_OF_HEADER.pack(len(header)) + header
