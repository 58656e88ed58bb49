"""What `verify` asks of the catalogue: counters against rows, and the rows themselves page by page."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from stores.sql import Statement
from tenancy.catalogue.access import Access
from tenancy.catalogue.counters import set_counters
from tenancy.catalogue.full_disk import even_on_a_full_disk
from tenancy.catalogue.moments import Moments, now_us
from tenancy.catalogue.result_rows import StoredResult, stored_result
from tenancy.catalogue.result_statements import stored_columns, with_keys
from tenancy.catalogue.sessions import Ids
from tenancy.schema import BLOBS, RESULTS, SESSIONS, USAGE

_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Drift:
    """A counter that does not say what the rows say."""

    tenant_id: str
    owner_id: str
    used_bytes: int
    results: int
    sessions: int


_page = sa.bindparam("page", type_=sa.Integer)
_after = sa.tuple_(sa.bindparam("after_tenant", type_=sa.String), sa.bindparam("after_session", type_=sa.String))
_SESSIONS: Final = Statement(
    sa.select(SESSIONS.c.tenant_id, SESSIONS.c.user_id, SESSIONS.c.session_id, SESSIONS.c.state)
    .where(sa.tuple_(SESSIONS.c.tenant_id, SESSIONS.c.session_id) > _after)
    .order_by(SESSIONS.c.tenant_id, SESSIONS.c.session_id)
    .limit(_page)
)
_of_session = (
    RESULTS.c.tenant_id == sa.bindparam("tenant_id"),
    RESULTS.c.session_id == sa.bindparam("session_id"),
)
_NAMES: Final = Statement(sa.select(RESULTS.c.result_id).where(*_of_session))
_IS_SESSION: Final = Statement(
    sa.select(SESSIONS.c.session_id).where(
        SESSIONS.c.tenant_id == sa.bindparam("tenant_id"), SESSIONS.c.session_id == sa.bindparam("session_id")
    )
)
_IS_COMMITTED: Final = Statement(
    sa.select(RESULTS.c.result_id)
    .select_from(
        RESULTS.join(
            SESSIONS,
            sa.and_(SESSIONS.c.tenant_id == RESULTS.c.tenant_id, SESSIONS.c.session_id == RESULTS.c.session_id),
        )
    )
    .where(
        *_of_session,
        RESULTS.c.number == sa.bindparam("number"),
        RESULTS.c.state == "committed",
        SESSIONS.c.state == "live",
    )
)
_COMMITTED: Final = Statement(
    sa.select(*stored_columns)
    .select_from(
        with_keys(
            RESULTS.join(
                SESSIONS,
                sa.and_(SESSIONS.c.tenant_id == RESULTS.c.tenant_id, SESSIONS.c.session_id == RESULTS.c.session_id),
            )
        )
    )
    .where(
        *_of_session,
        RESULTS.c.state == "committed",
        SESSIONS.c.state == "live",
        RESULTS.c.number > sa.bindparam("after", type_=sa.BigInteger),
    )
    .order_by(RESULTS.c.number)
    .limit(_page)
)
_STALE: Final = Statement(
    sa.select(sa.func.count())
    .select_from(RESULTS)
    .where(RESULTS.c.state != "committed", RESULTS.c.lease_until_us <= now_us())
)
_UNKNOWN_BLOBS: Final = Statement(
    sa.select(sa.func.count())
    .select_from(
        BLOBS.outerjoin(
            RESULTS,
            sa.and_(
                RESULTS.c.tenant_id == BLOBS.c.outer_name,
                RESULTS.c.session_id == BLOBS.c.inner_name,
                RESULTS.c.result_id == BLOBS.c.name,
            ),
        )
    )
    .where(RESULTS.c.result_id.is_(None))
)

_bytes = sa.cast(sa.func.coalesce(sa.func.sum(RESULTS.c.size_bytes), 0), sa.BigInteger)
_count = sa.func.count(RESULTS.c.result_id)
_sessions = sa.func.count(sa.distinct(SESSIONS.c.session_id))
_with_results = SESSIONS.outerjoin(
    RESULTS, sa.and_(RESULTS.c.tenant_id == SESSIONS.c.tenant_id, RESULTS.c.session_id == SESSIONS.c.session_id)
)


def _drift(owner: "sa.ColumnElement[str]", sessions: sa.ColumnElement[int]) -> Statement:
    truth = (
        sa.select(
            SESSIONS.c.tenant_id.label("tenant_id"),
            owner.label("owner_id"),
            _bytes.label("used_bytes"),
            _count.label("results"),
            sessions.label("sessions"),
        )
        .select_from(_with_results)
        .group_by(SESSIONS.c.tenant_id, owner)
        .subquery()
    )
    joined = USAGE.join(truth, sa.and_(truth.c.tenant_id == USAGE.c.tenant_id, truth.c.owner_id == USAGE.c.owner_id))
    return Statement(
        sa.select(truth.c.tenant_id, truth.c.owner_id, truth.c.used_bytes, truth.c.results, truth.c.sessions)
        .select_from(joined)
        .where(
            sa.or_(
                USAGE.c.used_bytes != truth.c.used_bytes,
                USAGE.c.results != truth.c.results,
                USAGE.c.sessions != truth.c.sessions,
            )
        )
    )


_DRIFTS: Final = (
    _drift(SESSIONS.c.session_id, sa.literal_column("0", sa.BigInteger)),
    _drift(SESSIONS.c.user_id, _sessions),
    _drift(SESSIONS.c.tenant_id, _sessions),
)


def _session_with(owned: sa.ColumnElement[bool]) -> sa.Exists:
    return sa.exists(
        sa.select(SESSIONS.c.session_id).where(SESSIONS.c.tenant_id == USAGE.c.tenant_id, owned).correlate(USAGE)
    )


#: Owners without any session left, whose counters must be zero.
_DRIFT_OF_EMPTY: Final = Statement(
    sa.select(USAGE.c.tenant_id, USAGE.c.owner_id).where(
        sa.or_(USAGE.c.used_bytes != 0, USAGE.c.results != 0, USAGE.c.sessions != 0),
        # Three questions and no OR between them, so that each has its index.
        ~_session_with(SESSIONS.c.session_id == USAGE.c.owner_id),
        ~_session_with(SESSIONS.c.user_id == USAGE.c.owner_id),
        ~_session_with(SESSIONS.c.tenant_id == USAGE.c.owner_id),
    )
)


class AuditTable:
    """Questions that only a consistency check asks. Each method is one query, or pages of one."""

    def __init__(self, access: Access, moments: Moments) -> None:
        self._access = access
        self._moments = moments

    def sessions(self) -> Iterator[tuple[Ids, bool]]:
        """Go through all sessions that have rows, with whether they are in state live."""
        after = ("", "")
        while True:
            with self._access.reading_across() as transaction:
                rows = transaction.all(_SESSIONS, after_tenant=after[0], after_session=after[1], page=_PAGE)
            for row in rows:
                yield Ids(*row[:3]), row[3] == "live"
            if len(rows) < _PAGE:
                return
            after = (rows[-1][0], rows[-1][2])

    def committed(self, ids: Ids) -> Iterator[StoredResult | None]:
        """Go through a session's committed results; `None` stands for one without a key."""
        after = 0
        while True:
            with self._access.reading(ids.tenant_id) as transaction:
                rows = transaction.all(
                    _COMMITTED, tenant_id=ids.tenant_id, session_id=ids.session_id, after=after, page=_PAGE
                )
            for row in rows:
                yield stored_result(row)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def names(self, tenant_id: str, session_id: str) -> set[str]:
        """Return the names of all blobs that a session's rows know of, in every state."""
        with self._access.reading(tenant_id) as transaction:
            return {row[0] for row in transaction.all(_NAMES, tenant_id=tenant_id, session_id=session_id)}

    def is_session(self, ids: Ids) -> bool:
        """Tell whether a session has a row, in whatever state: it is removed together with those of its results."""
        with self._access.reading(ids.tenant_id) as transaction:
            return transaction.one(_IS_SESSION, tenant_id=ids.tenant_id, session_id=ids.session_id) is not None

    def is_committed(self, ids: Ids, stored: StoredResult) -> bool:
        """Tell whether a result is still there for its readers: neither it nor its session has been given up."""
        row = {"tenant_id": ids.tenant_id, "session_id": ids.session_id, "number": stored.number}
        with self._access.reading(ids.tenant_id) as transaction:
            return transaction.one(_IS_COMMITTED, **row) is not None

    def stale(self) -> int:
        """Count writes and deletes that nobody is at any more."""
        return self._count(_STALE, now_us=self._moments.parameter())

    def unknown_blobs(self) -> int:
        """Count blobs of this database that no row knows of."""
        return self._count(_UNKNOWN_BLOBS)

    @even_on_a_full_disk
    def drifts(self, *, repair: bool = False) -> list[Drift]:
        """
        Compare every counter with its rows, all in one state of the database.

        :param repair: Also set the counters right, in the same transaction.
        :raises StoreUnavailable: If a counter moved while it was being repaired. Nothing was changed; try again.
        """
        access = self._access
        with access.writing_across(snapshot=True) if repair else access.reading_across(snapshot=True) as transaction:
            found = [Drift(*row) for statement in _DRIFTS for row in transaction.all(statement)]
            found += [Drift(row[0], row[1], 0, 0, 0) for row in transaction.all(_DRIFT_OF_EMPTY)]
            if repair:
                for drift in found:
                    set_counters(
                        transaction,
                        drift.tenant_id,
                        drift.owner_id,
                        used_bytes=drift.used_bytes,
                        results=drift.results,
                        sessions=drift.sessions,
                    )
        return found

    def _count(self, statement: Statement, **parameters: int) -> int:
        with self._access.reading_across() as transaction:
            row = transaction.one(statement, **parameters)
        return 0 if row is None else row[0]
