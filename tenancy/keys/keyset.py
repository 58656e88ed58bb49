"""
A keyset: several key-encryption keys in one JSON document, of which one is primary. Parsed strictly.

    {"version": 1, "keys": [{"id": "…", "state": "primary", "created_at": "2030-01-31T12:00:00Z", "key": "…"}]}

`docs/format.md` pins it. The same document serves as a key file and as the value of an environment variable.
"""

import base64
import binascii
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from tenancy.keys.material import KEY_BYTES, SecretKey
from tenancy.sealing.cipher import derive_key_id

VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = 1024 * 1024

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FIELDS = ("id", "state", "created_at", "key")
_ENCODED_KEY_CHARS = 44


class KeyState(StrEnum):
    """What a key may do: wrap and unwrap, unwrap only, nothing for now, nothing for ever."""

    PRIMARY = "primary"
    ENABLED = "enabled"
    DISABLED = "disabled"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class KeysetEntry:
    """
    One key of a keyset.

    :param created_at: Aware, UTC; `None` where the key came without it.
    :param key: `None` exactly when the key is destroyed.
    """

    key_id: str
    state: KeyState
    created_at: datetime | None
    key: SecretKey | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """
    What may be told of a key.

    :param created_at: Aware, UTC; `None` where nobody knows.
    """

    key_id: str
    state: KeyState
    created_at: datetime | None


class KeysetError(Exception):
    """
    There is no keyset to be had, or not the one asked for. The message is the end of a sentence ("… has two primary
    keys") without any value or path.

    It never leaves `tenancy`: whoever read the document turns it into a `ConfigurationError` in a frame that no longer
    holds the document, since a traceback may be printed with its variables.
    """


def parse_keyset(document: bytes) -> tuple[KeysetEntry, ...]:
    """
    Read a keyset.

    :returns: Its keys, in order. The caller closes them.
    :raises KeysetError: If anything is missing, unknown, double, of the wrong type or length.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise KeysetError("is too large for a keyset")
    root = _loaded(document)
    if not isinstance(root, dict) or set(root) != {"version", "keys"}:
        raise KeysetError("is not an object with exactly the fields version and keys")
    if type(root["version"]) is not int or root["version"] != VERSION:
        raise KeysetError(f"is not a keyset of version {VERSION}")
    if not isinstance(root["keys"], list):
        raise KeysetError("has no list of keys")
    entries = tuple(_entry(item) for item in root["keys"])
    if len({entry.key_id for entry in entries}) != len(entries):
        raise KeysetError("has two keys with the same id")
    if sum(entry.state is KeyState.PRIMARY for entry in entries) != 1:
        raise KeysetError("does not have exactly one primary key")
    return entries


def parse_single_key(text: str) -> tuple[KeysetEntry, ...]:
    """
    Read one key without a document around it: base64 of 32 bytes, in either alphabet.

    :returns: A keyset of that primary key. Its id is derived from it.
    :raises KeysetError: If it is anything else.
    """
    key = SecretKey(_decoded_key(text.replace("+", "-").replace("/", "_")))
    return (KeysetEntry(derive_key_id(key), KeyState.PRIMARY, None, key),)


def key_infos(entries: Iterable[KeysetEntry]) -> tuple[KeyInfo, ...]:
    """Return what may be told of the keys of a keyset, in order."""
    return tuple(KeyInfo(entry.key_id, entry.state, entry.created_at) for entry in entries)


def new_entry(*, now: datetime) -> KeysetEntry:
    """Make a new primary key with an id that says nothing about it."""
    return KeysetEntry(secrets.token_hex(8), KeyState.PRIMARY, now.astimezone(UTC), SecretKey.generate())


def render_keyset(entries: Sequence[KeysetEntry]) -> bytes:
    """Write a keyset: secret, and in plain text. For a file that only its owner can read."""
    return json.dumps({"version": VERSION, "keys": [_rendered(entry) for entry in entries]}, indent=1).encode() + b"\n"


def _rendered(entry: KeysetEntry) -> dict[str, str | None]:
    encoded = None
    if entry.key is not None:
        with entry.key.exposed() as view:
            encoded = base64.urlsafe_b64encode(view).decode("ascii")
    created_at = None if entry.created_at is None else entry.created_at.strftime(_TIME)
    return {"id": entry.key_id, "state": entry.state.value, "created_at": created_at, "key": encoded}


def _loaded(document: bytes) -> object:
    try:
        return json.loads(document.decode("utf-8"), object_pairs_hook=_without_doubles)
    # ValueError: no text, no JSON, or a number with too many digits.
    except (ValueError, RecursionError):
        pass
    # Out of the handler: the parser's error holds the document.
    raise KeysetError("is not one JSON document")


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise KeysetError("has an object with the same field twice")
    return fields


def _entry(item: object) -> KeysetEntry:
    if not isinstance(item, dict) or set(item) != set(_FIELDS):
        raise KeysetError(f"has a key without exactly the fields {', '.join(_FIELDS)}")
    key_id, state_text, created_at, encoded = (item[name] for name in _FIELDS)
    if not isinstance(key_id, str) or not _ID.match(key_id):
        raise KeysetError("has a key whose id is not 1 to 63 characters out of a-z, 0-9 and -")
    if state_text not in tuple(KeyState):
        raise KeysetError(f"has a key whose state is not one of {', '.join(KeyState)}")
    state = KeyState(state_text)
    if (encoded is None) != (state is KeyState.DESTROYED):
        raise KeysetError("has a destroyed key that is still there, or another one that is not")
    key = None if encoded is None else SecretKey(_decoded_key(encoded))
    return KeysetEntry(key_id, state, _moment(created_at), key)


def _moment(text: object) -> datetime:
    try:
        moment = datetime.strptime(text if isinstance(text, str) else "", _TIME).replace(tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or moment.strftime(_TIME) != text:
        raise KeysetError("has a key whose created_at is not like 2030-01-31T12:00:00Z")
    return moment


def _decoded_key(encoded: object) -> bytes:
    decoded = b""
    if isinstance(encoded, str) and len(encoded) == _ENCODED_KEY_CHARS:
        try:
            decoded = base64.b64decode(encoded, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
    # Written back, since the last character but one has bits that decoding ignores.
    if len(decoded) != KEY_BYTES or base64.urlsafe_b64encode(decoded).decode("ascii") != encoded:
        raise KeysetError(f"has a key that is not {KEY_BYTES} bytes in base64")
    return decoded
