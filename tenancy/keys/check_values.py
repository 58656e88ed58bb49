"""
Check values: a known value that a key-encryption key has sealed, by which a later start tells whether it has that key.
"""

from collections.abc import Iterable
from typing import Final

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt
from tenancy.keys.material import KEY_BYTES, SecretKey
from tenancy.keys.providers import KeyProvider, UnknownKey, WrappedKey
from tenancy.sealing.context import bound_context

_LABEL: Final = "haystack-tenancy check value v1"


def make_check_value(provider: KeyProvider, *, catalogue_id: str) -> WrappedKey:
    """
    Seal the known value with a provider's primary key.

    :raises KeyUnavailable: If the provider does not answer.
    """
    with SecretKey(bytes(KEY_BYTES)) as known:
        return provider.wrap(known, context=bound_context(_LABEL, catalogue_id))


def require_check_value(provider: KeyProvider, stored: WrappedKey, *, catalogue_id: str) -> None:
    """
    Refuse a key that is not the one that has made a check value.

    :param stored: The check value.
    :raises ConfigurationError: If the key is another one.
    :raises KeyUnavailable: If the provider does not answer, or the key is disabled.
    :raises KeyDestroyed: If the key is gone for good.
    """
    try:
        with provider.unwrap(stored, context=bound_context(_LABEL, catalogue_id)):
            return
    except (UnknownKey, ResultCorrupt):
        pass
    raise ConfigurationError("The key that is configured is not the one this catalogue was made with.")


def require_one(provider: KeyProvider, known: Iterable[WrappedKey], catalogue_id: str) -> None:
    """
    Refuse keys of which one is not what has made its check value, or none is at hand.

    :param known: The check values that were made with this provider.
    :raises TenancyError: See `require_check_value`.
    """
    refusal: KeyUnavailable | KeyDestroyed | None = None
    is_told = False
    for stored in known:
        try:
            require_check_value(provider, stored, catalogue_id=catalogue_id)
            is_told = True
        except (KeyUnavailable, KeyDestroyed) as error:
            refusal = error
    if refusal is not None and not is_told:
        raise refusal
