"""What an operator sees of the live sessions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tenancy.backend import Backend
from tenancy.clock import to_datetime
from tenancy.translation import translated


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """
    One live session as an operator sees it. The repr says nothing of whose it is.

    :param session: `None` is the user's own room.
    :param expires_at: When it ends unless it is used before.
    """

    tenant: str = field(repr=False)
    user: str = field(repr=False)
    session: str | None = field(repr=False)
    created_at: datetime
    used_at: datetime
    expires_at: datetime
    used_bytes: int
    results: int


def list_sessions(backend: Backend, *, tenant: str | None, user: str | None) -> Iterator[SessionInfo]:
    """Go through the live sessions; see `SessionManager.sessions`."""
    catalogue = backend.across if tenant is None else backend.catalogue
    with translated():
        for row in catalogue.sessions.list(tenant=tenant, user=user):
            yield SessionInfo(
                tenant=row.scope.tenant,
                user=row.scope.user,
                session=row.scope.session or None,
                created_at=to_datetime(row.created_at_us),
                used_at=to_datetime(row.used_at_us),
                expires_at=to_datetime(row.expires_at_us),
                used_bytes=row.used_bytes,
                results=row.results,
            )
