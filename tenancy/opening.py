"""Opening a session: find it in one query, or create it with whatever of its tenant and user is missing."""

from datetime import timedelta
from typing import Final

from stores.errors import Conflict
from stores.names import mint_name
from tenancy.backend import Backend
from tenancy.catalogue.sessions import Ids, NewSession, OpenedSession, Owners
from tenancy.cleanup import Cleaner
from tenancy.clock import to_us
from tenancy.errors import KeyDestroyed, KeyUnavailable, QuotaExceeded, SessionNotFound, StorageUnavailable
from tenancy.quotas import Lifetime, Limits
from tenancy.scope import Scope

#: How often others may get in between before this gives up; each time means somebody else made progress.
_ATTEMPTS: Final = 20


def open_session(backend: Backend, scope: Scope, *, lifetime: Lifetime, limits: Limits) -> OpenedSession:
    """
    Return the live session of a scope; create it if there is none.

    :param lifetime: Of a session that is created.
    :param limits: Likewise.
    :raises QuotaExceeded: If the user or the tenant may have no further session, even after reclaiming expired ones.
    :raises KeyUnavailable: If the tenant's key cannot be opened now, or a new tenant's cannot be made.
    :raises KeyDestroyed: If it is gone for good.
    :raises StorageUnavailable: If others kept getting in between.
    """
    sessions = backend.catalogue.sessions
    may_make_room = True
    for _ in range(_ATTEMPTS):
        found = sessions.find(scope)
        if isinstance(found, OpenedSession):
            if found.touch_due:
                backend.touch(found.ids)
            return found
        try:
            new = _prepare(backend, found, lifetime=lifetime, limits=limits)
        except (KeyUnavailable, KeyDestroyed):
            # Perhaps only the key over the tenant's at that look: a rotation may have put another one there.
            if sessions.find(scope).tenant_key == found.tenant_key:
                raise
            continue
        try:
            sessions.create(scope, new, owners=found)
        except (Conflict, SessionNotFound):
            # Somebody created the same tenant, user or session a moment ago, and it is there now; or erased the tenant
            # or the user, whose counters refuse, and the next look finds it gone.
            continue
        except QuotaExceeded:
            if not may_make_room or not Cleaner(backend).make_room(new.ids.tenant_id):
                raise
            may_make_room = False
            continue
        return OpenedSession(new.ids, new.session_key, new.tenant_key, touch_due=False)
    raise StorageUnavailable("The session could not be opened: others kept changing it at the same time.")


def _prepare(backend: Backend, owners: Owners, *, lifetime: Lifetime, limits: Limits) -> NewSession:
    # Keys are made outside any transaction: a key service may take its time.
    ids = Ids(owners.tenant_id or mint_name(), owners.user_id or mint_name(), mint_name())
    tenant_key = owners.tenant_key or backend.keyring.new_tenant_key(tenant_id=ids.tenant_id)
    session_key = backend.keyring.new_session_key(
        tenant_key, tenant_id=ids.tenant_id, user_id=ids.user_id, session_id=ids.session_id
    )
    result: timedelta | None = lifetime.result
    return NewSession(
        ids=ids,
        tenant_key=tenant_key,
        session_key=session_key,
        idle_us=to_us(lifetime.idle),
        maximum_us=to_us(lifetime.maximum),
        result_lifetime_us=None if result is None else to_us(result),
        limits=limits,
    )
