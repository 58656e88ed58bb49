"""
Seal and open whole messages, with Cobblestone-256 (c2sp.org/chunked-encryption: SHA-512, AES-256-GCM, 16 KiB chunks).

The one primitive of this library: results, their cards and wrapped keys are all messages of it. It commits to key and
context, so that a message opens under one key and one context only, and it has no limit of messages a key may seal.
"""

from collections.abc import Iterable
from typing import Final

from cryptography.cobblestone import Cobblestone256Decryptor, Cobblestone256Encryptor
from cryptography.exceptions import AlreadyFinalized, InvalidTag
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tenancy.errors import ResultCorrupt
from tenancy.keys.material import SecretKey

#: Salt (24 bytes) and commitment (32 bytes): what a message starts with.
HEADER_BYTES: Final = 56
CHUNK_BYTES: Final = 16 * 1024
TAG_BYTES: Final = 16
SEALED_CHUNK_BYTES: Final = CHUNK_BYTES + TAG_BYTES

#: The cipher keeps the interpreter lock while it works, about 50 µs for this much; other threads run in between.
_FEED_BYTES = 256 * 1024

_KEY_ID_LABEL = b"haystack-tenancy key id v1"


def seal_message(parts: Iterable[bytes | memoryview], *, key: memoryview, context: bytes) -> tuple[bytes, bytes]:
    """
    Seal one message.

    :param parts: The message, cut anywhere; the cut leaves no trace.
    :param key: 32 bytes, as lent by `SecretKey.exposed`.
    :param context: What the message is bound to. It opens with this context only.
    :returns: The header of 56 bytes, and the chunks.
    """
    encryptor = Cobblestone256Encryptor(key, context)
    header = encryptor.update(b"")
    sealed: list[bytes] = []
    for part in parts:
        if len(part) <= _FEED_BYTES:
            sealed.append(encryptor.update(part))
            continue
        view = memoryview(part)
        sealed += [encryptor.update(view[at : at + _FEED_BYTES]) for at in range(0, len(view), _FEED_BYTES)]
    sealed.append(encryptor.finalize())
    return header, b"".join(sealed)


def seal_in_one(message: bytes | memoryview, *, key: memoryview, context: bytes) -> bytes:
    """Seal one short message; see `seal_message`. Header and chunks are returned in one piece."""
    encryptor = Cobblestone256Encryptor(key, context)
    return encryptor.update(message) + encryptor.finalize()


def open_message(*sealed: bytes, key: memoryview, context: bytes) -> bytes:
    """
    Open one message. It is returned when all of it has been verified, its end included, and not a byte before.

    :param sealed: Header and chunks, cut anywhere.
    :raises ResultCorrupt: If anything is not what was sealed, or key or context is another one.
    """
    opened = []
    try:
        decryptor = Cobblestone256Decryptor(key, context)
        for part in sealed:
            if len(part) <= _FEED_BYTES:
                opened.append(decryptor.update(part))
            else:
                view = memoryview(part)
                opened += [decryptor.update(view[at : at + _FEED_BYTES]) for at in range(0, len(view), _FEED_BYTES)]
        opened.append(decryptor.finalize())
    except (InvalidTag, AlreadyFinalized, ValueError):
        # What the chunks before the bad one held is not for anybody, a printed traceback included.
        opened.clear()
        raise ResultCorrupt from None
    return b"".join(opened)


def message_bytes(body_bytes: int) -> int:
    """
    Tell how long the message in `body_bytes` bytes of chunks is. There is one answer or none.

    :raises ResultCorrupt: If no message has that many: the last chunk is always a short one, and may be empty.
    """
    full, rest = divmod(body_bytes, SEALED_CHUNK_BYTES)
    if full < 0 or rest < TAG_BYTES:
        raise ResultCorrupt
    return full * CHUNK_BYTES + rest - TAG_BYTES


def wrap_key(secret: SecretKey, *, under: SecretKey, context: bytes) -> bytes:
    """
    Seal a key under another one.

    :returns: Header and chunk in one piece, 104 bytes.
    :raises KeyUnavailable: If one of the two is closed.
    """
    with secret.exposed() as message, under.exposed() as key:
        return seal_in_one(message, key=key, context=context)


def unwrap_key(wrapped: bytes, *, under: SecretKey, context: bytes) -> SecretKey:
    """
    Open what `wrap_key` returned.

    :returns: The key; the caller closes it.
    :raises ResultCorrupt: If `wrapped` was changed, or was wrapped under another key or context.
    :raises KeyUnavailable: If `under` is closed.
    """
    # SQLite keeps whatever it is given, text and numbers too: what is not bytes is as good as no bytes.
    wrapped = wrapped if type(wrapped) is bytes else b""
    with under.exposed() as key:
        try:
            return SecretKey(open_message(wrapped, key=key, context=context))
        except (ResultCorrupt, ValueError):
            pass
    # Out of the handler, so that no cause travels along.
    raise ResultCorrupt("A stored key is damaged or was tampered with, or was wrapped by another key.")


def derive_key_id(key: SecretKey) -> str:
    """
    Name a key that came without a name.

    One way: 48 bits out of a key derivation with a label of its own. From a uniformly random key they tell nothing.

    :returns: 12 hex digits.
    """
    with key.exposed() as view:
        return HKDFExpand(SHA512(), 6, _KEY_ID_LABEL).derive(view).hex()
