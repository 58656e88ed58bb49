"""No key at all, for jobs that remove and never read: the setting `none:`."""

from typing import Final, NoReturn, final

from tenancy.errors import KeyUnavailable
from tenancy.keys.locations import NO_KEY
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import WrappedKey

_SENTENCE: Final = (
    "This process has no key: the setting keys is none:, which is for jobs that only remove. Name the key there to "
    "read or write."
)


@final
class KeylessProvider:
    """Refuses whatever needs a key. See `KeyProvider`."""

    @property
    def name(self) -> str:
        """`"none"`, which stands with no wrapped key."""
        return NO_KEY

    @property
    def primary_key_id(self) -> str:
        """Refused."""
        _refuse()

    def wrap(self, key: SecretKey, *, context: bytes) -> WrappedKey:  # noqa: ARG002 - it is refused unseen
        """Refused."""
        _refuse()

    def unwrap(self, wrapped: WrappedKey, *, context: bytes) -> SecretKey:  # noqa: ARG002 - likewise
        """Refused."""
        _refuse()

    def close(self) -> None:
        """There is no secret to forget."""

    def __repr__(self) -> str:
        return "KeylessProvider()"


def _refuse() -> NoReturn:
    raise KeyUnavailable(_SENTENCE)
