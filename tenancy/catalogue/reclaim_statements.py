"""The statements on what has ended and not gone: end, claim, doom, count, remove."""

from typing import Final

import sqlalchemy as sa

from stores.sql import Statement
from tenancy.catalogue.moments import now_us, unindexed
from tenancy.schema import CATALOGUE, RECEIPTS, RESULTS, SESSIONS, USERS

_page = sa.bindparam("page", type_=sa.Integer)
_expired_session = (SESSIONS.c.state == "live", SESSIONS.c.expires_at_us <= now_us())
_unclaimed = (
    SESSIONS.c.state == "ended",
    sa.or_(SESSIONS.c.claimed_until_us.is_(None), SESSIONS.c.claimed_until_us <= now_us()),
)
_ids = (SESSIONS.c.tenant_id, SESSIONS.c.user_id, SESSIONS.c.session_id)


def _claiming(*conditions: sa.ColumnElement[bool]) -> Statement:
    # In the order of the index, so that however many wait, a page is read and no more; SKIP LOCKED, so that no worker
    # waits for another, whose order is this one too. SQLite has one writer at a time and leaves the clause out.
    return Statement(
        sa.select(*_ids)
        .where(*conditions)
        .order_by(SESSIONS.c.expires_at_us)
        .limit(_page)
        .with_for_update(key_share=True, skip_locked=True)
    )


_of_tenant = SESSIONS.c.tenant_id == sa.bindparam("tenant_id")
EXPIRED: Final = _claiming(*_expired_session)
# What has ended is little, what a tenant or a user has may be much: found by its state.
_found_of_tenant = unindexed(SESSIONS.c.tenant_id) == sa.bindparam("tenant_id")
_found_of_user = unindexed(SESSIONS.c.user_id) == sa.bindparam("user_id")
EXPIRED_OF_TENANT: Final = _claiming(*_expired_session, _found_of_tenant)
ENDED: Final = _claiming(*_unclaimed)
ENDED_OF_TENANT: Final = _claiming(SESSIONS.c.state == "ended", _found_of_tenant)
ENDED_OF_USER: Final = _claiming(SESSIONS.c.state == "ended", _found_of_tenant, _found_of_user)
CLAIM: Final = Statement(
    SESSIONS.update()
    .where(
        SESSIONS.c.tenant_id == sa.bindparam("of_tenant"),
        SESSIONS.c.session_id == sa.bindparam("of_session"),
    )
    .values(claimed_until_us=now_us() + sa.bindparam("claim_us", type_=sa.BigInteger))
)
RELEASE_SESSION: Final = Statement(
    SESSIONS.update()
    .where(
        SESSIONS.c.tenant_id == sa.bindparam("of_tenant"),
        SESSIONS.c.session_id == sa.bindparam("of_session"),
        SESSIONS.c.state == "ended",
    )
    .values(claimed_until_us=None)
)
LOCK: Final = Statement(
    sa.select(*_ids)
    .where(_of_tenant, SESSIONS.c.session_id == sa.bindparam("session_id"), SESSIONS.c.state == "ended")
    # Keeps other removers out, and no writer who has charged the session and now needs its row for a foreign key.
    .with_for_update(key_share=True)
)
_of_session = (
    RESULTS.c.tenant_id == sa.bindparam("tenant_id"),
    RESULTS.c.session_id == sa.bindparam("session_id"),
)
DELETE_RESULTS: Final = Statement(RESULTS.delete().where(*_of_session))
DELETE_SESSION: Final = Statement(
    SESSIONS.delete().where(_of_tenant, SESSIONS.c.session_id == sa.bindparam("session_id"))
)
_results_with_user = RESULTS.join(
    SESSIONS, sa.and_(SESSIONS.c.tenant_id == RESULTS.c.tenant_id, SESSIONS.c.session_id == RESULTS.c.session_id)
)
# Asked of each result found, not joined: of the two tables SQLite would begin with all the live sessions.
_user_of_live = (
    sa.select(SESSIONS.c.user_id)
    .where(
        SESSIONS.c.tenant_id == RESULTS.c.tenant_id,
        SESSIONS.c.session_id == RESULTS.c.session_id,
        SESSIONS.c.state == "live",
    )
    .correlate(RESULTS)
)
_doomed_columns = (
    RESULTS.c.tenant_id,
    _user_of_live.scalar_subquery(),
    RESULTS.c.session_id,
    RESULTS.c.number,
    RESULTS.c.result_id,
    RESULTS.c.inline,
    RESULTS.c.size_bytes,
)
_expired_result = (RESULTS.c.state == "committed", RESULTS.c.expires_at_us <= now_us())
_stale = (RESULTS.c.state != "committed", RESULTS.c.lease_until_us <= now_us())


def _dooming(oldest_first: sa.ColumnElement[int], *conditions: sa.ColumnElement[bool]) -> Statement:
    return Statement(
        sa.select(*_doomed_columns)
        .select_from(RESULTS)
        .where(*conditions, _user_of_live.exists())
        .order_by(oldest_first)
        .limit(_page)
        .with_for_update(of=RESULTS, key_share=True, skip_locked=True)
    )


EXPIRED_RESULTS: Final = _dooming(RESULTS.c.expires_at_us, *_expired_result)
EXPIRED_RESULTS_OF_TENANT: Final = _dooming(
    RESULTS.c.expires_at_us, *_expired_result, unindexed(RESULTS.c.tenant_id) == sa.bindparam("tenant_id")
)
STALE_RESULTS: Final = _dooming(RESULTS.c.lease_until_us, *_stale)
DOOM: Final = Statement(
    RESULTS.update()
    .where(
        RESULTS.c.tenant_id == sa.bindparam("of_tenant"),
        RESULTS.c.session_id == sa.bindparam("of_session"),
        RESULTS.c.number == sa.bindparam("of_number"),
    )
    .values(
        state="deleting",
        header=b"",
        card=b"",
        lease_until_us=now_us() + sa.bindparam("lease_us", type_=sa.BigInteger),
    )
)
RELEASE_RESULT: Final = Statement(
    RESULTS.update()
    .where(
        RESULTS.c.tenant_id == sa.bindparam("of_tenant"),
        RESULTS.c.session_id == sa.bindparam("of_session"),
        RESULTS.c.number == sa.bindparam("of_number"),
        RESULTS.c.state == "deleting",
    )
    .values(lease_until_us=now_us())
)
_unfinished_session = sa.or_(SESSIONS.c.state == "ended", SESSIONS.c.expires_at_us <= now_us())
COUNT_SESSIONS: Final = Statement(sa.select(sa.func.count()).select_from(SESSIONS).where(_unfinished_session))
_sums = (sa.func.count(), sa.cast(sa.func.coalesce(sa.func.sum(RESULTS.c.size_bytes), 0), sa.BigInteger))
COUNT_RESULTS: Final = Statement(
    sa.select(*_sums)
    .select_from(_results_with_user)
    .where(sa.or_(_unfinished_session, sa.and_(*_expired_result), sa.and_(*_stale)))
)
MARK_CLEANED: Final = Statement(CATALOGUE.update().values(cleaned_at_us=now_us()))
CLEANED_AT: Final = Statement(sa.select(CATALOGUE.c.cleaned_at_us))
ADD_TO_RECEIPT: Final = Statement(
    RECEIPTS.update()
    .where(
        RECEIPTS.c.tenant_id == sa.bindparam("of_tenant"),
        RECEIPTS.c.receipt_id
        == sa.select(USERS.c.receipt_id)
        .where(USERS.c.tenant_id == sa.bindparam("of_tenant"), USERS.c.user_id == sa.bindparam("of_user"))
        .scalar_subquery(),
    )
    .values(
        sessions=RECEIPTS.c.sessions + sa.bindparam("add_sessions", type_=sa.BigInteger),
        results=RECEIPTS.c.results + sa.bindparam("add_results", type_=sa.BigInteger),
        size_bytes=RECEIPTS.c.size_bytes + sa.bindparam("add_bytes", type_=sa.BigInteger),
    )
)
