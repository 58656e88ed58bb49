"""Wrapped keys as the catalogue keeps them."""

from dataclasses import field

from tenancy.records import record


@record
class TenantKey:
    """
    A tenant's key as the catalogue keeps it.

    :param provider: The name of the provider that wrapped it.
    :param key_id: Which of the provider's keys did.
    :param floor: Which version the tenant's last rotation has left as the oldest one.
    """

    version: int
    provider: str
    key_id: str
    wrapped: bytes = field(repr=False)
    floor: int = 0


@record
class SessionKey:
    """
    A session's key as the catalogue keeps it.

    :param tenant_key_version: Which of the tenant's keys wrapped it.
    """

    version: int
    tenant_key_version: int
    wrapped: bytes = field(repr=False)
