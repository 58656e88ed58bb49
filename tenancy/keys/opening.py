"""Opens the providers that the settings name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenancy.errors import ConfigurationError
from tenancy.keys.keyring import Keyring
from tenancy.keys.locations import NO_KEY, RESERVED
from tenancy.keys.providers import KeyProvider, open_key_provider

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def open_keyring(location: str, others: Mapping[str, str] = _NONE) -> Keyring:
    """
    Open the keys of a catalogue. If any cannot be opened, none is left open.

    :param location: See `open_key_provider`.
    :param others: See `open_others`.
    :raises ConfigurationError: See both.
    :raises KeyUnavailable: See both.
    """
    provider = open_key_provider(location)
    try:
        return Keyring(provider, others=open_others(others, default=provider))
    except BaseException:
        provider.close()
        raise


def open_others(locations: Mapping[str, str], *, default: KeyProvider) -> dict[str, KeyProvider]:
    """
    Open the providers of tenants that have a key of their own. If one cannot be opened, none is left open.

    :param locations: By the names that stand with the tenants' keys, where each is; see `open_key_provider`.
    :param default: The one for everybody. Where that is no key at all, there are no others either.
    :raises ConfigurationError: If a name could be mistaken for another provider's, or see `open_key_provider`.
    :raises KeyUnavailable: See `open_key_provider`.
    """
    opened: dict[str, KeyProvider] = {}
    if default.name == NO_KEY:
        return opened
    try:
        for name, location in locations.items():
            opened[name] = open_key_provider(location)
            _require_distinct(name, opened[name], default)
    except BaseException:
        for provider in opened.values():
            provider.close()
        raise
    return opened


def _require_distinct(name: str, provider: KeyProvider, default: KeyProvider) -> None:
    fault = None
    if name == default.name:
        fault = "the provider of the setting keys"
    elif name in RESERVED and name != provider.name:
        # What was under `keys` once is called so here, while it is moved to its successor.
        fault = "a kind of provider that it is not"
    if fault is not None:
        raise ConfigurationError(f"other_keys.{name} is called like {fault}; give it another name.")
