"""
The key hierarchy: a provider's key wraps a tenant's key, which wraps a session's key, which seals its results.

Each is bound to whom it is for, so that a wrapped key copied to another tenant or session opens nothing there.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from tenancy.errors import ConfigurationError, ResultCorrupt, TenancyError
from tenancy.keys.cache import KeyCache
from tenancy.keys.check_values import make_check_value, require_check_value
from tenancy.keys.keyset import KeyInfo
from tenancy.keys.material import SecretKey
from tenancy.keys.provider_set import Known, ProviderSet
from tenancy.keys.providers import KeyProvider, WrappedKey, rewrap_key
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
    Nothing is kept beyond a change of a provider's own keys, of which it is asked each time; see `generation_of`.

    :param provider: Wraps the keys of new tenants. The keyring closes it.
    :param others: Wrap those of tenants that were moved to a key of their own; see `ProviderSet`.
    :param cache_entries: How many opened keys are kept at most.
    :param cache_seconds: For how long at most.
    :param monotonic: The time the age of a kept key is measured with.
    """

    def __init__(
        self,
        provider: KeyProvider,
        *,
        others: Mapping[str, KeyProvider] | None = None,
        cache_entries: int = 1024,
        cache_seconds: float = 300.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._providers = ProviderSet(provider, others)
        self._cache = KeyCache(entries=cache_entries, seconds=cache_seconds, monotonic=monotonic)
        self._cached_generations: dict[str, Hashable] = {}

    @property
    def provider_name(self) -> str:
        """The name of the provider that the keys of new tenants are wrapped by."""
        return self._providers.default_name

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The names of all providers, that one first."""
        return self._providers.names

    @property
    def is_keyless(self) -> bool:
        """Whether the setting `keys` says that there is no key here."""
        return self._providers.is_keyless

    def primary_keys(self) -> dict[str, str | None]:
        """See `ProviderSet.primary_keys`."""
        return self._providers.primary_keys()

    def provider_keys(self, name: str) -> tuple[KeyInfo, ...] | None:
        """See `ProviderSet.keys`."""
        return self._providers.keys(name)

    def new_tenant_key(self, *, tenant_id: str, version: int = 1, provider: str | None = None) -> TenantKey:
        """
        Make a key for a tenant.

        :param provider: The name of the one that wraps it; `None` for that of new tenants.
        :raises KeyUnavailable: If the provider does not answer.
        :raises KeyDestroyed: If the provider's key is gone for good.
        """
        name = self.provider_name if provider is None else provider
        generation = self._generation(name)
        with SecretKey.generate() as key:
            wrapped = self._providers.checked(name).wrap(key, context=_tenant_context(tenant_id, version))
            row = TenantKey(version, name, wrapped.key_id, wrapped.data)
            self._cache.put(_identity(generation, row, tenant_id), key)
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
        generation = self._generation(tenant_key.provider)
        context = _session_context(tenant_id, user_id, session_id, tenant_key.version, version)
        with self._tenant_key(tenant_key, tenant_id, generation) as under, SecretKey.generate() as key:
            row = SessionKey(version, tenant_key.version, wrap_key(key, under=under, context=context))
            self._cache.put(_identity(generation, tenant_key, tenant_id, *_parts(row), user_id, session_id), key)
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
        generation = self._generation(tenant_key.provider)
        identity = _identity(generation, tenant_key, tenant_id, *_parts(session_key), user_id, session_id)
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
        self._tenant_key(row, tenant_id, self._generation(row.provider)).close()

    def rewrap_tenant_key(self, row: TenantKey, *, tenant_id: str, to: str | None = None) -> TenantKey:
        """
        Put a tenant's key under a provider's primary key. It stays the same key, of the same version.

        :param to: The provider's name; `None` for the one it is with. To go to another it passes through this process.
        :raises KeyUnavailable: If a provider does not answer, or lacks the key it is under.
        :raises KeyDestroyed: If that key, or the primary one, is gone for good.
        :raises ResultCorrupt: If the tenant's key is not what was stored.
        """
        context = _tenant_context(tenant_id, row.version)
        name = row.provider if to is None else to
        source, target = self._providers.checked(row.provider), self._providers.checked(name)
        before = WrappedKey(row.key_id, row.wrapped)
        if name == row.provider:
            wrapped = rewrap_key(source, before, context=context, new_context=context)
        else:
            with source.unwrap(before, context=context) as key:
                wrapped = target.wrap(key, context=context)
        return TenantKey(row.version, name, wrapped.key_id, wrapped.data, floor=row.floor)

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
        context = _session_context(tenant_id, user_id, session_id, new.version, session_key.version)
        ids = {"tenant_id": tenant_id, "user_id": user_id, "session_id": session_id}
        with (
            self._opened(old, session_key, self._generation(old.provider), **ids) as key,
            self._tenant_key(new, tenant_id, self._generation(new.provider)) as under,
        ):
            return SessionKey(session_key.version, new.version, wrap_key(key, under=under, context=context))

    def check_value(self, *, catalogue_id: str, provider: str | None = None) -> WrappedKey:
        """
        Seal a known value with a primary key, to tell later whether it is still the right one.

        :param provider: The name of the one whose key; `None` for that of new tenants.
        :raises KeyUnavailable: If the provider does not answer.
        """
        name = self.provider_name if provider is None else provider
        return make_check_value(self._providers.find(name), catalogue_id=catalogue_id)

    def require_check_value(self, stored: WrappedKey, *, provider: str, catalogue_id: str) -> None:
        """
        Refuse a key that is not the one a catalogue was made with.

        :param stored: What `check_value` returned when the catalogue was made.
        :param provider: The provider's name at that time.
        :raises ConfigurationError: If key or provider are others.
        :raises KeyUnavailable: If the provider does not answer, or the key is disabled.
        :raises KeyDestroyed: If the key is gone for good.
        """
        if provider not in self.provider_names:
            raise ConfigurationError("The setting keys names another kind of key than this catalogue was made with.")
        require_check_value(self._providers.find(provider), stored, catalogue_id=catalogue_id)

    def hold_to(self, known: Known, *, catalogue_id: str) -> None:
        """
        Refuse keys that are not this catalogue's; see `ProviderSet.hold_to`.

        :raises TenancyError: See there.
        """
        self._providers.hold_to(known, catalogue_id=catalogue_id)

    def hold(self, provider: str) -> None:
        """
        Hold a provider to what the catalogue knows of it now; see `ProviderSet.hold`.

        :raises TenancyError: See there.
        """
        self._providers.hold(provider)

    def require_key(self, provider: str | None = None) -> None:
        """
        Hold a provider to what the catalogue knows of it, unless that was done.

        :param provider: Its name; `None` for that of new tenants.
        :raises ConfigurationError: If the key is not this catalogue's.
        :raises KeyUnavailable: If the provider does not answer, or the key is disabled.
        :raises KeyDestroyed: If the key is gone for good.
        """
        self._providers.checked(self.provider_name if provider is None else provider)

    def is_destroyed(self, provider: str, key_id: str) -> bool | None:
        """
        Tell whether a key-encryption key is gone for good.

        :returns: `None` if that cannot be told: the provider is not configured, does not answer, or knows no such key.
        """
        return self._providers.is_destroyed(provider, key_id)

    def close(self) -> None:
        """Overwrite all keys that are kept, and close the providers."""
        self._cache.close()
        self._providers.close()

    def __repr__(self) -> str:
        return f"Keyring({self.provider_name!r})"

    def _generation(self, name: str) -> Hashable:
        try:
            generation = self._providers.generation(name)
        except TenancyError:
            self._cache.drop(name)
            raise
        if generation != self._cached_generations.get(name):
            # Before anything is kept of this generation. What another thread puts there of the one before, a moment
            # later, is found by nobody.
            self._cache.drop(name)
            self._cached_generations[name] = generation
        return generation

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
        identity = _identity(generation, row, tenant_id)
        kept = self._cache.get(identity)
        if kept is not None:
            return kept
        if row.version < row.floor:
            raise ResultCorrupt("A stored key is older than the last rotation of its tenant's keys allows.")
        context = _tenant_context(tenant_id, row.version)
        provider = self._providers.checked(row.provider)
        key = provider.unwrap(WrappedKey(row.key_id, row.wrapped), context=context)
        self._cache.put(identity, key)
        return key


def _identity(generation: Hashable, row: TenantKey, tenant_id: str, *more: Hashable) -> tuple[Hashable, ...]:
    # Plain values, which the interpreter compares without calling anybody.
    return row.provider, generation, row.version, row.key_id, row.wrapped, row.floor, tenant_id, *more


def _parts(row: SessionKey) -> tuple[Hashable, ...]:
    return row.version, row.tenant_key_version, row.wrapped


def _tenant_context(tenant_id: str, version: int) -> bytes:
    return _context(_TENANT_LABEL, tenant_id, version)


def _session_context(tenant_id: str, user_id: str, session_id: str, tenant_key_version: int, version: int) -> bytes:
    return _context(_SESSION_LABEL, tenant_id, user_id, session_id, tenant_key_version, version)


def _context(*parts: str | int) -> bytes:
    try:
        return bound_context(*parts)
    except (ValueError, TypeError):
        raise ResultCorrupt("A stored key has a version that none can have.") from None
