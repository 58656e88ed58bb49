"""Results as the catalogue knows them: about to get a row, stored, found, or being deleted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalogue import result_statements as sql
from tenancy.catalogue.sessions import Ids
from tenancy.keys.stored import SessionKey, TenantKey
from tenancy.references import Reference
from tenancy.sealing.envelope import Envelope


@dataclass(frozen=True, slots=True)
class NewResult:
    """A sealed result that is about to get its row."""

    ids: Ids
    result_id: str
    reference: Callable[[int], Reference]
    envelope: Envelope
    inline: bool


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Inserted:
    """What a result was called when it got its row."""

    reference: Reference
    touch_due: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a session's readable results."""

    results: list[StoredResult]
    touch_due: bool


@dataclass(frozen=True, slots=True)
class Found:
    """
    What one look into a live session gave: the result, or nothing under that reference.

    :param body: The sealed bytes, if they were asked for, are in the database and have the size they should have.
    """

    result: StoredResult | None
    touch_due: bool
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
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
    fields = dict(zip(sql.ENVELOPE_COLUMNS, row[5:14], strict=True))
    return StoredResult(
        number=row[0],
        result_id=row[1],
        inline=bool(row[2]),
        created_at_us=row[3],
        expires_at_us=row[4],
        envelope=Envelope(**fields),
        session_key=SessionKey(version=row[14], tenant_key_version=row[15], wrapped=row[16]),
        tenant_key=TenantKey(version=row[15], provider=row[17], key_id=row[18], wrapped=row[19], floor=row[20]),
    )
