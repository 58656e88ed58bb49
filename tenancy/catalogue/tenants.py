"""From a tenant's name to its id, which everything else goes by."""

from collections import OrderedDict
from typing import Final

import sqlalchemy as sa

from stores.locks import ProcessLock
from stores.sql import Statement, Transaction
from tenancy.catalogue.access import Access
from tenancy.schema import TENANTS

#: Some 200 bytes each.
_REMEMBERED: Final = 10_000

_FIND: Final = Statement(
    sa.select(TENANTS.c.tenant_id).where(TENANTS.c.name == sa.bindparam("tenant"), TENANTS.c.state == "live")
)


class TenantTable:
    """
    Which tenant is called what.

    Ids are never given twice, so an id once found is remembered. It may have been erased since, by any process, and
    the name taken by a new tenant: whoever finds nothing under a remembered id calls `look_up` before believing it.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._lock = ProcessLock()

    def remembered(self, tenant: str) -> str | None:
        """Return the id that a name had when it was last looked up, without asking the database."""
        with self._lock:
            found = self._ids.get(tenant)
            if found is not None:
                self._ids.move_to_end(tenant)
        return found

    def look_up(self, tenant: str) -> str | None:
        """Return the id of the live tenant of this name, in one query, or `None`."""
        with self._access.reading_named(tenant) as transaction:
            found = find_tenant(transaction, tenant)
        with self._lock:
            if found is None:
                self._ids.pop(tenant, None)
            else:
                self._ids[tenant] = found
                if len(self._ids) > _REMEMBERED:
                    self._ids.popitem(last=False)
        return found


def find_tenant(transaction: Transaction, tenant: str) -> str | None:
    """Return the id of the live tenant of this name, inside a transaction that has named it."""
    row = transaction.one(_FIND, tenant=tenant)
    return None if row is None else str(row[0])
