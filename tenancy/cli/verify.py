"""`tenancy verify`: is everything there, and is it what it was?"""

from contextlib import closing
from typing import Annotated

import typer

from tenancy.cli.consent import DryRunOption, YesOption, ask, require_terminal
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, note, progress


def verify(
    invocation: Invocation,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set counters right, finish interrupted work. Deletes no result.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Check the catalogue against the store, and every result. Exits 1 if a finding is left."""
    repair = repair and not dry_run
    if repair:
        require_terminal(yes=yes)
    with closing(invocation.place().open()) as manager:
        if repair:
            ask("Set counters right and remove what interrupted work has left behind?", yes=yes)
        with progress("Verifying") as advance:
            report = manager.verify(repair=repair, on_progress=lambda checked: advance(checked, None))
    if dry_run:
        note("Dry run: nothing was changed.")
    findings = [{"kind": each.kind, "count": each.count, "repaired": each.repaired} for each in report.findings]
    invocation.output.show(
        {"ok": report.ok, "checked_results": report.checked_results, "dry_run": dry_run, "findings": findings},
        Table.of_fields({"checked results": str(report.checked_results), "ok": "yes" if report.ok else "no"}),
        *(
            [
                Table(
                    columns=("finding", "count", "repaired"),
                    rows=[(each.kind, str(each.count), str(each.repaired)) for each in report.findings],
                )
            ]
            if report.findings
            else []
        ),
    )
    if not report.ok:
        raise Refusal("There are findings that are not repaired.", code=ExitCode.FAILED)
