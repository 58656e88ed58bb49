"""
A second reader of format version 1, written from `docs/format.md` alone: it imports nothing of the library.

It shows that the page is complete, and a forger's half of it lets tests play an attacker who has the session's key.
"""

import os
import struct
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INFO = b"c2sp.org/chunked-encryption@v1+AEAD_AES_256_GCM\x00"


class Refused(Exception):
    """A rule of the page is broken."""


def context(*values):
    written = b""
    for value in values:
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        raw = struct.pack("<Q", raw) if isinstance(raw, int) else raw
        written += struct.pack("<I", len(raw)) + raw
    return written


def bound(row, ids):
    numbers = [row[name] for name in ("format", "suite", "kind", "codec", "size_bytes", "key_version")]
    return [*numbers, *(ids[name] for name in ("tenant_id", "user_id", "session_id", "result_id"))]


def content_context(row, ids):
    return context("haystack-tenancy result content v1", *bound(row, ids))


def card_context(row, ids):
    return context("haystack-tenancy result card v1", *bound(row, ids), row["header"])


def derive(key, salt, message_context):
    derived = HKDFExpand(SHA512(), 76, INFO + salt + message_context).derive(key)
    return AESGCM(derived[:32]), derived[32:44], derived[44:]


def nonce_of(base, number):
    return bytes(a ^ b for a, b in zip(base, number.to_bytes(12, "big"), strict=True))


def open_message(key, message_context, sealed):
    cipher, base, commitment = derive(key, sealed[:24], message_context)
    if sealed[24:56] != commitment:
        raise Refused
    chunks = [sealed[at : at + 16400] for at in range(56, len(sealed), 16400)] or [b""]
    if len(chunks[-1]) == 16400:
        chunks.append(b"")
    if len(chunks[-1]) < 16:
        raise Refused
    return b"".join(cipher.decrypt(nonce_of(base, number), chunk, None) for number, chunk in enumerate(chunks))


def seal_message(key, message_context, message):
    salt = os.urandom(24)
    cipher, base, commitment = derive(key, salt, message_context)
    pieces = [message[at : at + 16384] for at in range(0, len(message), 16384)] or [b""]
    if len(pieces[-1]) == 16384:
        pieces.append(b"")
    chunks = (cipher.encrypt(nonce_of(base, number), piece, None) for number, piece in enumerate(pieces))
    return salt + commitment + b"".join(chunks)


def take_texts(card):
    texts = []
    for _ in range(6):
        (length,), card = struct.unpack("<I", card[:4]), card[4:]
        if length == 0xFFFFFFFF:
            texts.append(None)
        else:
            texts.append(card[:length].decode("utf-8", "surrogatepass"))
            card = card[length:]
    return dict(zip(("hint", "tag", "suffix", "name", "tool", "media_type"), texts, strict=True)), card


def give_texts(texts):
    return b"".join(
        b"\xff\xff\xff\xff" if text is None else context(text)
        for text in (texts[name] for name in ("hint", "tag", "suffix", "name", "tool", "media_type"))
    )


def take_table(rest):
    chars, lines, count, packed = struct.unpack("<QQIB", rest[:21])
    columns = zstd.decompress(rest[21:]) if packed else rest[21:]
    values = struct.unpack(f"<{4 * count}I", columns)
    return chars, lines, [values[at * count : (at + 1) * count] for at in range(4)]


def give_table(chars, lines, columns):
    """`columns`: stored lengths, plain lengths, characters, newlines."""
    values = [value for column in columns for value in column]
    return struct.pack("<QQIB", chars, lines, len(columns[0]), 0) + struct.pack(f"<{len(values)}I", *values)


def open_result(key, row, ids, body):
    """Returns the names on the card, and the content."""
    if (row["format"], row["suite"]) != (1, 1) or len(body) != row["stored_bytes"]:
        raise Refused
    names, rest = take_texts(open_message(key, card_context(row, ids), row["card"]))
    content = open_message(key, content_context(row, ids), row["header"] + body)
    if row["kind"] == 1:
        if rest or len(content) != row["size_bytes"]:
            raise Refused
        return names, content
    chars, lines, columns = take_table(rest)
    plain = b""
    for stored, length in zip(*columns[:2], strict=True):
        segment, content = content[:stored], content[stored:]
        plain += segment if stored == length else zstd.decompress(segment)
    text = plain.decode("utf-8", "surrogatepass")
    newlines = text.count("\n")
    if content or len(plain) != row["size_bytes"] or len(text) != chars or sum(columns[3]) != newlines:
        raise Refused
    if lines != newlines + (text != "" and not text.endswith("\n")):
        raise Refused
    return names, text


def open_wrapped_key(under, wrapped, *values):
    return open_message(under, context(*values), wrapped)
