"""`tenancy erase`: a user or a tenant, for good, with a receipt that can be asked for again."""

from contextlib import closing
from typing import Annotated

import typer

from tenancy.cli.consent import DryRunOption, YesOption, ask, require_terminal
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.receipts import Forecast, show_forecast, show_receipt
from tenancy.cli.who import TenantOption, UserOption, spoken


def user(
    invocation: Invocation,
    *,
    tenant: TenantOption,
    user: UserOption,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Erase a user with all sessions and results. An interrupted erasure resumes under its receipt."""
    _erase(invocation, tenant=tenant, user=user, dry_run=dry_run, yes=yes)


def tenant(
    invocation: Invocation, *, tenant: TenantOption, dry_run: DryRunOption = False, yes: YesOption = False
) -> None:
    """Erase a tenant with all users, sessions and results. An interrupted erasure resumes under its receipt."""
    _erase(invocation, tenant=tenant, user=None, dry_run=dry_run, yes=yes)


def receipt(
    invocation: Invocation,
    *,
    receipt_id: Annotated[str, typer.Argument(help="As the erasure has printed it.", show_default=False)],
) -> None:
    """Show the receipt of an erasure again, with how far it reaches by now."""
    with closing(invocation.place().open()) as manager:
        found = manager.receipt(receipt_id)
    if found is None:
        raise Refusal("There is no such receipt.", code=ExitCode.NOT_FOUND)
    show_receipt(invocation.output, found)


def _erase(invocation: Invocation, *, tenant: str, user: str | None, dry_run: bool, yes: bool) -> None:
    level = "tenant" if user is None else "user"
    if not dry_run:
        require_terminal(yes=yes)
    with closing(invocation.place().open()) as manager:
        if dry_run:
            # Usage alone would not tell: it is zero for what does not exist. This raises.
            manager.limits(tenant=tenant, user=user)
        usage = manager.usage(tenant=tenant, user=user)
        forecast = Forecast(level=level, sessions=usage.sessions, results=usage.results, used_bytes=usage.used_bytes)
        if dry_run:
            show_forecast(invocation.output, forecast)
            return
        ask(f"Erase {spoken(tenant=tenant, user=user)} for good ({forecast.spoken()})?", yes=yes)
        receipt = manager.erase_tenant(tenant=tenant) if user is None else manager.erase_user(tenant=tenant, user=user)
    if receipt.receipt_id is None:
        raise Refusal(f"There is no such {level}; nothing was changed.", code=ExitCode.NOT_FOUND)
    show_receipt(invocation.output, receipt)
