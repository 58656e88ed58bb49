"""The receipts of erasures, which outlive whatever they speak of; and what the keys had hung on that are gone."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from stores.names import is_name
from stores.sql import Statement, Transaction
from tenancy.catalogue.access import Access
from tenancy.catalogue.moments import Moments, now_us
from tenancy.schema import RECEIPTS, SESSION_KEYS, TENANT_KEYS


@dataclass(frozen=True, slots=True, order=True)
class HungOn:
    """
    What a wrapped key that was destroyed had hung on: a tenant's key, and what that was wrapped by then or later.

    :param version: Of the tenant's key.
    :param is_later: Whether the tenant's key went there after the erasure. A copy of that time opens one of before.
    """

    provider: str
    key_id: str
    version: int
    is_later: bool = False


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """
    A receipt as it stands. Moments in microseconds since 1970.

    :param hung_on: Of all keys that were destroyed; empty if that was before anybody wrote it down.
    """

    tenant_id: str
    receipt_id: str
    level: str
    started_at_us: int
    finished_at_us: int | None
    users: int
    sessions: int
    results: int
    size_bytes: int
    keys_destroyed: int
    hung_on: tuple[HungOn, ...]


_tenant_id: Final = sa.bindparam("tenant_id", type_=sa.String)
_OPEN: Final = Statement(
    RECEIPTS.insert().values(
        tenant_id=_tenant_id,
        receipt_id=sa.bindparam("new_receipt_id"),
        level=sa.bindparam("level"),
        started_at_us=now_us(),
        users=0,
        sessions=0,
        results=0,
        size_bytes=0,
        keys_destroyed=sa.bindparam("keys"),
        key_ids=sa.bindparam("key_ids"),
    )
)
_of_receipt = (RECEIPTS.c.tenant_id == _tenant_id, RECEIPTS.c.receipt_id == sa.bindparam("old_receipt_id"))
_COUNT_KEYS: Final = Statement(
    RECEIPTS.update()
    .where(*_of_receipt)
    .values(
        keys_destroyed=RECEIPTS.c.keys_destroyed + sa.bindparam("keys", type_=sa.BigInteger),
        key_ids=sa.bindparam("key_ids"),
    )
)
_CLOSE: Final = Statement(
    RECEIPTS.update()
    .where(*_of_receipt, RECEIPTS.c.finished_at_us.is_(None))
    .values(finished_at_us=now_us(), users=RECEIPTS.c.users + sa.bindparam("add_users", type_=sa.BigInteger))
)
_columns = sa.select(
    RECEIPTS.c.tenant_id,
    RECEIPTS.c.receipt_id,
    RECEIPTS.c.level,
    RECEIPTS.c.started_at_us,
    RECEIPTS.c.finished_at_us,
    RECEIPTS.c.users,
    RECEIPTS.c.sessions,
    RECEIPTS.c.results,
    RECEIPTS.c.size_bytes,
    RECEIPTS.c.keys_destroyed,
    RECEIPTS.c.key_ids,
)
_READ: Final = Statement(_columns.where(*_of_receipt))
_FIND: Final = Statement(_columns.where(RECEIPTS.c.receipt_id == sa.bindparam("old_receipt_id")))
_hung_on = sa.select(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id, TENANT_KEYS.c.version).distinct()
_HUNG_ON: Final = Statement(_hung_on.where(TENANT_KEYS.c.tenant_id == _tenant_id))
_HUNG_ON_OF_SESSION: Final = Statement(
    _hung_on.select_from(
        TENANT_KEYS.join(
            SESSION_KEYS,
            sa.and_(
                SESSION_KEYS.c.tenant_id == TENANT_KEYS.c.tenant_id,
                SESSION_KEYS.c.tenant_key_version == TENANT_KEYS.c.version,
            ),
        )
    ).where(TENANT_KEYS.c.tenant_id == _tenant_id, SESSION_KEYS.c.session_id == sa.bindparam("session_id"))
)


_OF_TENANT: Final = Statement(
    sa.select(RECEIPTS.c.receipt_id, RECEIPTS.c.key_ids)
    .where(RECEIPTS.c.tenant_id == _tenant_id, RECEIPTS.c.key_ids.is_not(None))
    .order_by(RECEIPTS.c.receipt_id)
    .with_for_update(key_share=True)
)
_SET_KEYS: Final = Statement(RECEIPTS.update().where(*_of_receipt).values(key_ids=sa.bindparam("key_ids")))


def hung_on(transaction: Transaction, tenant_id: str, *, session_id: str | None = None) -> list[HungOn]:
    """Return what the keys of a session, or of all of a tenant, hang on now."""
    if session_id is None:
        rows = transaction.all(_HUNG_ON, tenant_id=tenant_id)
    else:
        rows = transaction.all(_HUNG_ON_OF_SESSION, tenant_id=tenant_id, session_id=session_id)
    return sorted(HungOn(*row) for row in rows)


def add_hold(transaction: Transaction, tenant_id: str, hold: HungOn) -> None:
    """
    Note that a tenant's key is under another key-encryption key from now on: in a copy of before an erasure, that key
    and a later copy of the tenant's open what was erased as well. Of each receipt that names this version.
    """
    for receipt_id, written in transaction.all(_OF_TENANT, tenant_id=tenant_id):
        known = _read(written)
        if hold.version in {one.version for one in known}:
            transaction.execute(
                _SET_KEYS, tenant_id=tenant_id, old_receipt_id=receipt_id, key_ids=_written([*known, hold])
            )


class ReceiptTable:
    """Receipts. What changes one is a step of a transaction of the caller's."""

    def __init__(self, access: Access, moments: Moments) -> None:
        self._access = access
        self._moments = moments

    def open(
        self,
        transaction: Transaction,
        tenant_id: str,
        receipt_id: str,
        *,
        level: str,
        keys: int,
        hung: Iterable[HungOn],
    ) -> None:
        """Begin a receipt: so many keys are destroyed, and nothing else is gone yet."""
        transaction.execute(
            _OPEN,
            tenant_id=tenant_id,
            new_receipt_id=receipt_id,
            level=level,
            keys=keys,
            key_ids=_written(hung),
            now_us=self._moments.parameter(),
        )

    def count_keys(
        self, transaction: Transaction, tenant_id: str, receipt_id: str, *, keys: int, hung: Iterable[HungOn]
    ) -> None:
        """Add keys that were destroyed later."""
        row = transaction.one(_READ, tenant_id=tenant_id, old_receipt_id=receipt_id)
        known = () if row is None else _read(row[-1])
        transaction.execute(
            _COUNT_KEYS, tenant_id=tenant_id, old_receipt_id=receipt_id, keys=keys, key_ids=_written([*known, *hung])
        )

    def close(self, transaction: Transaction, tenant_id: str, receipt_id: str, *, users: int) -> None:
        """End a receipt. One that has ended stays as it is."""
        transaction.execute(
            _CLOSE,
            tenant_id=tenant_id,
            old_receipt_id=receipt_id,
            add_users=users,
            now_us=self._moments.parameter(),
        )

    def read(self, tenant_id: str, receipt_id: str) -> ReceiptRow:
        """Return the receipt of an erasure as it stands."""
        with self._access.reading(tenant_id) as transaction:
            row = transaction.one(_READ, tenant_id=tenant_id, old_receipt_id=receipt_id)
        if row is None:
            raise LookupError("The receipt of this erasure is missing.")
        return _receipt(row)

    def find(self, receipt_id: str) -> tuple[ReceiptRow, frozenset[int]] | None:
        """
        Return a receipt of any tenant's by its id, and which versions that tenant's key still has.

        :raises ConfigurationError: If this role may not work on all tenants.
        """
        with self._access.reading_across(snapshot=True) as transaction:
            row = transaction.one(_FIND, old_receipt_id=receipt_id) if is_name(receipt_id) else None
            if row is None:
                return None
            versions = frozenset(one.version for one in hung_on(transaction, row[0]))
        return _receipt(row), versions


def _receipt(row: tuple[Any, ...]) -> ReceiptRow:
    return ReceiptRow(*(*row[:-1], _read(row[-1])))


# A list of [provider, key id, version of the tenant's key], with a fourth value, true, if it went there later.
def _written(hung: Iterable[HungOn]) -> str:
    return json.dumps([[one.provider, one.key_id, one.version] + [True] * one.is_later for one in sorted(set(hung))])


def _read(written: str | None) -> tuple[HungOn, ...]:
    return tuple(HungOn(*one) for one in json.loads(written or "[]"))
