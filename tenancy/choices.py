"""What a caller may choose, looked at before anything is made."""

from typing import Literal

from tenancy.errors import ConfigurationError
from tenancy.quotas import Lifetime, Limits

#: Whether text is compressed where that makes it shorter.
Compression = Literal["zstd", "none"]


def require_inline_bytes(value: int) -> int:
    """Refuse anything but a whole number of at least 0."""
    if type(value) is not int or value < 0:
        raise ConfigurationError("inline_bytes must be a whole number of at least 0.")
    return value


def require_compression(value: Compression) -> Compression:
    """Refuse anything but the two ways there are."""
    if value not in ("zstd", "none"):
        raise ConfigurationError('compression must be "zstd" or "none".')
    return value


def require_kinds(*, limits: object, lifetime: object) -> None:
    """Refuse what are no limits and no lifetime."""
    if not isinstance(limits, Limits | None):
        raise ConfigurationError("limits must be a tenancy.Limits.")
    if not isinstance(lifetime, Lifetime | None):
        raise ConfigurationError("lifetime must be a tenancy.Lifetime.")
