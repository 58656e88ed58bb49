"""
Open a part of a sealed message: the last chunk first, then the chunks that are asked for.

The reader of `cryptography` works through a whole message. This one follows the same published construction
(c2sp.org/chunked-encryption) on the library's AES-256-GCM and HKDF, and is held to the same vectors.
"""

import hmac
from collections.abc import Callable, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tenancy.errors import ResultCorrupt
from tenancy.sealing.cipher import CHUNK_BYTES, HEADER_BYTES, SEALED_CHUNK_BYTES, message_bytes

#: Get parts of the chunks in one go, each so many bytes from a byte on: `(start, length)`.
Fetch = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]
#: Chunks that follow each other: the first one's number, and that of the one behind the last.
Span = tuple[int, int]

_SALT_BYTES: Final = 24
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_COMMITMENT_BYTES: Final = HEADER_BYTES - _SALT_BYTES
_INFO: Final = b"c2sp.org/chunked-encryption@v1+AEAD_AES_256_GCM\x00"

#: Chunks that are got and held at once: bounds memory, whatever range is asked for.
_BATCH_CHUNKS: Final = 16
#: A message of so few chunks is got in one go. A second round trip would cost more than the bytes.
_SMALL_CHUNKS: Final = 4


class RangedReader:
    """
    One sealed message, opened chunk by chunk.

    Making one checks the commitment to key and context; the first `read` opens the last chunk, which proves the length,
    before it opens any other. What `read` returns is authentic; the chunks it did not need were not looked at. After a
    failure an instance is of no use: every later call fails as well. Not for several threads at once.

    :param header: The 56 bytes of salt and commitment.
    :param body_bytes: How many bytes of chunks there are.
    :param fetch: Gets a part of the chunks. What it raises goes through to the caller.
    :param key: 32 bytes, as lent by `SecretKey.exposed`; not needed after construction.
    :param context: What the message is bound to.
    :raises ResultCorrupt: If key or context is another one, or no message has this header and length.
    """

    __slots__ = ("_aead", "_body_bytes", "_end", "_failed", "_fetch", "_last", "_nonce", "_whole", "size_bytes")

    def __init__(self, header: bytes, *, body_bytes: int, fetch: Fetch, key: memoryview, context: bytes) -> None:
        #: The length of the message. Authentic once `read` or `verify_length` has returned.
        self.size_bytes = message_bytes(body_bytes)
        self._aead, self._nonce, commitment = derive_message_key(key, salt=header[:_SALT_BYTES], context=context)
        if not hmac.compare_digest(commitment, header[_SALT_BYTES:]):
            raise ResultCorrupt
        self._body_bytes = body_bytes
        self._fetch = fetch
        # A short message's chunks, once they are here.
        self._whole: memoryview | None = None
        self._last = body_bytes // SEALED_CHUNK_BYTES
        # The last chunk, opened.
        self._end: bytes | None = None
        self._failed = False

    def verify_length(self) -> None:
        """
        Open the last chunk, which proves how long the message is. Later calls find that done.

        :raises ResultCorrupt: If the last chunk is not the one that was sealed last.
        """
        self._open(())

    def read(self, start: int, length: int) -> bytes:
        """
        Open `length` bytes of the message from byte `start` on.

        :raises ValueError: If the message has no such range.
        :raises ResultCorrupt: If a chunk of it, or the last chunk, is not what was sealed.
        """
        if not 0 <= start <= start + length <= self.size_bytes:
            raise ValueError("The range is not one of this message.")
        first, end = start // CHUNK_BYTES, -(-(start + length) // CHUNK_BYTES)
        stop = min(end, self._last)
        spans = [(at, min(at + _BATCH_CHUNKS, stop)) for at in range(first, stop, _BATCH_CHUNKS)]
        # The last chunk along with the first of these.
        pieces, last_opened = self._open(spans[:1])
        for span in spans[1:]:
            pieces += self._open((span,))[0]
        if end > self._last:
            pieces.append(last_opened)
        skipped = start % CHUNK_BYTES
        return b"".join(pieces)[skipped : skipped + length]

    def _open(self, spans: Sequence[Span]) -> tuple[list[bytes], bytes]:
        """Open some chunks, and before them the last one unless that was done; return them and the last one."""
        if self._failed:
            raise ResultCorrupt
        self._failed = True
        wanted = list(spans) if self._end is not None else [(self._last, self._last + 1), *spans]
        opened: list[bytes] = []
        try:
            for span, sealed in zip(wanted, self._got(wanted), strict=True):
                opened.append(self._opened(sealed, *span))
        except InvalidTag:
            opened.clear()
            raise ResultCorrupt from None
        if self._end is None:
            self._end = opened.pop(0)
        self._failed = False
        return opened, self._end

    def _opened(self, sealed: memoryview, first: int, end: int) -> bytes:
        chunks = []
        for at, index in enumerate(range(first, end)):
            chunk = sealed[at * SEALED_CHUNK_BYTES : (at + 1) * SEALED_CHUNK_BYTES]
            chunks.append(self._aead.decrypt((self._nonce ^ index).to_bytes(_NONCE_BYTES, "big"), chunk, None))
        return b"".join(chunks)

    def _got(self, spans: Sequence[Span]) -> Sequence[memoryview]:
        ranges = [self._range(*span) for span in spans]
        if self._last >= _SMALL_CHUNKS:
            return [memoryview(part) for part in self._fetched(ranges)]
        if self._whole is None:
            self._whole = memoryview(*self._fetched([(0, self._body_bytes)]))
        return [self._whole[start : start + length] for start, length in ranges]

    def _range(self, first: int, end: int) -> tuple[int, int]:
        start = first * SEALED_CHUNK_BYTES
        return start, min(end * SEALED_CHUNK_BYTES, self._body_bytes) - start

    def _fetched(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        parts = self._fetch(ranges) if ranges else ()
        if [len(part) for part in parts] != [length for _, length in ranges]:
            raise ResultCorrupt
        return parts


def derive_message_key(key: memoryview, *, salt: bytes, context: bytes) -> tuple[AESGCM, int, bytes]:
    """
    Derive what one message is sealed with (the section "Key derivation" of the specification).

    :param key: The 32 bytes of the input key.
    :returns: The cipher, the base nonce as a big-endian number, and the commitment.
    """
    derived = memoryview(bytearray(_KEY_BYTES + _NONCE_BYTES + _COMMITMENT_BYTES))
    HKDFExpand(SHA512(), len(derived), _INFO + salt + context).derive_into(key, derived)
    aead = AESGCM(derived[:_KEY_BYTES])
    nonce = int.from_bytes(derived[_KEY_BYTES : _KEY_BYTES + _NONCE_BYTES], "big")
    commitment = bytes(derived[_KEY_BYTES + _NONCE_BYTES :])
    derived[:] = bytes(len(derived))
    return aead, nonce, commitment
