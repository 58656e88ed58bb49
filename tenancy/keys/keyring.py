"""
The key hierarchy: a provider's key wraps a tenant's key, which wraps a session's key, which seals its results.

Each is bound to whom it is for, so that a wrapped key copied to another tenant or session opens nothing there.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tenancy.errors import KeyDestroyed, KeyUnavailable, ResultCorrupt, TenancyError
from tenancy.keys.abilities import generation_of, is_destroyed, keys_of
from tenancy.keys.cache import KeyCache
from tenancy.keys.check_values import make_check_value, require_check_value, require_one
from tenancy.keys.keyset import KeyInfo
from tenancy.keys.locations import NO_KEY
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import KeyProvider, UnknownKey, WrappedKey, rewrap_key
from tenancy.keys.stored import SessionKey, TenantKey
from tenancy.sealing.cipher import unwrap_key, wrap_key
from tenancy.sealing.context import bound_context

_TENANT_LABEL: Final = "haystack-tenancy tenant key v1"
_SESSION_LABEL: Final = "haystack-tenancy session key v1"


class Keyring:
    """
    Makes and opens the keys of tenants and sessions. Safe for threads.

    Opened keys are kept for a while, by provider, wrapped bytes and full context: a row that was changed or is another
    one's is never answered from what is kept. A row that is gone is for the caller to notice, who reads it each time.
    Nothing is kept beyond a change of the provider's own keys, of which it is asked each time; see `generation_of`.

    :param provider: Wraps tenant keys. The keyring closes it.
    :param cache_entries: How many opened keys are kept at most.
    :param cache_seconds: For how long at most.
    :param monotonic: The time the age of a kept key is measured with.
    """

    def __init__(
        self,
        provider: KeyProvider,
        *,
        cache_entries: int = 1024,
        cache_seconds: float = 300.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._cache = KeyCache(entries=cache_entries, seconds=cache_seconds, monotonic=monotonic)
        self._cached_generation: Hashable = None
        #: The catalogue's check values and its id, until the key was held to them.
        self._owed: tuple[tuple[tuple[str, WrappedKey], ...], str] | None = None

    @property
    def provider_name(self) -> str:
        """The name of the provider that new tenant keys are wrapped by."""
        return self._provider.name

    @property
    def primary_key_id(self) -> str:
        """The provider's key that new tenant keys are wrapped by."""
        return self._provider.primary_key_id

    @property
    def is_keyless(self) -> bool:
        """Whether the setting `keys` says that there is no key here."""
        return self._provider.name == NO_KEY

    def provider_keys(self) -> tuple[KeyInfo, ...]:
        """Return the provider's keys, as far as it lists them; none if it does not."""
        return keys_of(self._provider) or ()

    def new_tenant_key(self, *, tenant_id: str, version: int = 1) -> TenantKey:
        """
        Make a key for a tenant.

        :raises KeyUnavailable: If the provider does not answer.
        :raises KeyDestroyed: If the provider's key is gone for good.
        """
        generation = self._generation()
        with SecretKey.generate() as key:
            wrapped = self._checked().wrap(key, context=_tenant_context(tenant_id, version))
            row = TenantKey(version, self._provider.name, wrapped.key_id, wrapped.data)
            self._cache.put((generation, row, tenant_id), key)
        return row

    def new_session_key(
        self, tenant_key: TenantKey, *, tenant_id: str, user_id: str, session_id: str, version: int = 1
    ) -> SessionKey:
        """
        Make a key for a session, wrapped by its tenant's.

        :raises KeyUnavailable: If the provider does not answer.
        :raises KeyDestroyed: If the provider's key is gone for good.
        :raises ResultCorrupt: If the tenant's key is not what was stored.
        """
        generation = self._generation()
        context = _session_context(tenant_id, user_id, session_id, tenant_key.version, version)
        with self._tenant_key(tenant_key, tenant_id, generation) as under, SecretKey.generate() as key:
            row = SessionKey(version, tenant_key.version, wrap_key(key, under=under, context=context))
            self._cache.put((generation, tenant_key, row, tenant_id, user_id, session_id), key)
        return row

    def session_key(
        self, tenant_key: TenantKey, session_key: SessionKey, *, tenant_id: str, user_id: str, session_id: str
    ) -> SecretKey:
        """
        Open a session's key.

        :returns: The key. It is the caller's alone, who closes it.
        :raises KeyUnavailable: If the provider does not answer.
        :raises KeyDestroyed: If the provider's key is gone for good.
        :raises ResultCorrupt: If one of the two keys is not what was stored, or not for this session.
        """
        generation = self._generation()
        identity = (generation, tenant_key, session_key, tenant_id, user_id, session_id)
        kept = self._cache.get(identity)
        if kept is not None:
            return kept
        ids = {"tenant_id": tenant_id, "user_id": user_id, "session_id": session_id}
        key = self._opened(tenant_key, session_key, generation, **ids)
        self._cache.put(identity, key)
        return key

    def require_tenant_key(self, row: TenantKey, *, tenant_id: str) -> None:
        """
        See that a tenant's key opens.

        :raises TenancyError: See `session_key`.
        """
        self._tenant_key(row, tenant_id, self._generation()).close()

    def rewrap_tenant_key(self, row: TenantKey, *, tenant_id: str) -> TenantKey:
        """
        Put a tenant's key under the provider's primary key. It stays the same key, of the same version.

        :raises KeyUnavailable: If the provider does not answer, or lacks the key it is under.
        :raises KeyDestroyed: If that key, or the primary one, is gone for good.
        :raises ResultCorrupt: If the tenant's key is not what was stored.
        """
        context = _tenant_context(tenant_id, row.version)
        wrapped = rewrap_key(
            self._provider_of(row), WrappedKey(row.key_id, row.wrapped), context=context, new_context=context
        )
        return replace(row, provider=self._provider.name, key_id=wrapped.key_id, wrapped=wrapped.data)

    def rewrap_session_key(
        self,
        session_key: SessionKey,
        *,
        old: TenantKey,
        new: TenantKey,
        tenant_id: str,
        user_id: str,
        session_id: str,
    ) -> SessionKey:
        """
        Put a session's key under another version of its tenant's key. It stays the same key, of the same version.

        :param old: What wraps it now.
        :raises KeyUnavailable: If one of the two has to be opened and the provider does not answer.
        :raises KeyDestroyed: If the provider's key is gone for good.
        :raises ResultCorrupt: If one of the keys is not what was stored.
        """
        generation = self._generation()
        context = _session_context(tenant_id, user_id, session_id, new.version, session_key.version)
        ids = {"tenant_id": tenant_id, "user_id": user_id, "session_id": session_id}
        with (
            self._opened(old, session_key, generation, **ids) as key,
            self._tenant_key(new, tenant_id, generation) as under,
        ):
            return SessionKey(session_key.version, new.version, wrap_key(key, under=under, context=context))

    def check_value(self, *, catalogue_id: str) -> WrappedKey:
        """
        Seal a known value with the primary key, to tell later whether it is still the right one.

        :raises KeyUnavailable: If the provider does not answer.
        """
        return make_check_value(self._provider, catalogue_id=catalogue_id)

    def require_check_value(self, stored: WrappedKey, *, provider: str, catalogue_id: str) -> None:
        """
        Refuse a key that is not the one a catalogue was made with.

        :param stored: What `check_value` returned when the catalogue was made.
        :param provider: The provider's name at that time.
        :raises ConfigurationError: If key or provider are others.
        :raises KeyUnavailable: If the provider does not answer, or the key is disabled.
        :raises KeyDestroyed: If the key is gone for good.
        """
        require_check_value(self._provider, stored, name=provider, catalogue_id=catalogue_id)

    def hold_to(self, known: Iterable[tuple[str, WrappedKey]], *, catalogue_id: str) -> None:
        """
        Refuse a key that is not this catalogue's; now, or if that cannot be told now, later.

        Until it was told, each use of the provider begins with it, so that a key that is away at the start cannot come
        back as another one. One of several keys that is at hand is enough: an older one may be destroyed.

        :param known: The catalogue's check values, each with the name of its provider.
        :raises ConfigurationError: If key or provider are others.
        """
        self._owed = tuple(known), catalogue_id
        with suppress(KeyUnavailable, KeyDestroyed):
            self.require_key()

    def require_key(self) -> None:
        """
        Make the check that is still owed, if any is.

        :raises ConfigurationError: If the key is not this catalogue's.
        :raises KeyUnavailable: If the provider does not answer, or the key is disabled.
        :raises KeyDestroyed: If the key is gone for good.
        """
        owed = self._owed
        if owed is not None:
            # Two threads may both do so; neither goes on before the answer.
            require_one(self._provider, *owed)
            self._owed = None

    def is_destroyed(self, provider: str, key_id: str) -> bool | None:
        """
        Tell whether a key-encryption key is gone for good.

        :returns: `None` if that cannot be told: the provider is another one, does not answer, or knows no such thing.
        """
        return is_destroyed(self._provider, key_id) if provider == self._provider.name else None

    def close(self) -> None:
        """Overwrite all keys that are kept, and close the provider."""
        self._cache.close()
        self._provider.close()

    def __repr__(self) -> str:
        return f"Keyring({self._provider.name!r})"

    def _generation(self) -> Hashable:
        try:
            generation = generation_of(self._provider)
        except TenancyError:
            self._cache.close()
            raise
        if generation != self._cached_generation:
            # Before anything is kept of this generation. What another thread puts there of the one before, a moment
            # later, is found by nobody.
            self._cache.close()
            self._cached_generation = generation
        return generation

    def _checked(self) -> KeyProvider:
        self.require_key()
        return self._provider

    def _opened(
        self,
        tenant_key: TenantKey,
        session_key: SessionKey,
        generation: Hashable,
        *,
        tenant_id: str,
        user_id: str,
        session_id: str,
    ) -> SecretKey:
        if session_key.tenant_key_version != tenant_key.version:
            raise ResultCorrupt("A session's key was wrapped by another version of its tenant's key.")
        context = _session_context(tenant_id, user_id, session_id, tenant_key.version, session_key.version)
        with self._tenant_key(tenant_key, tenant_id, generation) as under:
            return unwrap_key(session_key.wrapped, under=under, context=context)

    def _tenant_key(self, row: TenantKey, tenant_id: str, generation: Hashable) -> SecretKey:
        kept = self._cache.get((generation, row, tenant_id))
        if kept is not None:
            return kept
        if row.version < row.floor:
            raise ResultCorrupt("A stored key is older than the last rotation of its tenant's keys allows.")
        context = _tenant_context(tenant_id, row.version)
        key = self._provider_of(row).unwrap(WrappedKey(row.key_id, row.wrapped), context=context)
        self._cache.put((generation, row, tenant_id), key)
        return key

    def _provider_of(self, row: TenantKey) -> KeyProvider:
        provider = self._checked()
        if row.provider != provider.name:
            raise UnknownKey("The key of this tenant belongs to a provider that is not configured.")
        return provider


def _tenant_context(tenant_id: str, version: int) -> bytes:
    return _context(_TENANT_LABEL, tenant_id, version)


def _session_context(tenant_id: str, user_id: str, session_id: str, tenant_key_version: int, version: int) -> bytes:
    return _context(_SESSION_LABEL, tenant_id, user_id, session_id, tenant_key_version, version)


def _context(*parts: str | int) -> bytes:
    try:
        return bound_context(*parts)
    except (ValueError, TypeError):
        raise ResultCorrupt("A stored key has a version that none can have.") from None
