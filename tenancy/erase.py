"""Erasing a session, a user or a tenant: keys at once, then bytes, then rows, and a receipt."""

from datetime import datetime

from tenancy.backend import Backend
from tenancy.catalogue.erasure import Erasing
from tenancy.cleanup import Cleaner
from tenancy.receipts import Receipt, of_nothing, of_row, of_session
from tenancy.scope import Scope


def erase_session(backend: Backend, cleaner: Cleaner, scope: Scope, *, now: datetime) -> Receipt:
    """End one session and remove it. Without such a session the receipt counts nothing."""
    ended = backend.catalogue.administration.end(scope)
    if ended is None:
        return of_nothing("session")
    ids, keys, hung_on = ended
    removed = cleaner.remove_session(ids, shred=True)
    return of_session(
        backend,
        results=removed.results,
        used_bytes=removed.size_bytes,
        keys_destroyed=keys,
        hung_on=hung_on,
        at=now,
        is_log_cut=cleaner.cut_log(),
    )


def erase_user(backend: Backend, cleaner: Cleaner, *, tenant: str, user: str) -> Receipt:
    """Erase a user; resume if that was interrupted. Without such a user the receipt counts nothing."""
    erasings = backend.catalogue.erasure.begin_user(tenant=tenant, user=user)
    return _erase(backend, cleaner, erasings, "user")


def erase_tenant(backend: Backend, cleaner: Cleaner, *, tenant: str) -> Receipt:
    """Erase a tenant with all its users; resume if that was interrupted."""
    return _erase(backend, cleaner, backend.catalogue.erasure.begin_tenant(tenant=tenant), "tenant")


def _erase(backend: Backend, cleaner: Cleaner, erasings: list[Erasing], level: str) -> Receipt:
    if not erasings:
        return of_nothing(level)
    # Usually one. An interrupted erasure and a new owner of the same name are two; the last one's receipt is returned.
    for erasing in erasings:
        cleaner.carry_out(erasing)
    row = backend.catalogue.receipts.read(erasing.tenant_id, erasing.receipt_id)
    return of_row(backend, row, is_log_cut=cleaner.cut_log())
