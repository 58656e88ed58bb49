"""
Results in SQL: the state machine `pending -> committed -> deleting -> gone`.

Locks are taken in one order everywhere: the session's counters, the user's, the tenant's last and just before commit.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from stores.errors import StoreError, StoreUnavailable
from stores.sql import Transaction
from tenancy.catalogue import result_statements as sql
from tenancy.catalogue.access import Access
from tenancy.catalogue.charges import Charge, NotCharged, charge_last, charge_together, charges_of_result, refusal
from tenancy.catalogue.counters import from_column, known, refund, to_column
from tenancy.catalogue.full_disk import even_on_a_full_disk
from tenancy.catalogue.moments import Moments
from tenancy.catalogue.result_rows import Doomed, Found, Inserted, Listed, NewResult, stored_result
from tenancy.catalogue.sessions import Ids
from tenancy.errors import ResultTooLarge, SessionNotFound
from tenancy.quotas import Limits
from tenancy.references import Reference, reference_hash

#: How long a pending write is left alone by cleanup.
LEASE_US: Final = 120 * 1_000_000


#: How often room may be freed between a charge that was refused and the look at why; once is rare.
_ATTEMPTS: Final = 20
#: Larger than any number in a reference: where a listing begins.
_FIRST: Final = 2**62


class KeysRotated(Exception):
    """The session has a newer key than the caller knows. It never leaves `tenancy`: the write is made again."""


class ResultTable:
    """
    The rows of results. Each method is one transaction or one query.

    :param defaults: The manager's own limits, complete.
    """

    def __init__(self, access: Access, moments: Moments, defaults: Limits) -> None:
        self._access = access
        self._moments = moments
        self._defaults = {f"default_{field}": to_column(known(getattr(defaults, field))) for field in sql.WRITE_LIMITS}

    def admit(self, ids: Ids, *, key_version: int, size_bytes: int) -> None:
        """
        Refuse early, before anything is sealed, what a write of this size would be refused for anyhow.

        :raises SessionNotFound: If the session has ended.
        :raises KeysRotated: If it has a newer key.
        :raises ResultTooLarge: If one result may not be that large.
        """
        with self._access.reading(ids.tenant_id) as transaction:
            self._admitted(transaction, ids, key_version=key_version, size_bytes=size_bytes)

    def insert(self, new: NewResult, *, put: Callable[[Transaction], None] | None = None) -> Inserted:
        """
        Give a result its row, its number and its charge in one transaction.

        :param put: Writes the bytes inside the same transaction; the row then is committed at once. Without it the
            row is pending, under a lease, until `commit`.
        :returns: The reference, and whether the idle expiry should be moved.
        :raises SessionNotFound: If the session has ended. As with every error, nothing was written or charged.
        :raises KeysRotated: If it has a newer key than the one the result was sealed with.
        :raises ResultTooLarge: If one result may not be that large.
        :raises QuotaExceeded: If the session, the user or the tenant may not have that much.
        :raises StoreFull: If the disk is full, or was and its reserve cannot be made again.
        """
        self._access.database.require_room()
        for _ in range(_ATTEMPTS):
            inserted: Inserted | None = None
            last: tuple[Charge, ...] = ()
            try:
                with self._access.writing(new.ids.tenant_id) as transaction:
                    inserted, last = self._insert(transaction, new, put)
                    charge_last(transaction, new.ids.tenant_id, *last)
            except NotCharged:
                if last:
                    with self._access.reading(new.ids.tenant_id) as transaction:
                        reason = refusal(transaction, new.ids.tenant_id, *last)
                    if reason is not None:
                        raise reason from None
                # Somebody has freed room since, and it may be enough.
                continue
            except StoreUnavailable:
                # The commit may have gone through and only its answer been lost. An error would then be a lie: the
                # result stands there, is charged, and nobody knows its reference.
                if inserted is None or not self._is_there(new, inserted.reference.number):
                    raise
            return inserted
        raise StoreUnavailable("The result could not be charged: what is in use kept changing at the same time.")

    def _insert(
        self, transaction: Transaction, new: NewResult, put: Callable[[Transaction], None] | None
    ) -> tuple[Inserted, tuple[Charge, ...]]:
        """Do all but the charges that other sessions wait for, and return those."""
        ids, envelope = new.ids, new.envelope
        touch_due, number, last = self._admit_and_charge(transaction, new)
        reference = new.reference(number)
        transaction.later(
            sql.INSERT,
            tenant_id=ids.tenant_id,
            session_id=ids.session_id,
            number=number,
            result_id=new.result_id,
            reference_hash=reference_hash(reference, session_id=ids.session_id),
            state="committed" if put else "pending",
            inline=int(new.inline),
            lease_us=None if put else LEASE_US,
            now_us=self._moments.parameter(),
            **{column: getattr(envelope, column) for column in sql.ENVELOPE_COLUMNS},
        )
        if put:
            put(transaction)
        return Inserted(reference, touch_due), last

    def _admit_and_charge(self, transaction: Transaction, new: NewResult) -> tuple[bool, int, tuple[Charge, ...]]:
        """Return whether the idle expiry should be moved, the new result's number, and what is left to charge."""
        ids, size, key_version = new.ids, new.envelope.size_bytes, new.envelope.key_version
        if self._access.database.is_sqlite:
            limits, touch_due = self._admitted(transaction, ids, key_version=key_version, size_bytes=size)
            # Whoever writes here has the whole database to himself: there is nobody to keep waiting.
            return touch_due, charge_together(transaction, ids.tenant_id, *_charges(limits, ids, size)), ()
        row = transaction.one(
            sql.ADMIT_AND_CHARGE,
            owner_id=ids.session_id,
            add_bytes=size,
            add_results=1,
            now_us=self._moments.parameter(),
            **_scope(ids),
            **self._defaults,
        )
        limits, touch_due = _judged(row, key_version=key_version, size_bytes=size)
        of_session, *last = _charges(limits, ids, size)
        if row is None or row[-1] is None:
            raise refusal(transaction, ids.tenant_id, of_session) or NotCharged
        return touch_due, row[-1], tuple(last)

    def _is_there(self, new: NewResult, number: int) -> bool:
        row = {"tenant_id": new.ids.tenant_id, "session_id": new.ids.session_id, "number": number}
        with contextlib.suppress(StoreError), self._access.reading(new.ids.tenant_id) as transaction:
            return transaction.one(sql.STATE, result_id=new.result_id, **row) is not None
        return False

    def commit(self, new: NewResult, number: int) -> None:
        """
        Make a pending result readable. The commit point of a write: before it nobody sees the result.

        :raises SessionNotFound: If the session ended or the lease ran out meanwhile. The row is still pending.
        """
        with self._access.writing(new.ids.tenant_id) as transaction:
            row = {"number": number, "result_id": new.result_id, "now_us": self._moments.parameter()}
            if not transaction.finish((sql.COMMIT, {**row, **_scope(new.ids)})):
                raise SessionNotFound("The session ended, or the write took too long, before the result was complete.")

    @even_on_a_full_disk
    def abandon(self, new: NewResult, number: int) -> bool:
        """
        Give a write up, unless it was committed after all, which a lost connection may have hidden from us.

        :returns: Whether it is given up. `False`: it is committed, and its bytes must stay.
        """
        row = {"tenant_id": new.ids.tenant_id, "session_id": new.ids.session_id, "number": number}
        with self._access.writing(new.ids.tenant_id) as transaction:
            if transaction.execute(sql.ABANDON, result_id=new.result_id, **row) == 1:
                return True
            state = transaction.one(sql.STATE, result_id=new.result_id, **row)
        return state is None or state[0] != "committed"

    def forget(self, new: NewResult, number: int) -> None:
        """Remove the row of a write that was given up and whose bytes are gone, and refund it."""
        self.remove(Doomed(new.ids, number, new.result_id, new.inline, new.envelope.size_bytes))

    def renew(self, new: NewResult, number: int) -> None:
        """Extend the lease of a write that is still at work."""
        with self._access.writing(new.ids.tenant_id) as transaction:
            transaction.later(
                sql.RENEW,
                tenant_id=new.ids.tenant_id,
                session_id=new.ids.session_id,
                number=number,
                lease_us=LEASE_US,
                now_us=self._moments.parameter(),
            )

    def find(self, ids: Ids, reference: Reference, *, body_up_to: int = 0) -> Found:
        """
        Look one reference up, in one query whatever the answer.

        :param body_up_to: Of an inline result of at most so many sealed bytes the body comes along.
        :raises SessionNotFound: If the session has ended.
        """
        with self._access.reading(ids.tenant_id) as transaction:
            row = transaction.one(
                sql.FIND,
                tenant_id=ids.tenant_id,
                session_id=ids.session_id,
                user_id=ids.user_id,
                number=reference.number,
                reference_hash=reference_hash(reference, session_id=ids.session_id),
                now_us=self._moments.parameter(),
                body_up_to=body_up_to,
            )
        if row is None:
            raise SessionNotFound
        # SQLite keeps whatever it is given: what is not bytes is for the store to refuse.
        body = row[1] if isinstance(row[1], bytes) else None
        return Found(result=stored_result(row[2:]), touch_due=bool(row[0]), body=body)

    def list(self, ids: Ids, *, before: int | None, page: int) -> Listed:
        """
        Return up to `page` readable results, newest first.

        :param before: Only results with a smaller number: the last one of the page before; `None` begins.
        :raises SessionNotFound: If the session has ended.
        """
        with self._access.reading(ids.tenant_id) as transaction:
            rows = transaction.all(
                sql.LIST,
                before=_FIRST if before is None else before,
                page=page,
                now_us=self._moments.parameter(),
                **_scope(ids),
            )
        if not rows:
            raise SessionNotFound
        results = [stored for row in rows if (stored := stored_result(row[1:])) is not None]
        return Listed(results, touch_due=bool(rows[0][0]))

    @even_on_a_full_disk
    def doom(self, ids: Ids, reference: Reference, *, drop: Callable[[Transaction, str], None]) -> Doomed | None:
        """
        Begin to delete a result: its header and card are overwritten, so nobody can read it any more.

        :param drop: Removes the bytes of an inline result in the same transaction; its row then goes with them.
        :returns: What is left to remove, or `None` if there is no such result.
        """
        with self._access.writing(ids.tenant_id) as transaction:
            row = transaction.one(
                sql.DOOM,
                number=reference.number,
                reference_hash=reference_hash(reference, session_id=ids.session_id),
                lease_us=LEASE_US,
                now_us=self._moments.parameter(),
                **_scope(ids),
            )
            if row is None:
                return None
            doomed = Doomed(ids, reference.number, row[0], bool(row[1]), row[2])
            if doomed.inline:
                drop(transaction, doomed.result_id)
                remove_row(transaction, doomed)
        return doomed

    @even_on_a_full_disk
    def remove(self, doomed: Doomed) -> bool:
        """
        Remove the row of a pending or deleting result whose bytes are gone, and refund it.

        :returns: Whether this call did it; `False` if somebody else had.
        """
        with self._access.writing(doomed.ids.tenant_id) as transaction:
            return remove_row(transaction, doomed)

    def _admitted(
        self, transaction: Transaction, ids: Ids, *, key_version: int, size_bytes: int
    ) -> tuple[dict[str, Any], bool]:
        row = transaction.one(sql.ADMIT, now_us=self._moments.parameter(), **_scope(ids), **self._defaults)
        return _judged(row, key_version=key_version, size_bytes=size_bytes)


def _judged(row: tuple[Any, ...] | None, *, key_version: int, size_bytes: int) -> tuple[dict[str, Any], bool]:
    # Without a key it is being ended.
    if row is None or row[0] is None:
        raise SessionNotFound
    if row[0] != key_version:
        raise KeysRotated
    limits = {field: from_column(value) for field, value in zip(sql.WRITE_LIMITS, row[2:9], strict=True)}
    largest = limits["max_result_bytes"]
    if largest is not None and size_bytes > largest:
        raise ResultTooLarge(limit_bytes=largest, requested_bytes=size_bytes)
    return limits, bool(row[1])


def remove_row(transaction: Transaction, doomed: Doomed) -> bool:
    """Delete an unfinished result's row and refund it, tied to whether this DELETE found the row."""
    ids = doomed.ids
    removed = transaction.execute(
        sql.REMOVE,
        tenant_id=ids.tenant_id,
        session_id=ids.session_id,
        number=doomed.number,
        result_id=doomed.result_id,
    )
    if removed != 1:
        return False
    for owner_id in (ids.session_id, ids.user_id, ids.tenant_id):
        refund(transaction, ids.tenant_id, owner_id, size_bytes=doomed.size_bytes, results=1)
    return True


def _charges(limits: Mapping[str, Any], ids: Ids, size_bytes: int) -> tuple[Charge, Charge, Charge]:
    return charges_of_result(limits, ids.session_id, ids.user_id, ids.tenant_id, size_bytes=size_bytes)


def _scope(ids: Ids) -> dict[str, str]:
    return {"tenant_id": ids.tenant_id, "session_id": ids.session_id, "user_id": ids.user_id}
