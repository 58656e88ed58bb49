"""
What a write is charged: added to the counters of a session, its user and its tenant, within their limits or not at all.

Every call runs inside a caller's transaction.
"""

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from stores.sql import Statement, Transaction
from tenancy.catalogue.counters import COUNTERS_OF_ONE, read_account, to_column
from tenancy.errors import QuotaExceeded, SessionNotFound
from tenancy.records import record
from tenancy.schema import USAGE

#: Whom a result is charged to, in the order in which they are locked.
LEVELS: Final = ("session", "user", "tenant")


def _number(name: str) -> "sa.BindParameter[int]":
    return sa.bindparam(name, type_=sa.BigInteger)


def _within(column: "sa.Column[int]", added: str, limit: "sa.ColumnElement[int]") -> sa.ColumnElement[bool]:
    return sa.or_(limit < 0, column + _number(added) <= limit)


_open_account = USAGE.update().where(*COUNTERS_OF_ONE, USAGE.c.open == 1)
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
#: What all three levels are charged for one result, in one statement. For SQLite, where writers take turns anyhow.
_CHARGE_TOGETHER: Final = Statement(
    USAGE.update()
    .where(
        USAGE.c.tenant_id == sa.bindparam("tenant_id"),
        USAGE.c.slot == 0,
        USAGE.c.open == 1,
        USAGE.c.owner_id.in_([sa.bindparam(f"{level}_id", type_=sa.String) for level in LEVELS]),
        sa.or_(
            *(
                sa.and_(
                    USAGE.c.owner_id == sa.bindparam(f"{level}_id"),
                    _within(USAGE.c.used_bytes, "add_bytes", _number(f"{level}_bytes")),
                    _within(USAGE.c.results, "add_results", _number(f"{level}_results")),
                )
                for level in LEVELS
            )
        ),
    )
    .values(**_added)
    .returning(USAGE.c.owner_id, USAGE.c.last_number)
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


@record
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


def charges_of_result(
    limits: Mapping[str, Any], session_id: str, user_id: str, tenant_id: str, *, size_bytes: int
) -> tuple[Charge, Charge, Charge]:
    """Say what one result is charged to its session, its user and its tenant."""

    def one(level: str, owner_id: str) -> Charge:
        bytes_, results = limits[f"{level}_bytes"], limits[f"{level}_results"]
        return Charge(level, owner_id, add_bytes=size_bytes, add_results=1, limit_bytes=bytes_, limit_results=results)

    return one("session", session_id), one("user", user_id), one("tenant", tenant_id)


def charge(transaction: Transaction, tenant_id: str, added: Charge) -> int:
    """
    Add to an owner's counters if that stays within its limits, in one conditional UPDATE.

    :returns: The owner's newest result number, this one counted.
    :raises QuotaExceeded: If a limit does not allow it. The caller's transaction must be rolled back.
    :raises SessionNotFound: If the owner has ended. The same holds.
    :raises NotCharged: If a limit did not allow it a moment ago. The same holds.
    """
    row = transaction.one(_CHARGE, **_parameters(tenant_id, added))
    if row is None:
        raise refusal(transaction, tenant_id, added) or NotCharged
    number: int = row[0]
    return number


def charge_together(transaction: Transaction, tenant_id: str, *charges: Charge) -> int:
    """
    Add one result to the counters of a session, its user and its tenant, in one conditional UPDATE. SQLite only.

    :param charges: Theirs, in this order.
    :returns: The session's newest result number, this one counted.
    :raises QuotaExceeded: If a limit does not allow it, the narrowest first. The transaction must be rolled back.
    :raises SessionNotFound: If one of them has ended. The same holds.
    :raises NotCharged: If a limit did not allow it a moment ago. The same holds.
    """
    parameters: dict[str, Any] = {"add_bytes": charges[0].add_bytes, "add_results": 1}
    for added in charges:
        parameters[f"{added.level}_id"] = added.owner_id
        parameters[f"{added.level}_bytes"] = to_column(added.limit_bytes)
        parameters[f"{added.level}_results"] = to_column(added.limit_results)
    rows = transaction.all(_CHARGE_TOGETHER, **parameters)
    numbers = dict(rows)
    refused = [added for added in charges if added.owner_id not in numbers]
    if refused:
        raise refusal(transaction, tenant_id, *refused) or NotCharged
    number: int = numbers[charges[0].owner_id]
    return number


class NotCharged(Exception):
    """
    A charge was refused. Rolled back, the caller asks for the `refusal`, or tries again if there is no reason any more.
    """


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


def refusal(transaction: Transaction, tenant_id: str, *charges: Charge) -> QuotaExceeded | SessionNotFound | None:
    """Say why one of these charges was refused; `None` if somebody has freed room since."""
    found = (_refusal(transaction, tenant_id, added) for added in charges)
    return next((reason for reason in found if reason is not None), None)


def _refusal(transaction: Transaction, tenant_id: str, added: Charge) -> QuotaExceeded | SessionNotFound | None:
    row = read_account(transaction, tenant_id, added.owner_id)
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
