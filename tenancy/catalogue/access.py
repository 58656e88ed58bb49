"""
Whose rows a transaction of the catalogue may touch.

On PostgreSQL row-level security holds each transaction to what it has named: a tenant by its id, or, to find that id,
by its name. A transaction that has named nothing sees no tenant's rows at all. SQLite has no such wall; there every
statement's own predicates are the only one.
"""

from contextlib import AbstractContextManager
from typing import Final

import sqlalchemy as sa

from stores.database import OUTER_SETTING
from stores.names import mint_name
from stores.sql import Database, Statement, Transaction
from stores.transactions import LocalSettings
from tenancy.errors import ConfigurationError
from tenancy.isolation import TENANT_ID_SETTING, TENANT_NAME_SETTING
from tenancy.schema import CATALOGUE

_NO_MAINTENANCE: Final = (
    "This works on all tenants, which only the maintenance role may; set maintenance_url (`tenancy init` makes the "
    "role)."
)

_MARK: Final = Statement(CATALOGUE.update().values(shredding_id=sa.bindparam("shredding_id")))
_READ_MARK: Final = Statement(sa.select(CATALOGUE.c.shredding_id))
_UNMARK: Final = Statement(
    CATALOGUE.update().where(CATALOGUE.c.shredding_id == sa.bindparam("shredding_id")).values(shredding_id=sa.null())
)


class Access:
    """
    Transactions that name whom they work for.

    :param across: Whether this role may work on all tenants at once: the maintenance role, or SQLite.
    """

    def __init__(self, database: Database, *, across: bool) -> None:
        self.database = database
        self._across = across

    def reading(self, tenant_id: str, *, snapshot: bool = False) -> AbstractContextManager[Transaction]:
        """Run queries on one tenant's rows. See `Database.reading`."""
        return self.database.reading(local=_of_tenant(tenant_id), snapshot=snapshot)

    def writing(
        self, tenant_id: str, *, patience_seconds: float | None = None, shred: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Run a transaction on one tenant's rows. See `Database.writing`."""
        return self.database.writing(local=_of_tenant(tenant_id), patience_seconds=patience_seconds, shred=shred)

    def reading_named(self, tenant: str, *, snapshot: bool = False) -> AbstractContextManager[Transaction]:
        """Run queries that find a tenant by its name. Nothing else is in reach until `enter`."""
        return self.database.reading(local={TENANT_NAME_SETTING: tenant}, snapshot=snapshot)

    def writing_named(self, tenant: str, *, shred: bool = False) -> AbstractContextManager[Transaction]:
        """Run a transaction that finds a tenant by its name. Nothing else is in reach until `enter`."""
        return self.database.writing(local={TENANT_NAME_SETTING: tenant}, shred=shred)

    def enter(self, transaction: Transaction, tenant_id: str) -> None:
        """Bring the rows of a tenant that was found into the reach of the transaction that found it."""
        transaction.set_local(_of_tenant(tenant_id))

    def reading_across(self, *, snapshot: bool = False) -> AbstractContextManager[Transaction]:
        """
        Run queries on the rows of all tenants.

        :raises ConfigurationError: If this role may not.
        """
        self.require_across()
        return self.database.reading(snapshot=snapshot)

    def writing_across(self, *, snapshot: bool = False, shred: bool = False) -> AbstractContextManager[Transaction]:
        """
        Run a transaction on the rows of all tenants.

        :raises ConfigurationError: If this role may not.
        """
        self.require_across()
        return self.database.writing(snapshot=snapshot, shred=shred)

    def mark_shredding(self, transaction: Transaction) -> None:
        """
        Note that a transaction overwrites pages, so that SQLite's log is cut after it, by whomever. See `shredding_id`.

        In that transaction itself: whoever carries out an erasure may die before the cut.
        """
        if self.database.is_sqlite:
            transaction.execute(_MARK, shredding_id=mint_name())

    def shredding_id(self) -> str | None:
        """Return the mark of the newest transaction after which the log was not cut yet. PostgreSQL has none."""
        with self.database.reading() as transaction:
            row = transaction.one(_READ_MARK)
        return None if row is None else row[0]

    def unmark_shredding(self, shredding_id: str) -> None:
        """Note that the log was cut after this mark was read. A newer one stays."""
        with self.database.writing() as transaction:
            transaction.execute(_UNMARK, shredding_id=shredding_id)

    def require_across(self) -> None:
        """Refuse what works on all tenants where this role may not, with a `ConfigurationError`."""
        if not self._across:
            raise ConfigurationError(_NO_MAINTENANCE)


def _of_tenant(tenant_id: str) -> LocalSettings:
    # The id is also the outer name of the tenant's rooms in the table of blobs.
    return {TENANT_ID_SETTING: tenant_id, OUTER_SETTING: tenant_id}
