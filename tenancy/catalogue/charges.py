"""
What a write is charged: added to the counters of a session, its user and its tenant, within their limits or not at all.

Every call runs inside a caller's transaction.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from stores.sql import Statement, Transaction
from tenancy.catalogue.counters import COUNTERS_OF_ONE, UNLIMITED, known, read_account, to_column
from tenancy.errors import QuotaExceeded, SessionNotFound
from tenancy.quotas import MAX_LIMIT, Limits
from tenancy.records import record
from tenancy.schema import LIMITS, USAGE

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


_CHARGE: Final = Statement(charging_one(_number("limit_bytes"), _number("limit_results")))


def _limit_set_at(owner: str, field: str) -> "sa.ScalarSelect[int]":
    of_owner = (LIMITS.c.tenant_id == sa.bindparam("tenant_id"), LIMITS.c.owner_id == sa.bindparam(owner))
    return sa.select(LIMITS.c[field]).where(*of_owner).scalar_subquery()


def _charging_session(level: str, *owners: str) -> Statement:
    """
    Charge one session within the limit that is set when the statement begins.

    :param owners: The parameters that say whose limits count, the narrowest first. The first is charged.
    """
    field = f"{level}_sessions"
    limit = sa.func.coalesce(*(_limit_set_at(owner, field) for owner in owners), _number(f"default_{field}"))
    return Statement(
        USAGE.update()
        .where(
            USAGE.c.tenant_id == sa.bindparam("tenant_id"),
            USAGE.c.owner_id == sa.bindparam(owners[0]),
            USAGE.c.slot == 0,
            USAGE.c.open == 1,
            USAGE.c.sessions < sa.func.coalesce(sa.func.nullif(limit, UNLIMITED), MAX_LIMIT),
        )
        .values(sessions=USAGE.c.sessions + 1)
        .returning(USAGE.c.sessions)
    )


_CHARGE_USER: Final = _charging_session("user", "user_id", "tenant_id")
_CHARGE_TENANT: Final = _charging_session("tenant", "tenant_id")


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


def charges_of_session(limits: Limits, user_id: str, tenant_id: str) -> tuple[Charge, Charge]:
    """Say what one session is charged to its user and its tenant."""
    of_user, of_tenant = known(limits.user_sessions), known(limits.tenant_sessions)
    return (
        Charge("user", user_id, add_sessions=1, limit_sessions=of_user),
        Charge("tenant", tenant_id, add_sessions=1, limit_sessions=of_tenant),
    )


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


def charge_session(transaction: Transaction, tenant_id: str, user_id: str, *, defaults: Limits) -> None:
    """
    Add a session to the counters of its user and its tenant, within the limits that hold now, and commit.

    :param defaults: The manager's own limits, complete.
    :raises NotCharged: If one of them does not allow it. The caller's transaction must be rolled back.
    """
    of_user, of_tenant = to_column(known(defaults.user_sessions)), to_column(known(defaults.tenant_sessions))
    if not transaction.finish(
        (_CHARGE_USER, {"tenant_id": tenant_id, "user_id": user_id, "default_user_sessions": of_user}),
        (_CHARGE_TENANT, {"tenant_id": tenant_id, "default_tenant_sessions": of_tenant}),
    ):
        raise NotCharged


def _parameters(tenant_id: str, added: Charge) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "owner_id": added.owner_id,
        "add_bytes": added.add_bytes,
        "add_results": added.add_results,
        "limit_bytes": to_column(added.limit_bytes),
        "limit_results": to_column(added.limit_results),
    }


def refusal(
    transaction: Transaction, tenant_id: str, *charges: Charge, unknown: Collection[str] = ()
) -> QuotaExceeded | SessionNotFound | None:
    """
    Say why one of these charges was refused; `None` if somebody has freed room since.

    :param unknown: Owners whose counters would have begun with the charge.
    """
    for added in charges:
        account = (1, 0, 0, 0) if added.owner_id in unknown else read_account(transaction, tenant_id, added.owner_id)
        reason = _refusal(account, added)
        if reason is not None:
            return reason
    return None


def _refusal(account: tuple[int, int, int, int] | None, added: Charge) -> QuotaExceeded | SessionNotFound | None:
    if account is None or not account[0]:
        return SessionNotFound()
    _, used_bytes, results, sessions = account
    for unit, used, requested, limit in (
        ("bytes", used_bytes, added.add_bytes, added.limit_bytes),
        ("results", results, added.add_results, added.limit_results),
        ("sessions", sessions, added.add_sessions, added.limit_sessions),
    ):
        if limit is not None and used + requested > limit:
            return QuotaExceeded(level=added.level, unit=unit, limit=limit, used=used, requested=requested)
    return None
