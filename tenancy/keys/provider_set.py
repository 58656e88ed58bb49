"""The providers of one catalogue: the one for everybody, and those of tenants that have a key of their own."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, TenancyError
from tenancy.keys.abilities import generation_of, is_destroyed, keys_of
from tenancy.keys.check_values import require_one
from tenancy.keys.keyset import KeyInfo
from tenancy.keys.locations import NO_KEY
from tenancy.keys.providers import KeyProvider, UnknownKey, WrappedKey

#: Reads the catalogue's check values, each with the name of its provider.
Known = Callable[[], Iterable[tuple[str, WrappedKey]]]


class ProviderSet:
    """
    Finds providers by the name that stands with each tenant's key, and holds each to what the catalogue knows of it.

    :param default: For tenants that are new. It is called what it calls itself.
    :param others: Further ones by the names they are configured under, of which none is the default's. All are closed
        with this.
    """

    def __init__(self, default: KeyProvider, others: Mapping[str, KeyProvider] | None = None) -> None:
        self._default = default
        self._others = dict(others or {})
        #: What the provider for everybody is called.
        self.default_name = default.name
        #: Whether there is no key here.
        self.is_keyless = self.default_name == NO_KEY
        self._by_name = {**self._others, self.default_name: default}
        self._known: Known = tuple
        self._catalogue_id = ""
        #: Those that were held to what the catalogue knows.
        self._held: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """What the providers are called, the default first."""
        return self.default_name, *self._others

    def find(self, name: str) -> KeyProvider:
        """
        Return a provider, unchecked.

        :raises UnknownKey: If none is configured under this name.
        """
        # Where there is no key at all, it is the one that says so.
        provider = self._default if self.is_keyless else self._by_name.get(name)
        if provider is None:
            raise UnknownKey("The key of this tenant belongs to a provider that is not configured; see other_keys.")
        return provider

    def checked(self, name: str) -> KeyProvider:
        """
        Return a provider that has been held to what the catalogue knows of it: now, if it never was before.

        :raises ConfigurationError: If its key is not the one this catalogue knows.
        :raises KeyUnavailable: If that cannot be told now, or there is no such provider.
        :raises KeyDestroyed: If its keys are gone for good.
        """
        provider = self.find(name)
        if name not in self._held:
            self.hold(name)
        return provider

    def hold(self, name: str) -> None:
        """
        Hold a provider to what the catalogue knows of it now. One of several keys that is at hand is enough.

        :raises TenancyError: See `checked`.
        """
        provider = self.find(name)
        known = [stored for of, stored in self._known() if of == name or self.is_keyless]
        require_one(provider, known, self._catalogue_id)
        # Of what nothing is known yet somebody may know tomorrow.
        if known:
            self._held.add(name)

    def hold_to(self, known: Known, *, catalogue_id: str) -> None:
        """
        Refuse keys that are not this catalogue's; the default one now, if that can be told, and each before its use.

        So a key that is away at the start cannot come back as another one. A provider that the catalogue knows and that
        is not configured is missed by the tenants that hang on it, and by nobody else. A default one that it does not
        know is a successor: the one before it is among the others then, called after its kind, and has to be right.

        :raises ConfigurationError: If the default provider's key is another one, or it is not known and no successor.
        :raises KeyUnavailable: If it is a successor, and the one before it does not answer.
        :raises KeyDestroyed: If it is a successor, and the one before it is gone for good.
        """
        self._known, self._catalogue_id = known, catalogue_id
        names = {name for name, _ in known()}
        if self.is_keyless or self.default_name in names:
            with suppress(KeyUnavailable, KeyDestroyed):
                self.checked(self.default_name)
            return
        former = [name for name, other in self._others.items() if name in names and name == other.name]
        if names and not former:
            raise ConfigurationError("The setting keys names another kind of key than this catalogue was made with.")
        for name in former:
            self.checked(name)

    def generation(self, name: str) -> Hashable:
        """See `generation_of`."""
        return generation_of(self.find(name))

    def keys(self, name: str) -> tuple[KeyInfo, ...] | None:
        """
        Return a provider's keys; `None` if it does not list them, or is not the default one and cannot now.

        :raises TenancyError: If the default one does not answer.
        """
        try:
            return keys_of(self.find(name))
        except TenancyError:
            if name == self.default_name:
                raise
            return None

    def primary_keys(self) -> dict[str, str | None]:
        """
        Return the id of each provider's primary key; `None` where one that is not the default cannot tell it now.

        :raises TenancyError: If the default one does not answer.
        """
        found: dict[str, str | None] = {self.default_name: self._default.primary_key_id}
        for name, provider in self._others.items():
            found[name] = None
            with suppress(TenancyError):
                found[name] = provider.primary_key_id
        return found

    def is_destroyed(self, name: str, key_id: str) -> bool | None:
        """See `abilities.is_destroyed`; `None` too if the provider is not configured."""
        return is_destroyed(self.find(name), key_id) if name in self.names else None

    def close(self) -> None:
        """Close them all."""
        for provider in (self._default, *self._others.values()):
            provider.close()

    def __repr__(self) -> str:
        return f"ProviderSet({self.default_name!r}, others={len(self._others)})"
