"""`tenancy limits`: how much may be stored, set at a tenant, a user or a session."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, count, note, size
from tenancy.cli.place import Place
from tenancy.cli.who import SomeSessionOption, SomeUserOption, TenantOption, require_wider
from tenancy.errors import SessionNotFound
from tenancy.quotas import FIELDS_OF_LEVEL, UNSET, Limit, Limits

if TYPE_CHECKING:
    from tenancy import SessionManager

#: How a limit that the next wider level decides is written.
_INHERIT: Final = "inherit"


def _limit_option(field: str) -> Any:
    what = "a size such as 64MiB" if field.endswith("_bytes") else "a number"
    return typer.Option(
        f"--{field.replace('_', '-')}",
        metavar="LIMIT",
        help=f"{what[0].upper()}{what[1:]}, unlimited, or inherit.",
        show_default=False,
    )


MaxResultBytes = Annotated[str | None, _limit_option("max_result_bytes")]
SessionBytes = Annotated[str | None, _limit_option("session_bytes")]
SessionResults = Annotated[str | None, _limit_option("session_results")]
UserBytes = Annotated[str | None, _limit_option("user_bytes")]
UserResults = Annotated[str | None, _limit_option("user_results")]
UserSessions = Annotated[str | None, _limit_option("user_sessions")]
TenantBytes = Annotated[str | None, _limit_option("tenant_bytes")]
TenantResults = Annotated[str | None, _limit_option("tenant_results")]
TenantSessions = Annotated[str | None, _limit_option("tenant_sessions")]


def show(
    invocation: Invocation, *, tenant: TenantOption, user: SomeUserOption = None, session: SomeSessionOption = None
) -> None:
    """Show the limits that are set exactly here, and those that hold here. In JSON, null is unlimited."""
    require_wider(user=user, session=session)
    place = invocation.place()
    with closing(place.open()) as manager:
        _show(invocation, place, manager, tenant=tenant, user=user, session=session)


def set_limits(
    invocation: Invocation,
    *,
    tenant: TenantOption,
    user: SomeUserOption = None,
    session: SomeSessionOption = None,
    max_result_bytes: MaxResultBytes = None,
    session_bytes: SessionBytes = None,
    session_results: SessionResults = None,
    user_bytes: UserBytes = None,
    user_results: UserResults = None,
    user_sessions: UserSessions = None,
    tenant_bytes: TenantBytes = None,
    tenant_results: TenantResults = None,
    tenant_sessions: TenantSessions = None,
) -> None:
    """Set limits at a tenant, user or session. They hold from the next write on; what is not named stays as it is."""
    require_wider(user=user, session=session)
    changes = _parsed(
        max_result_bytes=max_result_bytes,
        session_bytes=session_bytes,
        session_results=session_results,
        user_bytes=user_bytes,
        user_results=user_results,
        user_sessions=user_sessions,
        tenant_bytes=tenant_bytes,
        tenant_results=tenant_results,
        tenant_sessions=tenant_sessions,
    )
    # Before anything is opened: a wrong limit must change nothing at all.
    Limits(**changes).require_level(_level(user=user, session=session))
    place = invocation.place()
    with closing(place.open()) as manager:
        try:
            # Read, change, write: of two operators who set different fields at the same moment, the later one wins.
            current = manager.limits(tenant=tenant, user=user, session=session)
        except SessionNotFound:
            level = _level(user=user, session=session)
            since = "once it is opened" if session is not None else "from its first session on"
            raise Refusal(
                f"There is no such {level}: it exists {since}, and limits can be set from then on.",
                code=ExitCode.NOT_FOUND,
            ) from None
        merged = {field: getattr(current, field) for field in FIELDS_OF_LEVEL["tenant"]} | changes
        manager.set_limits(Limits(**merged), tenant=tenant, user=user, session=session)
        note("The limits are set.")
        _show(invocation, place, manager, tenant=tenant, user=user, session=session)


def _parsed(**options: str | None) -> dict[str, Limit]:
    from tenancy.settings.values import parse_amount

    parsed: dict[str, Limit] = {}
    for field, written in options.items():
        if written is None:
            continue
        if written == _INHERIT:
            parsed[field] = UNSET
            continue
        try:
            parsed[field] = parse_amount(written, suffixes=field.endswith("_bytes"))
        except ValueError as error:
            raise typer.BadParameter(f'--{field.replace("_", "-")} {error}, or "{_INHERIT}".') from None
    if not parsed:
        raise typer.BadParameter("Name at least one limit to set.")
    return parsed


def _show(
    invocation: Invocation,
    place: Place,
    manager: "SessionManager",
    *,
    tenant: str,
    user: str | None,
    session: str | None,
) -> None:
    level = _level(user=user, session=session)
    fields = FIELDS_OF_LEVEL[level]
    here = manager.limits(tenant=tenant, user=user, session=session)
    holding = here
    if session is not None:
        holding = holding.over(manager.limits(tenant=tenant, user=user))
    if user is not None:
        holding = holding.over(manager.limits(tenant=tenant))
    holding = holding.over(place.default_limits())
    invocation.output.show(
        {
            "tenant": tenant,
            "user": user,
            "session": session,
            "set": {field: getattr(here, field) for field in fields if getattr(here, field) is not UNSET},
            "effective": {field: getattr(holding, field) for field in fields},
        },
        Table(
            columns=("limit", f"set at this {level}", "effective"),
            rows=[(field.replace("_", " "), _spoken(here, field), _spoken(holding, field)) for field in fields],
        ),
    )


def _level(*, user: str | None, session: str | None) -> str:
    return "session" if session is not None else "user" if user is not None else "tenant"


def _spoken(limits: Limits, field: str) -> str:
    value = getattr(limits, field)
    if value is UNSET:
        return _INHERIT
    return size(value) if field.endswith("_bytes") else count(value)
