"""The statements on results: admit, insert, commit, find, list, delete."""

from typing import Any, Final

import sqlalchemy as sa

from stores.sql import Statement
from tenancy.catalogue.charges import charging_one
from tenancy.catalogue.moments import now_us
from tenancy.catalogue.session_statements import touch_due
from tenancy.schema import BLOBS, LIMITS, RESULTS, SESSION_KEYS, SESSIONS, TENANT_KEYS, TENANTS

#: The limits a write must stay within.
WRITE_LIMITS: Final = (
    "max_result_bytes",
    "session_bytes",
    "session_results",
    "user_bytes",
    "user_results",
    "tenant_bytes",
    "tenant_results",
)

_narrow, _middle, _wide = LIMITS.alias("of_session"), LIMITS.alias("of_user"), LIMITS.alias("of_tenant")


def _effective(field: str) -> sa.ColumnElement[int]:
    default = sa.bindparam(f"default_{field}", type_=sa.BigInteger)
    return sa.func.coalesce(_narrow.c[field], _middle.c[field], _wide.c[field], default)


def _limits_of(table: sa.FromClause, owner: "sa.ColumnElement[str]") -> sa.ColumnElement[bool]:
    return sa.and_(table.c.tenant_id == SESSIONS.c.tenant_id, table.c.owner_id == owner)


_live_session = (
    SESSIONS.c.tenant_id == sa.bindparam("tenant_id"),
    SESSIONS.c.session_id == sa.bindparam("session_id"),
    SESSIONS.c.user_id == sa.bindparam("user_id"),
    SESSIONS.c.state == "live",
    SESSIONS.c.expires_at_us > now_us(),
)
_newest_key = (
    sa.select(sa.func.max(SESSION_KEYS.c.version))
    .where(SESSION_KEYS.c.tenant_id == SESSIONS.c.tenant_id, SESSION_KEYS.c.session_id == SESSIONS.c.session_id)
    .scalar_subquery()
)
_admitting = (
    sa.select(
        _newest_key.label("key_version"),
        touch_due.label("touch_due"),
        *(_effective(field).label(field) for field in WRITE_LIMITS),
    )
    .select_from(
        SESSIONS.outerjoin(_narrow, _limits_of(_narrow, SESSIONS.c.session_id))
        .outerjoin(_middle, _limits_of(_middle, SESSIONS.c.user_id))
        .outerjoin(_wide, _limits_of(_wide, SESSIONS.c.tenant_id))
    )
    .where(*_live_session)
)
ADMIT: Final = Statement(_admitting)
_admitted = _admitting.cte("admitted")
_charged = charging_one(_admitted.c.session_bytes, _admitted.c.session_results).cte("charged")
#: The same, and the session is charged within the limits that were found: its row ends with the number of the new
#: result, or with nothing if they do not allow it. SQLite changes nothing inside a query; there these are two.
ADMIT_AND_CHARGE: Final = Statement(
    sa.select(*_admitted.c, _charged.c.last_number).select_from(_admitted.outerjoin(_charged, sa.true()))
)
_result_lifetime = (
    sa.select(SESSIONS.c.result_lifetime_us)
    .where(
        SESSIONS.c.tenant_id == sa.bindparam("tenant_id"),
        SESSIONS.c.session_id == sa.bindparam("session_id"),
    )
    .scalar_subquery()
)
ENVELOPE_COLUMNS = (
    "format",
    "suite",
    "kind",
    "codec",
    "size_bytes",
    "stored_bytes",
    "key_version",
    "header",
    "card",
)
INSERT: Final = Statement(
    RESULTS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        session_id=sa.bindparam("session_id"),
        number=sa.bindparam("number"),
        result_id=sa.bindparam("result_id"),
        reference_hash=sa.bindparam("reference_hash"),
        state=sa.bindparam("state"),
        inline=sa.bindparam("inline"),
        created_at_us=now_us(),
        expires_at_us=now_us() + _result_lifetime,
        lease_until_us=now_us() + sa.bindparam("lease_us", type_=sa.BigInteger),
        **{column: sa.bindparam(column) for column in ENVELOPE_COLUMNS},
    )
)
_row_key = (
    RESULTS.c.tenant_id == sa.bindparam("tenant_id"),
    RESULTS.c.session_id == sa.bindparam("session_id"),
    RESULTS.c.number == sa.bindparam("number"),
)
COMMIT: Final = Statement(
    RESULTS.update()
    .where(
        *_row_key,
        RESULTS.c.result_id == sa.bindparam("result_id"),
        RESULTS.c.state == "pending",
        RESULTS.c.lease_until_us > now_us(),
        sa.exists(sa.select(SESSIONS.c.session_id).where(*_live_session)),
    )
    .values(state="committed", lease_until_us=None)
    .returning(RESULTS.c.number)
)
ABANDON: Final = Statement(
    RESULTS.update()
    .where(*_row_key, RESULTS.c.result_id == sa.bindparam("result_id"), RESULTS.c.state == "pending")
    .values(state="deleting", header=b"", card=b"")
)
STATE: Final = Statement(sa.select(RESULTS.c.state).where(*_row_key, RESULTS.c.result_id == sa.bindparam("result_id")))
RENEW: Final = Statement(
    RESULTS.update()
    .where(*_row_key, RESULTS.c.state == "pending", RESULTS.c.lease_until_us > now_us())
    .values(lease_until_us=now_us() + sa.bindparam("lease_us", type_=sa.BigInteger))
)
_readable = sa.and_(
    RESULTS.c.state == "committed",
    sa.or_(RESULTS.c.expires_at_us.is_(None), RESULTS.c.expires_at_us > now_us()),
)


_floor = sa.select(TENANTS.c.key_floor).where(TENANTS.c.tenant_id == SESSIONS.c.tenant_id).scalar_subquery()


def _stored(results: sa.FromClause) -> tuple[sa.ColumnElement[Any], ...]:
    return (
        results.c.number,
        results.c.result_id,
        results.c.inline,
        results.c.created_at_us,
        # Whichever comes first; a comparison with NULL is not true.
        sa.case(
            (results.c.expires_at_us < SESSIONS.c.expires_at_us, results.c.expires_at_us),
            else_=SESSIONS.c.expires_at_us,
        ),
        *(results.c[column] for column in ENVELOPE_COLUMNS),
        SESSION_KEYS.c.version,
        SESSION_KEYS.c.tenant_key_version,
        SESSION_KEYS.c.wrapped,
        TENANT_KEYS.c.provider,
        TENANT_KEYS.c.key_id,
        TENANT_KEYS.c.wrapped,
        _floor,
    )


stored_columns: Final = _stored(RESULTS)


def with_keys(joined: sa.Join, results: sa.FromClause = RESULTS) -> sa.Join:
    """Join to each result the wrapped keys that open it, where they still are."""
    return joined.outerjoin(
        SESSION_KEYS,
        sa.and_(
            SESSION_KEYS.c.tenant_id == results.c.tenant_id,
            SESSION_KEYS.c.session_id == results.c.session_id,
            SESSION_KEYS.c.version == results.c.key_version,
        ),
    ).outerjoin(
        TENANT_KEYS,
        sa.and_(
            TENANT_KEYS.c.tenant_id == SESSION_KEYS.c.tenant_id,
            TENANT_KEYS.c.version == SESSION_KEYS.c.tenant_key_version,
        ),
    )


def _of_session(results: sa.FromClause, *matching: sa.ColumnElement[bool]) -> sa.Join:
    # From the session outwards, so that a live session without the result still is a row.
    return with_keys(
        SESSIONS.outerjoin(
            results,
            sa.and_(
                results.c.tenant_id == SESSIONS.c.tenant_id,
                results.c.session_id == SESSIONS.c.session_id,
                *matching,
            ),
        ),
        results,
    )


#: The sealed bytes of an inline result, compared in size where they are, so that no wrong ones travel.
_body = sa.case((sa.func.length(BLOBS.c.data) == RESULTS.c.stored_bytes, BLOBS.c.data))
FIND: Final = Statement(
    sa.select(touch_due, _body, *stored_columns)
    .select_from(
        _of_session(
            RESULTS,
            _readable,
            RESULTS.c.number == sa.bindparam("number"),
            RESULTS.c.reference_hash == sa.bindparam("reference_hash"),
        ).outerjoin(
            BLOBS,
            sa.and_(
                RESULTS.c.inline == 1,
                RESULTS.c.stored_bytes <= sa.bindparam("body_up_to", type_=sa.BigInteger),
                BLOBS.c.outer_name == RESULTS.c.tenant_id,
                BLOBS.c.inner_name == RESULTS.c.session_id,
                BLOBS.c.name == RESULTS.c.result_id,
            ),
        )
    )
    .where(*_live_session)
)
# The page first, by the primary key read backwards: joined first, PostgreSQL would sort all results for every page.
_listed = (
    sa.select(RESULTS)
    .where(
        RESULTS.c.tenant_id == sa.bindparam("tenant_id"),
        RESULTS.c.session_id == sa.bindparam("session_id"),
        RESULTS.c.number < sa.bindparam("before", type_=sa.BigInteger),
        _readable,
    )
    .order_by(RESULTS.c.number.desc())
    .limit(sa.bindparam("page", type_=sa.Integer))
    .subquery("listed")
)
LIST: Final = Statement(
    sa.select(touch_due, *_stored(_listed))
    .select_from(_of_session(_listed))
    .where(*_live_session)
    .order_by(_listed.c.number.desc())
)
DOOM: Final = Statement(
    RESULTS.update()
    .where(
        *_row_key,
        RESULTS.c.reference_hash == sa.bindparam("reference_hash"),
        _readable,
        sa.exists(sa.select(SESSIONS.c.session_id).where(*_live_session)),
    )
    # The header and the card go in the same statement: from here on the bytes are noise, whatever comes next.
    .values(
        state="deleting",
        header=b"",
        card=b"",
        lease_until_us=now_us() + sa.bindparam("lease_us", type_=sa.BigInteger),
    )
    .returning(RESULTS.c.result_id, RESULTS.c.inline, RESULTS.c.size_bytes)
)
REMOVE: Final = Statement(
    RESULTS.delete().where(*_row_key, RESULTS.c.result_id == sa.bindparam("result_id"), RESULTS.c.state != "committed")
)
