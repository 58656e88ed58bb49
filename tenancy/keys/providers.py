"""
Where key-encryption keys live. A provider wraps and unwraps a tenant's keys; the keys it does that with never leave it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable
from tenancy.keys.files import create_key_file, read_secret_file
from tenancy.keys.held_keysets import FollowedKeyset, HeldKeyset
from tenancy.keys.keyset import (
    MAX_DOCUMENT_BYTES,
    KeyInfo,
    KeysetEntry,
    KeysetError,
    KeyState,
    parse_keyset,
    parse_single_key,
)
from tenancy.keys.locations import NO_KEY, parse_location
from tenancy.keys.material import SecretKey
from tenancy.sealing.cipher import unwrap_key, wrap_key

__all__ = [
    "DisabledKey",
    "KeyProvider",
    "KeysetProvider",
    "RewrappingKeyProvider",
    "UnknownKey",
    "WrappedKey",
    "create_key_file",
    "open_key_provider",
    "rewrap_key",
]


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """
    A key sealed by a provider.

    :param key_id: Which of the provider's keys sealed it.
    :param data: What the provider needs to open it again.
    """

    key_id: str
    data: bytes = field(repr=False)


class UnknownKey(KeyUnavailable):
    """None of the keys that are configured has this id. Configuring it again helps; nothing is lost meanwhile."""


class DisabledKey(KeyUnavailable):
    """The key of this id is disabled. Enabling it again helps; nothing is lost meanwhile."""


class KeyProvider(Protocol):
    """
    Wraps and unwraps keys. Safe for threads.

    Callers promise: `context` is never empty, and a `WrappedKey` is one this or another provider returned, or one that
    was tampered with. What a provider must promise stands with each method.
    """

    @property
    def name(self) -> str:
        """What kind of provider it is: stands with each tenant key. 1 to 32 printable ASCII characters."""

    @property
    def primary_key_id(self) -> str:
        """
        The key that `wrap` uses, as it stands in the `WrappedKey`. 1 to 255 printable ASCII characters.

        A service that decides which key that is may be asked now.

        :raises KeyUnavailable: If it does not answer, or does not let us.
        """

    def wrap(self, key: SecretKey, *, context: bytes) -> WrappedKey:
        """
        Seal a key, bound to `context`: it must open with this context only.

        :raises KeyUnavailable: If the provider does not answer, or does not let us.
        :raises KeyDestroyed: If its primary key is gone for good.
        """

    def unwrap(self, wrapped: WrappedKey, *, context: bytes) -> SecretKey:
        """
        Open what `wrap` returned. The caller closes the key.

        :raises KeyUnavailable: If the provider does not answer, does not let us, or has no such key.
        :raises KeyDestroyed: If that key is gone for good.
        :raises ResultCorrupt: If `wrapped` was changed, or belongs to another key or context.
        """

    def close(self) -> None:
        """Forget all secrets. Nothing else is called afterwards. May be repeated."""


class RewrappingKeyProvider(KeyProvider, Protocol):
    """A provider that can put a key under its primary key without showing it to us. None has to; see `rewrap_key`."""

    def rewrap(self, wrapped: WrappedKey, *, context: bytes, new_context: bytes) -> WrappedKey:
        """
        Open what `wrap` returned, and seal it anew under the primary key, bound to `new_context`.

        :param context: What `wrapped` is bound to.
        :raises KeyUnavailable: If the provider does not answer, does not let us, or lacks one of the two keys.
        :raises KeyDestroyed: If one of the two keys is gone for good.
        :raises ResultCorrupt: If `wrapped` was changed, or belongs to another key or context.
        """


def rewrap_key(provider: KeyProvider, wrapped: WrappedKey, *, context: bytes, new_context: bytes) -> WrappedKey:
    """
    Put a wrapped key under a provider's primary key: by the provider alone if it can, else by way of this process.

    :raises TenancyError: See `RewrappingKeyProvider`. `wrapped` is as good as before.
    """
    # Not `isinstance`: before Python 3.12 that reads each property, and a provider may ask its service for one.
    rewrap: Callable[..., WrappedKey] | None = getattr(provider, "rewrap", None)
    if rewrap is not None:
        return rewrap(wrapped, context=context, new_context=new_context)
    with provider.unwrap(wrapped, context=context) as key:
        return provider.wrap(key, context=new_context)


class KeysetProvider:
    """
    Wraps with the keys of a keyset.

    :param name: `"file"` or `"env"`.
    :param keyset: Its entries, with exactly one primary key, or a file that is followed. The keys belong to the
        provider from here on.
    """

    def __init__(self, name: str, keyset: Sequence[KeysetEntry] | FollowedKeyset) -> None:
        self._name = name
        self._keyset = keyset if isinstance(keyset, FollowedKeyset) else HeldKeyset(keyset)

    @property
    def name(self) -> str:
        """Where the keyset came from."""
        return self._name

    @property
    def primary_key_id(self) -> str:
        """The id of the primary key."""
        (primary,) = (info for info in self._keyset.infos() if info.state is KeyState.PRIMARY)
        return primary.key_id

    def generation(self) -> int:
        """See `ChangingKeyProvider`. Always the same unless a file is followed."""
        return self._keyset.generation()

    def keys(self) -> tuple[KeyInfo, ...]:
        """See `ListingKeyProvider`."""
        return self._keyset.infos()

    def wrap(self, key: SecretKey, *, context: bytes) -> WrappedKey:
        """See `KeyProvider`."""
        entry = self._keyset.primary()
        with _usable(entry) as under:
            return WrappedKey(entry.key_id, wrap_key(key, under=under, context=context))

    def unwrap(self, wrapped: WrappedKey, *, context: bytes) -> SecretKey:
        """See `KeyProvider`. A key is looked up by its id, never tried."""
        with _usable(self._keyset.find(wrapped.key_id)) as under:
            return unwrap_key(wrapped.data, under=under, context=context)

    def is_destroyed(self, key_id: str) -> bool | None:
        """See `TellingKeyProvider`. A key that was taken out of the keyset may be kept elsewhere."""
        states = {info.key_id: info.state for info in self._keyset.infos()}
        return states[key_id] is KeyState.DESTROYED if key_id in states else None

    def close(self) -> None:
        """Overwrite all keys."""
        self._keyset.close()

    def __repr__(self) -> str:
        return f"KeysetProvider({self._name!r}, keys={len(self._keyset)})"


def _usable(entry: KeysetEntry | None) -> SecretKey:
    if entry is None:
        raise UnknownKey("The key this data is under is not among those that are configured.")
    if entry.key is None:
        raise KeyDestroyed("The key this data is under was destroyed.")
    if entry.state is KeyState.DISABLED:
        entry.key.close()
        raise DisabledKey("The key this data is under is disabled.")
    return entry.key


def open_key_provider(location: str) -> KeyProvider:
    """
    Open the keys a setting names.

    :param location: One of

        * `file:PATH`, a keyset file of mode 0600, which is read again whenever it was changed;
        * `env:NAME`, an environment variable that holds a keyset or a single key (base64 of 32 bytes, whose id is
          derived from it), white space around it ignored;
        * `secret-file:/PATH`, a mounted file that holds what such a variable would. Its provider is called `"file"`:
          a keyset that moves between the two opens what it did;
        * `aws-kms:KEY`, a key of AWS KMS, by id, alias or ARN (extra `aws`);
        * `none:`, no key at all: whatever needs one is refused;
        * `NAME:REST`, a provider that is installed.
    :raises ConfigurationError: If it names anything else, or what it names is missing, unsafe or no keyset.
    :raises KeyUnavailable: If a key service has to be asked already, and does not answer.
    """
    try:
        name, rest = parse_location(location)
    except ValueError as error:
        fault, name, rest = str(error), "", ""
    if not name:
        raise ConfigurationError(f"The setting keys {fault}.")
    if name == "file":
        return _opened(name, f"The key file {rest}", lambda: FollowedKeyset(rest))
    if name == "secret-file":
        return _opened("file", f"The secret file {rest}", lambda: _keyset_or_key(read_secret_file(Path(rest))))
    if name == "env":
        return _opened(name, f"The environment variable {rest}", lambda: _variable(rest))
    if name == NO_KEY:
        from tenancy.keys.keyless import KeylessProvider

        return KeylessProvider()
    # Neither boto3 nor the list of what is installed is loaded by those who need neither.
    if name == "aws-kms":
        from tenancy.keys.aws_kms import open_aws_kms

        return open_aws_kms(rest)
    from tenancy.keys.plugins import open_installed

    return open_installed(name, rest)


def _opened(name: str, subject: str, read: Callable[[], tuple[KeysetEntry, ...] | FollowedKeyset]) -> KeyProvider:
    try:
        return KeysetProvider(name, read())
    except KeysetError as error:
        fault = str(error)
    # Out of the handler, whose frames hold the document: a traceback may be printed with its variables.
    raise ConfigurationError(f"{subject} {fault}.")


def _variable(name: str) -> tuple[KeysetEntry, ...]:
    value = os.environ.get(name, "").strip()
    if not value:
        raise KeysetError("should hold the key and is not set")
    return _keyset_or_key(value.encode("utf-8", "replace"))


def _keyset_or_key(document: bytes) -> tuple[KeysetEntry, ...]:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise KeysetError("is too large for a keyset")
    document = document.strip()
    return (
        parse_keyset(document) if document.startswith(b"{") else parse_single_key(document.decode("utf-8", "replace"))
    )
