"""Results as the catalogue knows them: about to get a row, stored, found, or being deleted."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

from tenancy.catalogue.sessions import Ids
from tenancy.keys.stored import SessionKey, TenantKey
from tenancy.records import record
from tenancy.references import Reference
from tenancy.sealing.envelope import Envelope


@record
class NewResult:
    """A sealed result that is about to get its row."""

    ids: Ids
    result_id: str
    reference: Callable[[int], Reference]
    envelope: Envelope
    inline: bool


@record
class StoredResult:
    """A readable result's row with the keys that open it."""

    number: int
    result_id: str
    inline: bool
    created_at_us: int
    expires_at_us: int
    envelope: Envelope
    session_key: SessionKey
    tenant_key: TenantKey


@record
class Inserted:
    """What a result was called when it got its row."""

    reference: Reference
    touch_due: bool


@record
class Listed:
    """A page of a session's readable results."""

    results: list[StoredResult]
    touch_due: bool


@record
class Found:
    """
    What one look into a live session gave: the result, or nothing under that reference.

    :param body: The sealed bytes, if they were asked for, are in the database and have the size they should have.
    """

    result: StoredResult | None
    touch_due: bool
    body: bytes | None = field(default=None, repr=False)


@record
class Doomed:
    """A result that is being deleted: its row is there, its header is not."""

    ids: Ids
    number: int
    result_id: str
    inline: bool
    size_bytes: int


def stored_result(row: tuple[Any, ...]) -> StoredResult | None:
    """Make a result out of `stored_columns`; `None` where the row or its key is missing."""
    # No number: no such result. No tenant key: the tenant is being erased, which looks the same.
    if row[0] is None or row[19] is None:
        return None
    # Their fields in the order of the columns, as `ENVELOPE_COLUMNS` has them.
    version, tenant_key_version, wrapped, provider, key_id, wrapped_tenant_key, floor = row[14:]
    return StoredResult(
        row[0],
        row[1],
        bool(row[2]),
        row[3],
        row[4],
        Envelope(*row[5:14]),
        SessionKey(version, tenant_key_version, wrapped),
        TenantKey(tenant_key_version, provider, key_id, wrapped_tenant_key, floor),
    )
