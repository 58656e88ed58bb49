"""`tenancy usage`: what is in use, and what may be."""

from contextlib import closing

from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, count, size
from tenancy.cli.who import SomeSessionOption, SomeUserOption, TenantOption, require_wider


def usage(
    invocation: Invocation,
    *,
    tenant: TenantOption,
    user: SomeUserOption = None,
    session: SomeSessionOption = None,
) -> None:
    """Show what a tenant, user or session has in use and what it may have. In JSON, null is unlimited."""
    require_wider(user=user, session=session)
    with closing(invocation.place().open()) as manager:
        found = manager.usage(tenant=tenant, user=user, session=session)
    invocation.output.show(
        {
            "tenant": tenant,
            "user": user,
            "session": session,
            "used_bytes": found.used_bytes,
            "results": found.results,
            "sessions": found.sessions,
            "limit_bytes": found.limit_bytes,
            "limit_results": found.limit_results,
            "limit_sessions": found.limit_sessions,
            "max_result_bytes": found.max_result_bytes,
        },
        Table(
            columns=("", "in use", "limit"),
            rows=[
                ("bytes", size(found.used_bytes), size(found.limit_bytes)),
                ("results", count(found.results), count(found.limit_results)),
                *([("sessions", count(found.sessions), count(found.limit_sessions))] if session is None else []),
                ("bytes of one result", "", size(found.max_result_bytes)),
            ],
        ),
    )
