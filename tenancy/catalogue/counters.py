"""Limits and counters in SQL: refund, and what is in use. Every call runs inside a caller's transaction."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from stores.sql import Statement, Transaction
from tenancy.quotas import FIELDS, UNSET, Limits, Usage
from tenancy.schema import LIMITS, USAGE

#: How an unlimited field stands in the table.
UNLIMITED: Final = -1

#: Which row an owner's counters are.
COUNTERS_OF_ONE: Final = (
    USAGE.c.tenant_id == sa.bindparam("tenant_id"),
    USAGE.c.owner_id == sa.bindparam("owner_id"),
    USAGE.c.slot == 0,
)


_REFUND: Final = Statement(
    USAGE.update()
    .where(*COUNTERS_OF_ONE)
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
_CLOSE: Final = Statement(USAGE.update().where(*COUNTERS_OF_ONE).values(open=0))
_REMOVE: Final = Statement(USAGE.delete().where(*COUNTERS_OF_ONE))
_TAKE: Final = Statement(USAGE.delete().where(*COUNTERS_OF_ONE).returning(USAGE.c.used_bytes))
_READ: Final = Statement(
    sa.select(USAGE.c.open, USAGE.c.used_bytes, USAGE.c.results, USAGE.c.sessions).where(*COUNTERS_OF_ONE)
)
_SET_EXACTLY: Final = Statement(
    USAGE.update()
    .where(*COUNTERS_OF_ONE)
    .values(
        used_bytes=sa.bindparam("new_bytes", type_=sa.BigInteger),
        results=sa.bindparam("new_results", type_=sa.BigInteger),
        sessions=sa.bindparam("new_sessions", type_=sa.BigInteger),
    )
)

_limits_key = (LIMITS.c.tenant_id == sa.bindparam("tenant_id"), LIMITS.c.owner_id == sa.bindparam("owner_id"))
_OWNERS: Final = ("owner_id", "wider_owner_id", "widest_owner_id")
_READ_ALL_LIMITS: Final = Statement(
    sa.select(LIMITS.c.owner_id, *(LIMITS.c[field] for field in FIELDS)).where(
        LIMITS.c.tenant_id == sa.bindparam("tenant_id"),
        LIMITS.c.owner_id.in_([sa.bindparam(name, type_=sa.String) for name in _OWNERS]),
    )
)
_READ_LIMITS: Final = Statement(sa.select(*(LIMITS.c[field] for field in FIELDS)).where(*_limits_key))
_REMOVE_LIMITS: Final = Statement(LIMITS.delete().where(*_limits_key))
_REMOVE_ALL_LIMITS: Final = Statement(LIMITS.delete().where(LIMITS.c.tenant_id == sa.bindparam("tenant_id")))
#: Takes turns with others who change the same limits, and with whoever removes their owner.
_LOCK_OWNER: Final = Statement(sa.select(USAGE.c.open).where(*COUNTERS_OF_ONE).with_for_update(key_share=True))
_ADD_LIMITS: Final = Statement(
    LIMITS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        owner_id=sa.bindparam("owner_id"),
        **{field: sa.bindparam(field, type_=sa.BigInteger) for field in FIELDS},
    )
)


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


def close_many_counters(transaction: Transaction, owners: Sequence[tuple[str, str]]) -> None:
    """
    Do the same for several.

    :param owners: The id of the tenant and the owner's own, in the order in which everybody waits for them.
    """
    transaction.execute_many(_CLOSE, [{"tenant_id": tenant_id, "owner_id": owner_id} for tenant_id, owner_id in owners])


def remove_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> None:
    """Forget an owner's counters and limits."""
    transaction.later(_REMOVE, tenant_id=tenant_id, owner_id=owner_id)
    transaction.later(_REMOVE_LIMITS, tenant_id=tenant_id, owner_id=owner_id)


def take_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> int:
    """
    Forget an owner's counters and limits. Waits for writers that are about to commit, and counts what they charged.

    :returns: How many bytes it had been charged.
    """
    transaction.later(_REMOVE_LIMITS, tenant_id=tenant_id, owner_id=owner_id)
    row = transaction.one(_TAKE, tenant_id=tenant_id, owner_id=owner_id)
    return 0 if row is None else row[0]


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


def read_account(transaction: Transaction, tenant_id: str, owner_id: str) -> tuple[int, int, int, int] | None:
    """Return whether an owner is charged at all, and used bytes, results and sessions; `None` if there is none."""
    return transaction.one(_READ, tenant_id=tenant_id, owner_id=owner_id)


def read_counters(transaction: Transaction, tenant_id: str, owner_id: str) -> tuple[int, int, int]:
    """Return used bytes, results and sessions; zeros for an unknown owner."""
    row = read_account(transaction, tenant_id, owner_id)
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
    return Limits() if row is None else _limits(row)


def _limits(row: tuple[Any, ...]) -> Limits:
    return Limits(**{field: from_column(value) for field, value in zip(FIELDS, row, strict=True)})


def effective_limits(transaction: Transaction, tenant_id: str, *owner_ids: str, defaults: Limits) -> Limits:
    """
    Work out what holds at an owner: its own limits over those of wider levels over the manager's, in one query.

    :param owner_ids: One to three, the narrowest first.
    """
    # Whoever is named twice is found once.
    named = (*owner_ids, *(owner_ids[-1:] * (len(_OWNERS) - len(owner_ids))))
    rows = transaction.all(_READ_ALL_LIMITS, tenant_id=tenant_id, **dict(zip(_OWNERS, named, strict=True)))
    set_at = {row[0]: _limits(row[1:]) for row in rows}
    found = Limits()
    for owner_id in owner_ids:
        found = found.over(set_at.get(owner_id, Limits()))
    return found.over(defaults)


def write_limits(transaction: Transaction, tenant_id: str, owner_id: str, limits: Limits) -> None:
    """Replace what is set at this owner."""
    transaction.later(_REMOVE_LIMITS, tenant_id=tenant_id, owner_id=owner_id)
    if limits != Limits():
        columns: dict[str, Any] = {
            field: None if getattr(limits, field) is UNSET else to_column(getattr(limits, field)) for field in FIELDS
        }
        transaction.later(_ADD_LIMITS, tenant_id=tenant_id, owner_id=owner_id, **columns)


def known(value: Any) -> int | None:
    """Return a limit out of complete ones."""
    if value is UNSET:
        raise ValueError("The manager's own limits must be complete.")
    limit: int | None = value
    return limit


def to_column(value: int | None) -> int:
    """Turn `None` into the number that stands for unlimited."""
    return UNLIMITED if value is None else value


def from_column(value: int | None) -> Any:
    """Turn a column of the limits table into a field of `Limits`."""
    if value is None:
        return UNSET
    return None if value == UNLIMITED else value
