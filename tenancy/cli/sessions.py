"""`tenancy sessions`: what is live, and ending it."""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from tenancy.cli.consent import DryRunOption, YesOption, ask, require_terminal
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, count, moment, room, size, text
from tenancy.cli.receipts import Forecast, show_forecast, show_receipt
from tenancy.cli.who import (
    OwnRoomOption,
    SomeSessionOption,
    SomeTenantOption,
    SomeUserOption,
    TenantOption,
    UserOption,
    require_wider,
    spoken,
    which_session,
)
from tenancy.scope import Scope

if TYPE_CHECKING:
    from tenancy.listing import SessionInfo
    from tenancy.manager import SessionManager


_COLUMNS: Final[dict[str, Callable[[Any], str]]] = {
    "tenant": text,
    "user": text,
    "session": room,
    "results": count,
    "used_bytes": size,
    "used_at": moment,
    "expires_at": moment,
}
_MISSING: Final = "There is no such live session."


def list_sessions(invocation: Invocation, *, tenant: SomeTenantOption = None, user: SomeUserOption = None) -> None:
    """
    List the live sessions. The one without a name is the user's own room (null in JSON).

    In JSON, log_hash is how log events name a session, so that you can find whom an event is about.
    """
    require_wider(tenant=tenant, user=user)
    # Closed here, not by the interpreter when it ends: stdout may go away in the middle of the listing.
    with (
        closing(invocation.place().open()) as manager,
        closing(_documents(manager, tenant=tenant, user=user)) as found,
    ):
        invocation.output.stream("sessions", found, columns=_COLUMNS, nothing="No live sessions.")


def show(
    invocation: Invocation,
    *,
    tenant: TenantOption,
    user: UserOption,
    session: SomeSessionOption = None,
    own_room: OwnRoomOption = False,
) -> None:
    """
    Show one live session. Looking does not count as use.

    Its log hash is how log events name it, so that you can tell which events are about it.
    """
    name = which_session(session, own_room=own_room)
    with closing(invocation.place().open()) as manager:
        found = _find(manager, tenant=tenant, user=user, session=name)
        document = _document(found)
        columns: dict[str, Callable[[Any], str]] = {**_COLUMNS, "created_at": moment, "log_hash": text}
        fields = {key.replace("_", " "): shown(document[key]) for key, shown in columns.items()}
        invocation.output.show(document, Table.of_fields(fields))


def delete(
    invocation: Invocation,
    *,
    tenant: TenantOption,
    user: UserOption,
    session: SomeSessionOption = None,
    own_room: OwnRoomOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Delete one session and all its results: keys first, bytes second, rows last."""
    name = which_session(session, own_room=own_room)
    if not dry_run:
        require_terminal(yes=yes)
    with closing(invocation.place().open()) as manager:
        found = _find(manager, tenant=tenant, user=user, session=name)
        forecast = Forecast(level="session", sessions=1, results=found.results, used_bytes=found.used_bytes)
        if dry_run:
            show_forecast(invocation.output, forecast)
            return
        whose = spoken(tenant=tenant, user=user, session=name or "")
        ask(f"Delete {whose} ({forecast.spoken()})?", yes=yes)
        receipt = manager.delete_session(tenant=tenant, user=user, session=name)
    if not receipt.sessions:
        # It ended between the look and the deletion.
        raise Refusal(_MISSING, code=ExitCode.NOT_FOUND)
    show_receipt(invocation.output, receipt)


def _find(manager: "SessionManager", *, tenant: str, user: str, session: str | None) -> "SessionInfo":
    # The listing rather than manager.session(...): opening a session would create it, or keep it alive.
    for found in manager.sessions(tenant=tenant, user=user):
        if found.session == session:
            return found
    raise Refusal(_MISSING, code=ExitCode.NOT_FOUND)


def _documents(
    manager: "SessionManager", *, tenant: str | None, user: str | None
) -> Generator[dict[str, Any], None, None]:
    for found in manager.sessions(tenant=tenant, user=user):
        yield _document(found)


def _document(found: "SessionInfo") -> dict[str, Any]:
    return {
        "tenant": found.tenant,
        "user": found.user,
        "session": found.session,
        "results": found.results,
        "used_bytes": found.used_bytes,
        "created_at": found.created_at,
        "used_at": found.used_at,
        "expires_at": found.expires_at,
        "log_hash": Scope.of(tenant=found.tenant, user=found.user, session=found.session).short_hash,
    }
