"""
Erasing users and tenants in SQL: begin, resume, finish.

An erasure begins in one transaction that destroys the wrapped keys and ends every session. Whoever comes next, this
process or a cleanup, finds the owner in state `erasing` with its receipt and carries on.
"""

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from stores.names import mint_name
from stores.sql import Statement, Transaction
from tenancy.catalogue.access import Access
from tenancy.catalogue.counters import close_counters, remove_all_limits, remove_counters
from tenancy.catalogue.full_disk import even_on_a_full_disk
from tenancy.catalogue.receipts import HungOn, ReceiptTable, hung_on
from tenancy.catalogue.sessions import end_session
from tenancy.catalogue.tenants import find_tenant
from tenancy.schema import SESSIONS, TENANT_KEYS, TENANTS, USERS


@dataclass(frozen=True, slots=True)
class Erasing:
    """An erasure under way: of a user, or of a whole tenant when `user_id` is `None`."""

    tenant_id: str
    user_id: str | None
    receipt_id: str


_tenant_id: Final = sa.bindparam("tenant_id", type_=sa.String)
_user_id: Final = sa.bindparam("user_id", type_=sa.String)
_FIND_USERS: Final = Statement(
    sa.select(USERS.c.tenant_id, USERS.c.user_id, USERS.c.state, USERS.c.receipt_id)
    .select_from(USERS.join(TENANTS, TENANTS.c.tenant_id == USERS.c.tenant_id))
    .where(USERS.c.tenant_id == _tenant_id, TENANTS.c.state == "live", USERS.c.name == sa.bindparam("user"))
    .order_by(USERS.c.state, USERS.c.user_id)
    # Of two that begin at once the second waits here, and then finds the first one's receipt.
    .with_for_update(of=USERS, key_share=True)
)
_FIND_TENANTS: Final = Statement(
    sa.select(TENANTS.c.tenant_id, TENANTS.c.state, TENANTS.c.receipt_id)
    .where(TENANTS.c.name == sa.bindparam("tenant"))
    .order_by(TENANTS.c.state, TENANTS.c.tenant_id)
    .with_for_update(key_share=True)
)
# In the text of the statement, so that every plan of it may use the partial indexes of what is being erased.
_ERASING: Final = sa.literal_column("'erasing'", sa.String)
_UNFINISHED_USERS: Final = Statement(
    sa.select(USERS.c.tenant_id, USERS.c.user_id, USERS.c.receipt_id)
    .select_from(USERS.join(TENANTS, TENANTS.c.tenant_id == USERS.c.tenant_id))
    .where(USERS.c.state == _ERASING, TENANTS.c.state == "live")
)
_UNFINISHED_TENANTS: Final = Statement(
    sa.select(TENANTS.c.tenant_id, TENANTS.c.receipt_id).where(TENANTS.c.state == _ERASING)
)
_of_user = (USERS.c.tenant_id == _tenant_id, USERS.c.user_id == _user_id)
_of_tenant = TENANTS.c.tenant_id == _tenant_id
_MARK_USER: Final = Statement(
    USERS.update()
    .where(*_of_user, USERS.c.state == "live")
    .values(state="erasing", receipt_id=sa.bindparam("new_receipt_id"))
)
_MARK_TENANT: Final = Statement(
    TENANTS.update()
    .where(_of_tenant, TENANTS.c.state == "live")
    .values(state="erasing", receipt_id=sa.bindparam("new_receipt_id"))
)
_MARK_USERS_OF_TENANT: Final = Statement(
    # A user whose own erasure was interrupted keeps the receipt that it resumes under.
    USERS.update()
    .where(USERS.c.tenant_id == _tenant_id, USERS.c.state == "live")
    .values(state="erasing", receipt_id=sa.bindparam("new_receipt_id"))
)
_LIVE_OF_USER: Final = Statement(
    sa.select(SESSIONS.c.session_id)
    .where(SESSIONS.c.tenant_id == _tenant_id, SESSIONS.c.user_id == _user_id, SESSIONS.c.state == "live")
    .order_by(SESSIONS.c.session_id)
)
_LIVE_OF_TENANT: Final = Statement(
    sa.select(SESSIONS.c.session_id)
    .where(SESSIONS.c.tenant_id == _tenant_id, SESSIONS.c.state == "live")
    .order_by(SESSIONS.c.session_id)
)
_USERS_OF_TENANT: Final = Statement(
    sa.select(USERS.c.user_id, USERS.c.receipt_id).where(USERS.c.tenant_id == _tenant_id).order_by(USERS.c.user_id)
)
_DROP_TENANT_KEYS: Final = Statement(TENANT_KEYS.delete().where(TENANT_KEYS.c.tenant_id == _tenant_id))
_DELETE_USER: Final = Statement(
    USERS.delete().where(*_of_user, USERS.c.state == "erasing").returning(USERS.c.receipt_id)
)
_DELETE_TENANT: Final = Statement(TENANTS.delete().where(_of_tenant, TENANTS.c.state == "erasing"))


class ErasureTable:
    """Erasures. Each method is one transaction or one query."""

    def __init__(self, access: Access, receipts: ReceiptTable) -> None:
        self._access = access
        self._receipts = receipts

    @even_on_a_full_disk
    def begin_user(self, *, tenant: str, user: str) -> list[Erasing]:
        """
        End every session of a user and destroy its keys, and open a receipt; or find an erasure that was interrupted.

        :returns: The erasures to carry out; none if there is no such user.
        """
        with self._access.writing_named(tenant, shred=True) as transaction:
            tenant_id = find_tenant(transaction, tenant)
            if tenant_id is None:
                return []
            self._access.enter(transaction, tenant_id)
            rows = transaction.all(_FIND_USERS, tenant_id=tenant_id, user=user)
            return [self._begin_user(transaction, *row) for row in rows]

    def _begin_user(
        self, transaction: Transaction, tenant_id: str, user_id: str, state: str, receipt_id: str | None
    ) -> Erasing:
        if state == "erasing" and receipt_id is not None:
            return Erasing(tenant_id, user_id, receipt_id)
        receipt_id = mint_name()
        self._access.mark_shredding(transaction)
        keys, hung = self._end_all(transaction, tenant_id, user_id)
        # From here on no session of this user can be created either: its counters refuse the charge. One that came
        # between the query above and this lock is left to `end_rest`: a session is never locked after its owners.
        close_counters(transaction, tenant_id, user_id)
        transaction.execute(_MARK_USER, tenant_id=tenant_id, user_id=user_id, new_receipt_id=receipt_id)
        self._receipts.open(transaction, tenant_id, receipt_id, level="user", keys=keys, hung=hung)
        return Erasing(tenant_id, user_id, receipt_id)

    @even_on_a_full_disk
    def begin_tenant(self, *, tenant: str) -> list[Erasing]:
        """
        Destroy a tenant's keys and end all its sessions, and open a receipt; or find an interrupted erasure.

        :returns: The erasures to carry out; none if there is no such tenant.
        """
        with self._access.writing_named(tenant, shred=True) as transaction:
            rows = transaction.all(_FIND_TENANTS, tenant=tenant)
            return [self._begin_tenant(transaction, *row) for row in rows]

    def _begin_tenant(self, transaction: Transaction, tenant_id: str, state: str, receipt_id: str | None) -> Erasing:
        if state == "erasing" and receipt_id is not None:
            return Erasing(tenant_id, None, receipt_id)
        self._access.enter(transaction, tenant_id)
        receipt_id = mint_name()
        # Users before sessions, which is the order in which the erasure of one user locks them.
        transaction.execute(_MARK_USERS_OF_TENANT, tenant_id=tenant_id, new_receipt_id=receipt_id)
        self._access.mark_shredding(transaction)
        keys, hung = self._end_all(transaction, tenant_id)
        # Keys before counters: whoever creates a session holds the tenant's key while it charges the owners.
        keys += transaction.execute(_DROP_TENANT_KEYS, tenant_id=tenant_id)
        for user_id, _ in transaction.all(_USERS_OF_TENANT, tenant_id=tenant_id):
            close_counters(transaction, tenant_id, user_id)
        # As with a user: who came meanwhile is left to `end_rest`, and unreadable without the tenant's keys.
        close_counters(transaction, tenant_id, tenant_id)
        transaction.execute(_MARK_TENANT, tenant_id=tenant_id, new_receipt_id=receipt_id)
        self._receipts.open(transaction, tenant_id, receipt_id, level="tenant", keys=keys, hung=hung)
        return Erasing(tenant_id, None, receipt_id)

    @even_on_a_full_disk
    def end_rest(self, erasing: Erasing) -> None:
        """
        End the sessions that were created while an erasure began. None can be created after it has begun.

        A transaction of its own: the one that begins ends with the locks of user and tenant, and whoever holds a
        session may be waiting for those.
        """
        tenant_id, user_id, receipt_id = erasing.tenant_id, erasing.user_id, erasing.receipt_id
        with self._access.writing(tenant_id, shred=True) as transaction:
            if user_id is None:
                transaction.execute(_MARK_USERS_OF_TENANT, tenant_id=tenant_id, new_receipt_id=receipt_id)
            keys, hung = self._end_all(transaction, tenant_id, user_id)
            if keys:
                self._access.mark_shredding(transaction)
                self._receipts.count_keys(transaction, tenant_id, receipt_id, keys=keys, hung=hung)

    def _end_all(self, transaction: Transaction, tenant_id: str, user_id: str | None = None) -> tuple[int, set[HungOn]]:
        live = (
            transaction.all(_LIVE_OF_TENANT, tenant_id=tenant_id)
            if user_id is None
            else transaction.all(_LIVE_OF_USER, tenant_id=tenant_id, user_id=user_id)
        )
        # A tenant's keys go too, whatever hangs on them.
        hung = set(hung_on(transaction, tenant_id)) if user_id is None else set()
        keys = 0
        for (session_id,) in live:
            if user_id is not None:
                hung.update(hung_on(transaction, tenant_id, session_id=session_id))
            keys += end_session(transaction, tenant_id, session_id)
        return keys, hung

    def unfinished(self) -> list[Erasing]:
        """Return the erasures of all tenants that were begun and not finished, by whomever."""
        with self._access.reading_across() as transaction:
            tenants = [Erasing(row[0], None, row[1]) for row in transaction.all(_UNFINISHED_TENANTS)]
            return tenants + [Erasing(*row) for row in transaction.all(_UNFINISHED_USERS)]

    @even_on_a_full_disk
    def finish(self, erasing: Erasing) -> None:
        """
        Remove the last rows of an erased owner and close its receipt. Its sessions must be gone.

        :raises Conflict: If a session is left after all. Nothing was changed.
        """
        tenant_id = erasing.tenant_id
        with self._access.writing(tenant_id, shred=True) as transaction:
            users = (
                [erasing.user_id]
                if erasing.user_id is not None
                else [row[0] for row in transaction.all(_USERS_OF_TENANT, tenant_id=tenant_id)]
            )
            self._access.mark_shredding(transaction)
            # Each user counts on the receipt of its own erasure: usually this one.
            counted = {erasing.receipt_id: 0}
            for user_id in users:
                row = transaction.one(_DELETE_USER, tenant_id=tenant_id, user_id=user_id)
                if row is not None:
                    counted[row[0]] = counted.get(row[0], 0) + 1
                remove_counters(transaction, tenant_id, user_id)
            if erasing.user_id is None:
                remove_counters(transaction, tenant_id, tenant_id)
                remove_all_limits(transaction, tenant_id)
                transaction.execute(_DELETE_TENANT, tenant_id=tenant_id)
            for receipt_id, count in counted.items():
                self._receipts.close(transaction, tenant_id, receipt_id, users=count)
