"""Limits and counters in SQL: charge, refund, and what is in use. Every call runs inside a caller's transaction."""

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from stores.sql import Statement, Transaction
from tenancy.errors import QuotaExceeded, SessionNotFound
from tenancy.quotas import FIELDS, UNSET, Limits, Usage
from tenancy.schema import LIMITS, USAGE

#: How an unlimited field stands in the table.
_UNLIMITED: Final = -1

_key = (
    USAGE.c.tenant_id == sa.bindparam("tenant_id"),
    USAGE.c.owner_id == sa.bindparam("owner_id"),
    USAGE.c.slot == 0,
)


def _number(name: str) -> "sa.BindParameter[int]":
    return sa.bindparam(name, type_=sa.BigInteger)


def _within(column: "sa.Column[int]", added: str, limit: "sa.ColumnElement[int]") -> sa.ColumnElement[bool]:
    return sa.or_(limit < 0, column + _number(added) <= limit)


_open_account = USAGE.update().where(*_key, USAGE.c.open == 1)
_added = {
    "used_bytes": USAGE.c.used_bytes + _number("add_bytes"),
    "results": USAGE.c.results + _number("add_results"),
    "last_number": USAGE.c.last_number + _number("add_results"),
}
_CHARGE: Final = Statement(
    _open_account.where(
        _within(USAGE.c.used_bytes, "add_bytes", _number("limit_bytes")),
        _within(USAGE.c.results, "add_results", _number("limit_results")),
        _within(USAGE.c.sessions, "add_sessions", _number("limit_sessions")),
    )
    .values(**_added, sessions=USAGE.c.sessions + _number("add_sessions"))
    .returning(USAGE.c.last_number)
)
_REFUND: Final = Statement(
    USAGE.update()
    .where(*_key)
    .values(
        used_bytes=USAGE.c.used_bytes - sa.bindparam("sub_bytes", type_=sa.BigInteger),
        results=USAGE.c.results - sa.bindparam("sub_results", type_=sa.BigInteger),
        sessions=USAGE.c.sessions - sa.bindparam("sub_sessions", type_=sa.BigInteger),
    )
)
_OPEN: Final = Statement(
    USAGE.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        owner_id=sa.bindparam("owner_id"),
        slot=0,
        open=1,
        used_bytes=0,
        results=0,
        sessions=0,
        last_number=0,
    )
)
_CLOSE: Final = Statement(USAGE.update().where(*_key).values(open=0))
_REMOVE: Final = Statement(USAGE.delete().where(*_key))
_READ: Final = Statement(sa.select(USAGE.c.open, USAGE.c.used_bytes, USAGE.c.results, USAGE.c.sessions).where(*_key))
_SET_EXACTLY: Final = Statement(
    USAGE.update()
    .where(*_key)
    .values(
        used_bytes=sa.bindparam("new_bytes", type_=sa.BigInteger),
        results=sa.bindparam("new_results", type_=sa.BigInteger),
        sessions=sa.bindparam("new_sessions", type_=sa.BigInteger),
    )
)

_limits_key = (LIMITS.c.tenant_id == sa.bindparam("tenant_id"), LIMITS.c.owner_id == sa.bindparam("owner_id"))
_READ_LIMITS: Final = Statement(sa.select(*(LIMITS.c[field] for field in FIELDS)).where(*_limits_key))
_REMOVE_LIMITS: Final = Statement(LIMITS.delete().where(*_limits_key))
_REMOVE_ALL_LIMITS: Final = Statement(LIMITS.delete().where(LIMITS.c.tenant_id == sa.bindparam("tenant_id")))
#: Takes turns with others who change the same limits, and with whoever removes their owner.
_LOCK_OWNER: Final = Statement(sa.select(USAGE.c.open).where(*_key).with_for_update(key_share=True))
_ADD_LIMITS: Final = Statement(
    LIMITS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        owner_id=sa.bindparam("owner_id"),
        **{field: sa.bindparam(field, type_=sa.BigInteger) for field in FIELDS},
    )
)


def charging_one(
    limit_bytes: "sa.ColumnElement[int]", limit_results: "sa.ColumnElement[int]"
) -> "ReturningUpdate[Any]":
    """Return what `charge` does for one result, for a statement that looks the limits up as well."""
    return (
        _open_account.where(
            _within(USAGE.c.used_bytes, "add_bytes", limit_bytes),
            _within(USAGE.c.results, "add_results", limit_results),
        )
        .values(**_added)
        .returning(USAGE.c.last_number)
    )


@dataclass(frozen=True, slots=True)
class Charge:
    """What is being added to one owner's counters, and the limits it must stay within. `None` is unlimited."""

    level: str
    owner_id: str
    add_bytes: int = 0
    add_results: int = 0
    add_sessions: int = 0
    limit_bytes: int | None = None
    limit_results: int | None = None
    limit_sessions: int | None = None


def charge(transaction: Transaction, tenant_id: str, added: Charge) -> int:
    """
    Add to an owner's counters if that stays within its limits, in one conditional UPDATE.

    :returns: The owner's newest result number, this one counted.
    :raises QuotaExceeded: If a limit does not allow it. The caller's transaction must be rolled back.
    :raises SessionNotFound: If the owner has ended. The same holds.
    """
    row = transaction.one(_CHARGE, **_parameters(tenant_id, added))
    if row is None:
        raise refusal(transaction, tenant_id, added)
    number: int = row[0]
    return number


class NotCharged(Exception):
    """One of the last charges was refused. Rolled back, the caller asks for the `refusal`."""


def charge_last(transaction: Transaction, tenant_id: str, *charges: Charge) -> None:
    """
    Add to the counters of those whom many writers share, the widest last, and commit.

    :raises NotCharged: If one of them does not allow it. The caller's transaction must be rolled back.
    """
    if not transaction.finish(*((_CHARGE, _parameters(tenant_id, added)) for added in charges)):
        raise NotCharged


def _parameters(tenant_id: str, added: Charge) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "owner_id": added.owner_id,
        "add_bytes": added.add_bytes,
        "add_results": added.add_results,
        "add_sessions": added.add_sessions,
        "limit_bytes": to_column(added.limit_bytes),
        "limit_results": to_column(added.limit_results),
        "limit_sessions": to_column(added.limit_sessions),
    }


def refusal(transaction: Transaction, tenant_id: str, *charges: Charge) -> QuotaExceeded | SessionNotFound:
    """Say why one of these charges was refused, as far as the counters still tell."""
    found = [_refusal(transaction, tenant_id, added) for added in charges]
    return next((reason for reason in found if reason is not None), None) or _raced(transaction, tenant_id, charges[-1])


def _refusal(transaction: Transaction, tenant_id: str, added: Charge) -> QuotaExceeded | SessionNotFound | None:
    row = transaction.one(_READ, tenant_id=tenant_id, owner_id=added.owner_id)
    if row is None or not row[0]:
        return SessionNotFound()
    _, used_bytes, results, sessions = row
    for unit, used, requested, limit in (
        ("bytes", used_bytes, added.add_bytes, added.limit_bytes),
        ("results", results, added.add_results, added.limit_results),
        ("sessions", sessions, added.add_sessions, added.limit_sessions),
    ):
        if limit is not None and used + requested > limit:
            return QuotaExceeded(level=added.level, unit=unit, limit=limit, used=used, requested=requested)
    return None


def _raced(transaction: Transaction, tenant_id: str, added: Charge) -> QuotaExceeded:
    # Somebody freed room between the charge and the look: say what was true for the first.
    used_bytes, _, _ = read_counters(transaction, tenant_id, added.owner_id)
    limit = added.limit_bytes if added.limit_bytes is not None else 0
    return QuotaExceeded(level=added.level, unit="bytes", limit=limit, used=used_bytes, requested=added.add_bytes)


def refund(
    transaction: Transaction, tenant_id: str, owner_id: str, *, size_bytes: int = 0, results: int = 0, sessions: int = 0
) -> None:
    """Take back what rows that were just deleted in this transaction had been charged."""
    transaction.later(
        _REFUND,
        tenant_id=tenant_id,
        owner_id=owner_id,
        sub_bytes=size_bytes,
        sub_results=results,
        sub_sessions=sessions,
    )


def open_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> None:
    """Begin counting for a new tenant, user or session."""
    transaction.later(_OPEN, tenant_id=tenant_id, owner_id=owner_id)


def close_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> None:
    """
    Let no further charge through. Waits for writers that are about to commit: after it, none can begin.
    """
    transaction.later(_CLOSE, tenant_id=tenant_id, owner_id=owner_id)


def remove_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> None:
    """Forget an owner's counters and limits."""
    transaction.later(_REMOVE, tenant_id=tenant_id, owner_id=owner_id)
    transaction.later(_REMOVE_LIMITS, tenant_id=tenant_id, owner_id=owner_id)


def remove_all_limits(transaction: Transaction, tenant_id: str) -> None:
    """Forget all limits within a tenant, also of owners who are gone already."""
    transaction.later(_REMOVE_ALL_LIMITS, tenant_id=tenant_id)


def lock_owner(transaction: Transaction, tenant_id: str, owner_id: str) -> bool:
    """
    Keep everybody else from an owner's counters and limits until the transaction ends.

    :returns: Whether the owner is still there and has not ended.
    """
    row = transaction.one(_LOCK_OWNER, tenant_id=tenant_id, owner_id=owner_id)
    return row is not None and bool(row[0])


def set_counters(
    transaction: Transaction, tenant_id: str, owner_id: str, *, used_bytes: int, results: int, sessions: int
) -> None:
    """Overwrite an owner's counters. For the repair of a drift only."""
    transaction.execute(
        _SET_EXACTLY,
        tenant_id=tenant_id,
        owner_id=owner_id,
        new_bytes=used_bytes,
        new_results=results,
        new_sessions=sessions,
    )


def read_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> tuple[int, int, int]:
    """Return used bytes, results and sessions; zeros for an unknown owner."""
    row = transaction.one(_READ, tenant_id=tenant_id, owner_id=owner_id)
    return (0, 0, 0) if row is None else (row[1], row[2], row[3])


def usage(counters: tuple[int, int, int], limits: Limits, level: str) -> Usage:
    """Put counters and effective limits of one level together."""

    def bound(name: str) -> int | None:
        value = getattr(limits, name, None)
        return value if isinstance(value, int) else None

    return Usage(
        used_bytes=counters[0],
        results=counters[1],
        sessions=counters[2],
        limit_bytes=bound(f"{level}_bytes"),
        limit_results=bound(f"{level}_results"),
        limit_sessions=bound(f"{level}_sessions"),
        max_result_bytes=bound("max_result_bytes"),
    )


def read_limits(transaction: Transaction, tenant_id: str, owner_id: str) -> Limits:
    """Return what is set exactly at this owner; everything `UNSET` where nothing is."""
    row = transaction.one(_READ_LIMITS, tenant_id=tenant_id, owner_id=owner_id)
    if row is None:
        return Limits()
    return Limits(**{field: from_column(value) for field, value in zip(FIELDS, row, strict=True)})


def effective_limits(transaction: Transaction, tenant_id: str, *owner_ids: str, defaults: Limits) -> Limits:
    """
    Work out what holds at an owner: its own limits over those of wider levels over the manager's.

    :param owner_ids: The narrowest first.
    """
    found = Limits()
    for owner_id in owner_ids:
        found = found.over(read_limits(transaction, tenant_id, owner_id))
    return found.over(defaults)


def write_limits(transaction: Transaction, tenant_id: str, owner_id: str, limits: Limits) -> None:
    """Replace what is set at this owner."""
    transaction.later(_REMOVE_LIMITS, tenant_id=tenant_id, owner_id=owner_id)
    if limits != Limits():
        columns: dict[str, Any] = {
            field: None if getattr(limits, field) is UNSET else to_column(getattr(limits, field)) for field in FIELDS
        }
        transaction.later(_ADD_LIMITS, tenant_id=tenant_id, owner_id=owner_id, **columns)


def to_column(value: int | None) -> int:
    """Turn `None` into the number that stands for unlimited."""
    return _UNLIMITED if value is None else value


def from_column(value: int | None) -> Any:
    """Turn a column of the limits table into a field of `Limits`."""
    if value is None:
        return UNSET
    return None if value == _UNLIMITED else value
