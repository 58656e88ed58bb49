"""
The catalogue: tenants, users, sessions, results, counters and wrapped keys in SQL.

Nothing else holds SQL on them.
"""

from stores.sql import Database
from tenancy.catalogue.access import Access
from tenancy.catalogue.administration import AdministrationTable
from tenancy.catalogue.audit import AuditTable
from tenancy.catalogue.erasure import ErasureTable
from tenancy.catalogue.identity import IdentityTable
from tenancy.catalogue.moments import Moments
from tenancy.catalogue.receipts import ReceiptTable
from tenancy.catalogue.reclaim import ReclaimTable
from tenancy.catalogue.results import ResultTable
from tenancy.catalogue.rotation import RotationTable
from tenancy.catalogue.sessions import SessionTable
from tenancy.clock import Clock
from tenancy.quotas import Limits


class Catalogue:
    """
    All of it, on one database, as one role.

    :param defaults: The manager's own limits, complete.
    :param across: Whether this role may work on all tenants at once. Always so on SQLite, which knows no roles.
    """

    def __init__(self, database: Database, *, clock: Clock, defaults: Limits, across: bool = False) -> None:
        moments = Moments(database, clock)
        access = Access(database, across=across or database.is_sqlite)
        self.database = database
        self.access = access
        self.defaults = defaults
        self.identity = IdentityTable(database, moments)
        self.sessions = SessionTable(access, moments, defaults)
        self.results = ResultTable(access, moments, defaults)
        self.administration = AdministrationTable(access, moments, defaults)
        self.reclaim = ReclaimTable(access, moments)
        self.receipts = ReceiptTable(access, moments)
        self.erasure = ErasureTable(access, self.receipts)
        self.rotation = RotationTable(access, moments)
        self.audit = AuditTable(access, moments)


__all__ = ["Catalogue"]
