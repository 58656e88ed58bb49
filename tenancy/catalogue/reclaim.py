"""
Ending and removing in SQL: what cleanup and erasure do to the catalogue.

Keys go first, so that a batch is unreadable in one transaction; bytes second; rows last. Each step may be repeated by
anybody. Work is claimed with a lease rather than held in a transaction, so any number of workers run without a leader.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from stores.sql import Statement, Transaction
from tenancy.catalogue import reclaim_statements as sql
from tenancy.catalogue.access import Access
from tenancy.catalogue.counters import refund, take_counters
from tenancy.catalogue.full_disk import even_on_a_full_disk
from tenancy.catalogue.moments import Moments
from tenancy.catalogue.result_rows import Doomed
from tenancy.catalogue.results import LEASE_US
from tenancy.catalogue.session_statements import DROP_KEYS
from tenancy.catalogue.sessions import Ids, end_many_sessions

#: How long a worker has an ended session to itself.
CLAIM_US: Final = 60 * 1_000_000
#: One transaction removes no further session after so many results or so many bytes, so that other writers get their
#: turn.
RESULTS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Removed:
    """What went away."""

    sessions: int = 0
    results: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.sessions + other.sessions, self.results + other.results, self.size_bytes + other.size_bytes)


class ReclaimTable:
    """What has ended and not gone. Each method is one transaction or one query."""

    def __init__(self, access: Access, moments: Moments) -> None:
        self._access = access
        self._moments = moments

    @even_on_a_full_disk
    def end_expired(self, *, page: int, tenant_id: str | None = None) -> list[Ids]:
        """
        End up to `page` expired sessions and destroy their keys, all in one transaction.

        :returns: The sessions that were ended. They are still charged and still have bytes.
        """
        statement = sql.EXPIRED if tenant_id is None else sql.EXPIRED_OF_TENANT
        only = {} if tenant_id is None else {"tenant_id": tenant_id}
        with self._writing(tenant_id, shred=True) as transaction:
            rows = transaction.all(statement, page=page, now_us=self._moments.parameter(), **only)
            end_many_sessions(transaction, ((tenant, session) for tenant, _, session in rows))
        return [Ids(*row) for row in rows]

    @even_on_a_full_disk
    def claim_ended(self, *, page: int) -> list[Ids]:
        """Take up to `page` ended sessions for a minute, so that other workers turn to others."""
        now = self._moments.parameter()
        with self._access.writing_across() as transaction:
            rows = transaction.all(sql.ENDED, page=page, now_us=now)
            transaction.execute_many(
                sql.CLAIM,
                [{"of_tenant": row[0], "of_session": row[2], "claim_us": CLAIM_US, "now_us": now} for row in rows],
            )
        return [Ids(*row) for row in rows]

    @even_on_a_full_disk
    def ended_of(self, tenant_id: str, *, user_id: str | None = None, page: int) -> list[Ids]:
        """Return ended sessions of a tenant or a user, claimed or not: an erasure does not wait for cleanup."""
        statement = sql.ENDED_OF_TENANT if user_id is None else sql.ENDED_OF_USER
        only = {"tenant_id": tenant_id} if user_id is None else {"tenant_id": tenant_id, "user_id": user_id}
        with self._access.writing(tenant_id) as transaction:
            return [Ids(*row) for row in transaction.all(statement, page=page, **only)]

    @even_on_a_full_disk
    def remove_sessions(
        self, sessions: Sequence[Ids], *, drop: Callable[[Ids, Transaction], None], shred: bool = False
    ) -> list[Removed]:
        """
        Remove the rows of ended sessions and refund them, in one transaction. Their files must be gone already.

        :param sessions: All of one tenant's, in the order in which everybody waits for them.
        :param drop: Removes a session's blobs from this database, in the same transaction.
        :param shred: Overwrite the pages, for an erasure.
        :returns: What went of each; nothing of one that somebody else had removed. Those at the end that it is silent
            about are left for another call: together they would keep other writers waiting.
        """
        tenant_id = sessions[0].tenant_id
        done: list[Removed] = []
        total, of_users = Removed(), dict[str, Removed]()
        with self._access.writing(tenant_id, shred=shred) as transaction:
            for ids in sessions:
                removed = self._remove_rows(transaction, ids, drop=drop)
                done.append(removed)
                if removed.sessions:
                    of_users[ids.user_id] = of_users.get(ids.user_id, Removed()) + removed
                    total += removed
                if total.results >= RESULTS_AT_ONCE or total.size_bytes >= BYTES_AT_ONCE:
                    break
            if of_users:
                if shred:
                    self._access.mark_shredding(transaction)
                _give_back(transaction, tenant_id, of_users, total)
        return done

    @staticmethod
    def _remove_rows(transaction: Transaction, ids: Ids, *, drop: Callable[[Ids, Transaction], None]) -> Removed:
        only = {"tenant_id": ids.tenant_id, "session_id": ids.session_id}
        if transaction.one(sql.LOCK, **only) is None:
            return Removed()
        count = transaction.execute(sql.DELETE_RESULTS, **only)
        drop(ids, transaction)
        # They went when it ended; this only makes sure, for a session ended by hand.
        transaction.later(DROP_KEYS, **only)
        # The session's own counter says what these rows were charged: a delete that ran beside this one has taken its
        # row and its refund together, and the DELETE above has waited for it.
        size_bytes = take_counters(transaction, ids.tenant_id, ids.session_id)
        transaction.later(sql.DELETE_SESSION, **only)
        return Removed(sessions=1, results=count, size_bytes=size_bytes)

    def doom_expired(self, *, page: int, tenant_id: str | None = None) -> list[Doomed]:
        """Make up to `page` expired results of live sessions unreadable. Their bytes and rows are still there."""
        if tenant_id is None:
            return self._doom(sql.EXPIRED_RESULTS, page=page)
        return self._doom(sql.EXPIRED_RESULTS_OF_TENANT, page=page, tenant_id=tenant_id)

    def doom_stale(self, *, page: int) -> list[Doomed]:
        """Take over up to `page` writes and deletes that nobody is at any more."""
        return self._doom(sql.STALE_RESULTS, page=page)

    @even_on_a_full_disk
    def release(self, *, sessions: Iterable[Ids], results: Iterable[Doomed]) -> None:
        """Give back what was claimed or taken over and not removed, so that the next worker need not wait for it."""
        # Sessions, and then results, each in the order in which everybody waits for them. Not together: whoever removes
        # a session holds its results, and may be waiting for the next session.
        in_turn = sorted((ids.tenant_id, ids.session_id) for ids in sessions)
        with self._access.writing_across() as transaction:
            transaction.execute_many(
                sql.RELEASE_SESSION, [{"of_tenant": tenant, "of_session": session} for tenant, session in in_turn]
            )
        doomed = sorted((one.ids.tenant_id, one.ids.session_id, one.number) for one in results)
        now = self._moments.parameter()
        with self._access.writing_across() as transaction:
            transaction.execute_many(
                sql.RELEASE_RESULT,
                [
                    {"of_tenant": tenant, "of_session": session, "of_number": number, "now_us": now}
                    for tenant, session, number in doomed
                ],
            )

    def waiting(self) -> Removed:
        """Count what a cleanup would reclaim now."""
        now = self._moments.parameter()
        with self._access.reading_across(snapshot=True) as transaction:
            sessions = transaction.one(sql.COUNT_SESSIONS, now_us=now) or (0,)
            count, size = transaction.one(sql.COUNT_RESULTS, now_us=now) or (0, 0)
        return Removed(sessions=sessions[0], results=count, size_bytes=size)

    @even_on_a_full_disk
    def mark_cleaned(self) -> None:
        """Note that a cleanup ran to its end just now."""
        with self._access.writing_across() as transaction:
            transaction.execute(sql.MARK_CLEANED, now_us=self._moments.parameter())

    def cleaned_at_us(self) -> int | None:
        """When a cleanup last ran to its end."""
        with self._access.database.reading() as transaction:
            row = transaction.one(sql.CLEANED_AT)
        return None if row is None else row[0]

    @even_on_a_full_disk
    def _doom(self, statement: Statement, *, page: int, tenant_id: str | None = None) -> list[Doomed]:
        now = self._moments.parameter()
        only = {} if tenant_id is None else {"tenant_id": tenant_id}
        with self._writing(tenant_id) as transaction:
            rows = transaction.all(statement, page=page, now_us=now, **only)
            transaction.execute_many(sql.DOOM, [_doom_row(row, now) for row in rows])
        return [Doomed(Ids(*row[:3]), row[3], row[4], bool(row[5]), row[6]) for row in rows]

    def _writing(self, tenant_id: str | None, *, shred: bool = False) -> AbstractContextManager[Transaction]:
        if tenant_id is None:
            return self._access.writing_across(shred=shred)
        return self._access.writing(tenant_id, shred=shred)


def _give_back(transaction: Transaction, tenant_id: str, of_users: Mapping[str, Removed], of_tenant: Removed) -> None:
    # Last of all, users before their tenant: whoever holds a session may be waiting for these.
    in_turn = sorted(of_users.items())
    for user_id, removed in in_turn:
        transaction.later(
            sql.ADD_TO_RECEIPT,
            of_tenant=tenant_id,
            of_user=user_id,
            add_sessions=removed.sessions,
            add_results=removed.results,
            add_bytes=removed.size_bytes,
        )
    for owner_id, removed in (*in_turn, (tenant_id, of_tenant)):
        refund(
            transaction,
            tenant_id,
            owner_id,
            size_bytes=removed.size_bytes,
            results=removed.results,
            sessions=removed.sessions,
        )


def _doom_row(row: tuple[Any, ...], now: int) -> dict[str, Any]:
    return {"of_tenant": row[0], "of_session": row[2], "of_number": row[3], "lease_us": LEASE_US, "now_us": now}
