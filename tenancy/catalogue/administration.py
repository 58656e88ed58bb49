"""What an operator asks of the catalogue by name: usage, limits, the end of a session."""

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from stores.sql import Statement, Transaction
from tenancy.catalogue.access import Access
from tenancy.catalogue.counters import effective_limits, lock_owner, read_counters, read_limits, usage, write_limits
from tenancy.catalogue.full_disk import even_on_a_full_disk
from tenancy.catalogue.moments import Moments, now_us
from tenancy.catalogue.receipts import HungOn, hung_on
from tenancy.catalogue.sessions import Ids, end_session
from tenancy.catalogue.tenants import find_tenant
from tenancy.quotas import Limits, Usage
from tenancy.schema import SESSIONS, USERS
from tenancy.scope import Scope

_FIND_USER: Final = Statement(
    sa.select(USERS.c.user_id).where(
        USERS.c.tenant_id == sa.bindparam("tenant_id"), USERS.c.name == sa.bindparam("user"), USERS.c.state == "live"
    )
)
_of_name = (
    SESSIONS.c.tenant_id == sa.bindparam("tenant_id"),
    SESSIONS.c.user_id == sa.bindparam("user_id"),
    SESSIONS.c.name == sa.bindparam("session"),
    SESSIONS.c.state == "live",
)
_FIND_SESSION: Final = Statement(sa.select(SESSIONS.c.session_id).where(*_of_name, SESSIONS.c.expires_at_us > now_us()))
#: Also one that has expired and was not reclaimed yet.
_FIND_REMAINS: Final = Statement(sa.select(SESSIONS.c.session_id).where(*_of_name))


@dataclass(frozen=True, slots=True)
class Owner:
    """A tenant, a user or a session, by id, with the ids of what is around it, the narrowest first."""

    level: str
    tenant_id: str
    chain: tuple[str, ...]

    @property
    def owner_id(self) -> str:
        """The id of the owner itself."""
        return self.chain[0]


class AdministrationTable:
    """Questions and changes by name. Each method is one transaction."""

    def __init__(self, access: Access, moments: Moments, defaults: Limits) -> None:
        self._access = access
        self._moments = moments
        self._defaults = defaults

    def usage(self, *, tenant: str, user: str | None, session: str | None) -> Usage:
        """Return what is in use and what is allowed. Nothing is in use by what does not exist."""
        level = "tenant" if user is None else "user" if session is None else "session"
        with self._access.reading_named(tenant, snapshot=True) as transaction:
            owner = self._find(transaction, tenant=tenant, user=user, session=session)
            if owner is None:
                return usage((0, 0, 0), self._defaults, level)
            return self._usage(transaction, owner)

    def usage_of(self, ids: Ids) -> Usage:
        """Return what one session has in use and what it may have."""
        owner = Owner("session", ids.tenant_id, (ids.session_id, ids.user_id, ids.tenant_id))
        with self._access.reading(ids.tenant_id, snapshot=True) as transaction:
            return self._usage(transaction, owner)

    def limits(self, *, tenant: str, user: str | None, session: str | None) -> Limits | None:
        """Return what is set exactly there, or `None` if there is no such tenant, user or session."""
        with self._access.reading_named(tenant, snapshot=True) as transaction:
            owner = self._find(transaction, tenant=tenant, user=user, session=session)
            return None if owner is None else read_limits(transaction, owner.tenant_id, owner.owner_id)

    @even_on_a_full_disk
    def set_limits(self, limits: Limits, *, tenant: str, user: str | None, session: str | None) -> bool:
        """Replace what is set exactly there. Returns whether there is such a tenant, user or session."""
        with self._access.writing_named(tenant) as transaction:
            owner = self._find(transaction, tenant=tenant, user=user, session=session)
            if owner is None or not lock_owner(transaction, owner.tenant_id, owner.owner_id):
                return False
            write_limits(transaction, owner.tenant_id, owner.owner_id, limits)
        return True

    @even_on_a_full_disk
    def end(self, scope: Scope) -> tuple[Ids, int, list[HungOn]] | None:
        """
        End the session of this scope, if there is one, and destroy its keys. One that has expired counts.

        :returns: Its ids, how many keys were destroyed, and what they had hung on.
        """
        with self._access.writing_named(scope.tenant, shred=True) as transaction:
            owner = self._find(transaction, tenant=scope.tenant, user=scope.user, session=None)
            if owner is None:
                return None
            user_id, tenant_id = owner.chain
            # Whoever wants a session gone wants its bytes gone, also if it has just expired.
            row = transaction.one(_FIND_REMAINS, tenant_id=tenant_id, user_id=user_id, session=scope.session)
            if row is None:
                return None
            self._access.mark_shredding(transaction)
            hung = hung_on(transaction, tenant_id, session_id=row[0])
            return Ids(tenant_id, user_id, row[0]), end_session(transaction, tenant_id, row[0]), hung

    def _usage(self, transaction: Transaction, owner: Owner) -> Usage:
        counters = read_counters(transaction, owner.tenant_id, owner.owner_id)
        if owner.level == "session":
            counters = (counters[0], counters[1], 1)
        limits = effective_limits(transaction, owner.tenant_id, *owner.chain, defaults=self._defaults)
        return usage(counters, limits, owner.level)

    def _find(self, transaction: Transaction, *, tenant: str, user: str | None, session: str | None) -> Owner | None:
        tenant_id = find_tenant(transaction, tenant)
        if tenant_id is None:
            return None
        self._access.enter(transaction, tenant_id)
        if user is None:
            return Owner("tenant", tenant_id, (tenant_id,))
        row = transaction.one(_FIND_USER, tenant_id=tenant_id, user=user)
        if row is None:
            return None
        user_id: str = row[0]
        if session is None:
            return Owner("user", tenant_id, (user_id, tenant_id))
        named = {"tenant_id": tenant_id, "user_id": user_id, "session": session}
        row = transaction.one(_FIND_SESSION, now_us=self._moments.parameter(), **named)
        return None if row is None else Owner("session", tenant_id, (row[0], user_id, tenant_id))
