"""Opens the providers that the settings name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenancy.errors import ConfigurationError
from tenancy.keys.keyring import Keyring
from tenancy.keys.locations import NO_KEY, require_distinct
from tenancy.keys.providers import KeyProvider, open_key_provider

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def open_keyring(location: str, others: Mapping[str, str] = _NONE) -> Keyring:
    """
    Open the keys of a catalogue. If any cannot be opened, none is left open.

    :param location: See `open_key_provider`.
    :param others: Those of the providers of tenants that have a key of their own, by their names.
    :raises ConfigurationError: If a name could be mistaken for another provider's, or see `open_key_provider`.
    :raises KeyUnavailable: See `open_key_provider`.
    """
    provider = open_key_provider(location)
    try:
        # A job without a key has no others either.
        return Keyring(provider, others={} if provider.name == NO_KEY else _open_others(others, default=location))
    except BaseException:
        provider.close()
        raise


def _open_others(locations: Mapping[str, str], *, default: str) -> dict[str, KeyProvider]:
    require_distinct(locations, default=default)
    opened: dict[str, KeyProvider] = {}
    try:
        for name, location in locations.items():
            opened[name] = open_other(name, location)
    except BaseException:
        for provider in opened.values():
            provider.close()
        raise
    return opened


def open_other(name: str, location: str) -> KeyProvider:
    """
    Open the provider of a tenant's own key.

    :param name: Its name in `other_keys`.
    :raises ConfigurationError: See `open_key_provider`.
    :raises KeyUnavailable: See `open_key_provider`.
    """
    fault = ""
    try:
        return open_key_provider(location)
    except ConfigurationError as error:
        fault = str(error)
    # Those who open one say where such a location usually stands.
    raise ConfigurationError(fault.replace("setting keys", f"setting other_keys.{name}"))
