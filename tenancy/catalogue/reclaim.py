"""
Ending and removing in SQL: what cleanup and erasure do to the catalogue.

Keys go first, so that a batch is unreadable in one transaction; bytes second; rows last. Each step may be repeated by
anybody. Work is claimed with a lease rather than held in a transaction, so any number of workers run without a leader.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from stores.sql import Database, Statement, Transaction
from tenancy.catalogue.counters import read_counters, refund, remove_counters
from tenancy.catalogue.moments import Moments, now_us, unindexed
from tenancy.catalogue.result_rows import Doomed
from tenancy.catalogue.results import LEASE_US
from tenancy.catalogue.sessions import Ids, end_session
from tenancy.schema import CATALOGUE, RECEIPTS, RESULTS, SESSIONS, USERS

#: How long a worker has an ended session to itself.
CLAIM_US: Final = 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Removed:
    """What went away."""

    sessions: int = 0
    results: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.sessions + other.sessions, self.results + other.results, self.size_bytes + other.size_bytes)


_page = sa.bindparam("page", type_=sa.Integer)
_expired_session = (SESSIONS.c.state == "live", SESSIONS.c.expires_at_us <= now_us())
_unclaimed = (
    SESSIONS.c.state == "ended",
    sa.or_(SESSIONS.c.claimed_until_us.is_(None), SESSIONS.c.claimed_until_us <= now_us()),
)
_ids = (SESSIONS.c.tenant_id, SESSIONS.c.user_id, SESSIONS.c.session_id)


def _claiming(*conditions: sa.ColumnElement[bool]) -> Statement:
    # Sorted, so that two workers lock in the same order; SKIP LOCKED, so that they rarely meet at all. SQLite has one
    # writer at a time and leaves the clause out.
    return Statement(
        sa.select(*_ids)
        .where(*conditions)
        .order_by(SESSIONS.c.tenant_id, SESSIONS.c.session_id)
        .limit(_page)
        .with_for_update(key_share=True, skip_locked=True)
    )


_of_tenant = SESSIONS.c.tenant_id == sa.bindparam("tenant_id")
_EXPIRED: Final = _claiming(*_expired_session)
# What has ended is little, what a tenant or a user has may be much: found by its state.
_found_of_tenant = unindexed(SESSIONS.c.tenant_id) == sa.bindparam("tenant_id")
_found_of_user = unindexed(SESSIONS.c.user_id) == sa.bindparam("user_id")
_EXPIRED_OF_TENANT: Final = _claiming(*_expired_session, _found_of_tenant)
_ENDED: Final = _claiming(*_unclaimed)
_ENDED_OF_TENANT: Final = _claiming(SESSIONS.c.state == "ended", _found_of_tenant)
_ENDED_OF_USER: Final = _claiming(SESSIONS.c.state == "ended", _found_of_tenant, _found_of_user)
_CLAIM: Final = Statement(
    SESSIONS.update()
    .where(
        SESSIONS.c.tenant_id == sa.bindparam("of_tenant"),
        SESSIONS.c.session_id == sa.bindparam("of_session"),
    )
    .values(claimed_until_us=now_us() + sa.bindparam("claim_us", type_=sa.BigInteger))
)
_RELEASE_SESSION: Final = Statement(
    SESSIONS.update()
    .where(
        SESSIONS.c.tenant_id == sa.bindparam("of_tenant"),
        SESSIONS.c.session_id == sa.bindparam("of_session"),
        SESSIONS.c.state == "ended",
    )
    .values(claimed_until_us=None)
)
_LOCK: Final = Statement(
    sa.select(*_ids)
    .where(_of_tenant, SESSIONS.c.session_id == sa.bindparam("session_id"), SESSIONS.c.state == "ended")
    # Keeps other removers out, and no writer who has charged the session and now needs its row for a foreign key.
    .with_for_update(key_share=True)
)
_of_session = (
    RESULTS.c.tenant_id == sa.bindparam("tenant_id"),
    RESULTS.c.session_id == sa.bindparam("session_id"),
)
_DELETE_RESULTS: Final = Statement(RESULTS.delete().where(*_of_session))
_DELETE_SESSION: Final = Statement(
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


def _dooming(*conditions: sa.ColumnElement[bool]) -> Statement:
    return Statement(
        sa.select(*_doomed_columns)
        .select_from(RESULTS)
        .where(*conditions, _user_of_live.exists())
        # In the order of the primary key, not by it: SQLite would go through all results to save the sorting of few.
        .order_by(unindexed(RESULTS.c.tenant_id), RESULTS.c.session_id, RESULTS.c.number)
        .limit(_page)
        .with_for_update(of=RESULTS, key_share=True, skip_locked=True)
    )


_EXPIRED_RESULTS: Final = _dooming(*_expired_result)
_EXPIRED_RESULTS_OF_TENANT: Final = _dooming(
    *_expired_result, unindexed(RESULTS.c.tenant_id) == sa.bindparam("tenant_id")
)
_STALE_RESULTS: Final = _dooming(*_stale)
_DOOM: Final = Statement(
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
_RELEASE_RESULT: Final = Statement(
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
_COUNT_SESSIONS: Final = Statement(sa.select(sa.func.count()).select_from(SESSIONS).where(_unfinished_session))
_sums = (sa.func.count(), sa.cast(sa.func.coalesce(sa.func.sum(RESULTS.c.size_bytes), 0), sa.BigInteger))
_COUNT_RESULTS: Final = Statement(
    sa.select(*_sums)
    .select_from(_results_with_user)
    .where(sa.or_(_unfinished_session, sa.and_(*_expired_result), sa.and_(*_stale)))
)
_MARK_CLEANED: Final = Statement(CATALOGUE.update().values(cleaned_at_us=now_us()))
_CLEANED_AT: Final = Statement(sa.select(CATALOGUE.c.cleaned_at_us))
_ADD_TO_RECEIPT: Final = Statement(
    RECEIPTS.update()
    .where(
        RECEIPTS.c.tenant_id == sa.bindparam("of_tenant"),
        RECEIPTS.c.receipt_id
        == sa.select(USERS.c.receipt_id)
        .where(USERS.c.tenant_id == sa.bindparam("of_tenant"), USERS.c.user_id == sa.bindparam("of_user"))
        .scalar_subquery(),
    )
    .values(
        sessions=RECEIPTS.c.sessions + 1,
        results=RECEIPTS.c.results + sa.bindparam("add_results", type_=sa.BigInteger),
        size_bytes=RECEIPTS.c.size_bytes + sa.bindparam("add_bytes", type_=sa.BigInteger),
    )
)


class ReclaimTable:
    """What has ended and not gone. Each method is one transaction or one query."""

    def __init__(self, database: Database, moments: Moments) -> None:
        self._database = database
        self._moments = moments

    def end_expired(self, *, page: int, tenant_id: str | None = None) -> list[Ids]:
        """
        End up to `page` expired sessions and destroy their keys, all in one transaction.

        :returns: The sessions that were ended. They are still charged and still have bytes.
        """
        statement = _EXPIRED if tenant_id is None else _EXPIRED_OF_TENANT
        only = {} if tenant_id is None else {"tenant_id": tenant_id}
        with self._database.writing() as transaction:
            rows = transaction.all(statement, page=page, now_us=self._moments.parameter(), **only)
            for tenant, _, session in rows:
                end_session(transaction, tenant, session)
        return [Ids(*row) for row in rows]

    def claim_ended(self, *, page: int) -> list[Ids]:
        """Take up to `page` ended sessions for a minute, so that other workers turn to others."""
        now = self._moments.parameter()
        with self._database.writing() as transaction:
            rows = transaction.all(_ENDED, page=page, now_us=now)
            transaction.execute_many(
                _CLAIM,
                [{"of_tenant": row[0], "of_session": row[2], "claim_us": CLAIM_US, "now_us": now} for row in rows],
            )
        return [Ids(*row) for row in rows]

    def ended_of(self, tenant_id: str, *, user_id: str | None = None, page: int) -> list[Ids]:
        """Return ended sessions of a tenant or a user, claimed or not: an erasure does not wait for cleanup."""
        statement = _ENDED_OF_TENANT if user_id is None else _ENDED_OF_USER
        only = {"tenant_id": tenant_id} if user_id is None else {"tenant_id": tenant_id, "user_id": user_id}
        with self._database.writing() as transaction:
            return [Ids(*row) for row in transaction.all(statement, page=page, **only)]

    def remove_session(self, ids: Ids, *, drop: Callable[[Transaction], None], shred: bool = False) -> Removed:
        """
        Remove an ended session's rows and refund them, in one transaction. Its files must be gone already.

        :param drop: Removes the session's blobs from this database, in the same transaction.
        :param shred: Overwrite the pages, for an erasure.
        :returns: What went; nothing if somebody else had done it.
        """
        only = {"tenant_id": ids.tenant_id, "session_id": ids.session_id}
        with self._database.writing(shred=shred) as transaction:
            if transaction.one(_LOCK, **only) is None:
                return Removed()
            count = transaction.execute(_DELETE_RESULTS, **only)
            drop(transaction)
            # Its keys went when it ended; this call only makes sure, for a session ended by hand.
            end_session(transaction, ids.tenant_id, ids.session_id)
            # The session's own counter says what these rows were charged: a delete that ran beside this one has
            # taken its row and its refund together, and the DELETE above has waited for it.
            size, _, _ = read_counters(transaction, ids.tenant_id, ids.session_id)
            remove_counters(transaction, ids.tenant_id, ids.session_id)
            transaction.execute(_DELETE_SESSION, **only)
            transaction.execute(
                _ADD_TO_RECEIPT, of_tenant=ids.tenant_id, of_user=ids.user_id, add_results=count, add_bytes=size
            )
            for owner_id in (ids.user_id, ids.tenant_id):
                refund(transaction, ids.tenant_id, owner_id, size_bytes=size, results=count, sessions=1)
        return Removed(sessions=1, results=count, size_bytes=size)

    def doom_expired(self, *, page: int, tenant_id: str | None = None) -> list[Doomed]:
        """Make up to `page` expired results of live sessions unreadable. Their bytes and rows are still there."""
        if tenant_id is None:
            return self._doom(_EXPIRED_RESULTS, page=page)
        return self._doom(_EXPIRED_RESULTS_OF_TENANT, page=page, tenant_id=tenant_id)

    def doom_stale(self, *, page: int) -> list[Doomed]:
        """Take over up to `page` writes and deletes that nobody is at any more."""
        return self._doom(_STALE_RESULTS, page=page)

    def release(self, *, sessions: Iterable[Ids], results: Iterable[Doomed]) -> None:
        """Give back what was claimed or taken over and not removed, so that the next worker need not wait for it."""
        now = self._moments.parameter()
        with self._database.writing() as transaction:
            transaction.execute_many(
                _RELEASE_SESSION, [{"of_tenant": ids.tenant_id, "of_session": ids.session_id} for ids in sessions]
            )
            transaction.execute_many(
                _RELEASE_RESULT,
                [
                    {
                        "of_tenant": doomed.ids.tenant_id,
                        "of_session": doomed.ids.session_id,
                        "of_number": doomed.number,
                        "now_us": now,
                    }
                    for doomed in results
                ],
            )

    def waiting(self) -> Removed:
        """Count what a cleanup would reclaim now."""
        now = self._moments.parameter()
        with self._database.reading(snapshot=True) as transaction:
            sessions = transaction.one(_COUNT_SESSIONS, now_us=now) or (0,)
            count, size = transaction.one(_COUNT_RESULTS, now_us=now) or (0, 0)
        return Removed(sessions=sessions[0], results=count, size_bytes=size)

    def mark_cleaned(self) -> None:
        """Note that a cleanup ran to its end just now."""
        with self._database.writing() as transaction:
            transaction.execute(_MARK_CLEANED, now_us=self._moments.parameter())

    def cleaned_at_us(self) -> int | None:
        """When a cleanup last ran to its end."""
        with self._database.reading() as transaction:
            row = transaction.one(_CLEANED_AT)
        return None if row is None else row[0]

    def _doom(self, statement: Statement, *, page: int, **only: str) -> list[Doomed]:
        now = self._moments.parameter()
        with self._database.writing() as transaction:
            rows = transaction.all(statement, page=page, now_us=now, **only)
            transaction.execute_many(_DOOM, [_doom_row(row, now) for row in rows])
        return [Doomed(Ids(*row[:3]), row[3], row[4], bool(row[5]), row[6]) for row in rows]


def _doom_row(row: tuple[Any, ...], now: int) -> dict[str, Any]:
    return {"of_tenant": row[0], "of_session": row[2], "of_number": row[3], "lease_us": LEASE_US, "now_us": now}
