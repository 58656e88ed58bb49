"""What some key providers can do, and what becomes of it where one cannot."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from tenancy.errors import KeyUnavailable
from tenancy.keys.keyset import KeyInfo


class ChangingKeyProvider(Protocol):
    """A `KeyProvider` whose keys may change while it is open, and which notices."""

    def generation(self) -> Hashable:
        """
        Tell the keys there are now from those there were before. Asked before each use of a key that was opened
        earlier, which is used as long as this stays the same: it has to be quick.

        :returns: A value that is another one after each change of a key or its state, and never comes back.
        :raises KeyUnavailable: If it cannot be told now. Then no key that was opened earlier is used either.
        """


class ListingKeyProvider(Protocol):
    """A `KeyProvider` that can say which keys it has."""

    def keys(self) -> tuple[KeyInfo, ...] | None:
        """
        List the keys, in the order in which they were made if there is one. `None` if it cannot say after all.

        :raises KeyUnavailable: If the provider does not answer, or does not let us.
        """


class TellingKeyProvider(Protocol):
    """A `KeyProvider` that can tell what has become of a key."""

    def is_destroyed(self, key_id: str) -> bool | None:
        """
        Tell whether a key is gone for good, so that nothing it wrapped can be opened by anybody.

        :returns: `None` if that cannot be told, as of a key it has never known.
        :raises KeyUnavailable: If the provider does not answer, or does not let us.
        """


def generation_of(provider: object) -> Hashable:
    """
    Ask a provider for its generation. Of one that has none it stays the same.

    :raises TenancyError: See `ChangingKeyProvider`.
    """
    # Not `isinstance`: before Python 3.12 that reads each property, and a provider may ask its service for one.
    generation: Callable[[], Hashable] | None = getattr(provider, "generation", None)
    return 0 if generation is None else generation()


def keys_of(provider: object) -> tuple[KeyInfo, ...] | None:
    """
    List a provider's keys.

    :returns: `None` if the provider cannot say.
    :raises TenancyError: See `ListingKeyProvider`.
    """
    keys: Any = getattr(provider, "keys", None)
    return keys() if callable(keys) else None


def is_destroyed(provider: object, key_id: str) -> bool | None:
    """
    Ask a provider whether a key is gone for good.

    :returns: `None` if that cannot be told, now or at all.
    """
    ask: Callable[[str], bool | None] | None = getattr(provider, "is_destroyed", None)
    if ask is None:
        return None
    try:
        return ask(key_id)
    except KeyUnavailable:
        return None
