"""Erasing a session, a user or a tenant: keys at once, then bytes, then rows, and a receipt."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tenancy.backend import Backend
from tenancy.catalogue.erasure import Erasing
from tenancy.cleanup import Cleaner
from tenancy.clock import to_datetime
from tenancy.scope import Scope

_NOTHING: Final = "There was nothing to erase."
_REMOVED: Final = (
    "Rows, bytes and wrapped keys are gone from this catalogue and store. Copies of database and files taken before "
    "remain readable to whoever has them and the key-encryption key."
)
_REMOVED_POSTGRESQL: Final = (
    _REMOVED + " The server's own files still hold the old rows until VACUUM and WAL recycling have passed over them."
)
_UNDER_WAY: Final = (
    "The keys are destroyed, so nothing can be read any more. Bytes and rows are still being removed; the next "
    "cleanup finishes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """
    What an erasure removed. Holds no identifier.

    :param receipt_id: Under which an interrupted erasure resumes; `None` for a session, and if there was nothing.
    :param level: `"session"`, `"user"` or `"tenant"`.
    :param used_bytes: Plaintext bytes that had been charged.
    :param keys_destroyed: Wrapped keys, of sessions and tenants.
    :param finished_at: `None` while bytes or rows are left.
    :param statement: In plain words, what is gone and what is not.
    """

    receipt_id: str | None
    level: str
    users: int
    sessions: int
    results: int
    used_bytes: int
    keys_destroyed: int
    started_at: datetime | None
    finished_at: datetime | None
    statement: str


def erase_session(backend: Backend, cleaner: Cleaner, scope: Scope, *, now: datetime) -> Receipt:
    """End one session and remove it. Without such a session the receipt counts nothing."""
    ended = backend.catalogue.administration.end(scope)
    if ended is None:
        return _nothing("session")
    ids, keys = ended
    removed = cleaner.remove_session(ids, shred=True)
    backend.catalogue.database.checkpoint(truncate=True)
    return Receipt(
        receipt_id=None,
        level="session",
        users=0,
        sessions=1,
        results=removed.results,
        used_bytes=removed.size_bytes,
        keys_destroyed=keys,
        started_at=now,
        finished_at=now,
        statement=_removed(backend),
    )


def erase_user(backend: Backend, cleaner: Cleaner, *, tenant: str, user: str) -> Receipt:
    """Erase a user; resume if that was interrupted. Without such a user the receipt counts nothing."""
    erasings = backend.catalogue.erasure.begin_user(tenant=tenant, user=user)
    return _erase(backend, cleaner, erasings, "user")


def erase_tenant(backend: Backend, cleaner: Cleaner, *, tenant: str) -> Receipt:
    """Erase a tenant with all its users; resume if that was interrupted."""
    return _erase(backend, cleaner, backend.catalogue.erasure.begin_tenant(tenant=tenant), "tenant")


def _erase(backend: Backend, cleaner: Cleaner, erasings: list[Erasing], level: str) -> Receipt:
    receipt = _nothing(level)
    # Usually one. An interrupted erasure and a new owner of the same name are two; the last one's receipt is returned.
    for erasing in erasings:
        cleaner.carry_out(erasing)
        receipt = _read(backend, erasing)
    if erasings:
        backend.catalogue.database.checkpoint(truncate=True)
    return receipt


def _read(backend: Backend, erasing: Erasing) -> Receipt:
    row = backend.catalogue.erasure.receipt(erasing)
    finished = None if row.finished_at_us is None else to_datetime(row.finished_at_us)
    return Receipt(
        receipt_id=row.receipt_id,
        level=row.level,
        users=row.users,
        sessions=row.sessions,
        results=row.results,
        used_bytes=row.size_bytes,
        keys_destroyed=row.keys_destroyed,
        started_at=to_datetime(row.started_at_us),
        finished_at=finished,
        statement=_removed(backend) if finished else _UNDER_WAY,
    )


def _removed(backend: Backend) -> str:
    return _REMOVED if backend.catalogue.database.is_sqlite else _REMOVED_POSTGRESQL


def _nothing(level: str) -> Receipt:
    return Receipt(
        receipt_id=None,
        level=level,
        users=0,
        sessions=0,
        results=0,
        used_bytes=0,
        keys_destroyed=0,
        started_at=None,
        finished_at=None,
        statement=_NOTHING,
    )
