"""
The catalogue: tenants, users, sessions, results, counters and wrapped keys in SQL.

Nothing else holds SQL on them.
"""

from stores.sql import Database
from tenancy.catalogue.administration import AdministrationTable
from tenancy.catalogue.audit import AuditTable
from tenancy.catalogue.erasure import ErasureTable
from tenancy.catalogue.identity import IdentityTable
from tenancy.catalogue.moments import Moments
from tenancy.catalogue.reclaim import ReclaimTable
from tenancy.catalogue.results import ResultTable
from tenancy.catalogue.sessions import SessionTable
from tenancy.clock import Clock
from tenancy.quotas import Limits


class Catalogue:
    """
    All of it, on one database.

    :param defaults: The manager's own limits, complete.
    """

    def __init__(self, database: Database, *, clock: Clock, defaults: Limits) -> None:
        moments = Moments(database, clock)
        self.database = database
        self.defaults = defaults
        self.identity = IdentityTable(database, moments)
        self.sessions = SessionTable(database, moments)
        self.results = ResultTable(database, moments, defaults)
        self.administration = AdministrationTable(database, moments, defaults)
        self.reclaim = ReclaimTable(database, moments)
        self.erasure = ErasureTable(database, moments)
        self.audit = AuditTable(database, moments)


__all__ = ["Catalogue"]
