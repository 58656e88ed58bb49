"""`tenancy verify`: is everything there, and is it what it was?"""

from contextlib import closing
from typing import Annotated, Final

import typer

from tenancy.cli.consent import DryRunOption, YesOption, ask, require_terminal
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, note, progress

_ALARM: Final = (
    "More than 1 in 100 stored files are unknown to the catalogue. Was an older database restored beside newer files? "
    "Nothing was repaired. Restore the files of the same moment, or, if these are not wanted, give --accept-unknown."
)


def verify(
    invocation: Invocation,
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Set counters right, finish interrupted work, set unknown files aside. Deletes no result."
        ),
    ] = False,
    accept_unknown: Annotated[
        bool,
        typer.Option("--accept-unknown", help="Repair although more than 1 in 100 stored files are unknown."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Check the catalogue against the store, and every result. Exits 1 if a finding is left."""
    repair = repair and not dry_run
    if repair:
        require_terminal(
            yes=yes, what="sets counters right, removes what interrupted work has left and sets unknown files aside"
        )
    with closing(invocation.place().open()) as manager:
        if repair:
            ask("Set counters right, remove what interrupted work has left, set unknown files aside?", yes=yes)
        with progress("Verifying") as advance:
            report = manager.verify(
                repair=repair, accept_unknown=accept_unknown, on_progress=lambda checked: advance(checked, None)
            )
    if dry_run:
        note("Dry run: nothing was changed.")
    findings = [{"kind": each.kind, "count": each.count, "repaired": each.repaired} for each in report.findings]
    invocation.output.show(
        {
            "ok": report.ok,
            "alarm": report.alarm,
            "checked_results": report.checked_results,
            "dry_run": dry_run,
            "findings": findings,
        },
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
    if report.alarm:
        raise Refusal(_ALARM, code=ExitCode.FAILED)
    if not report.ok:
        raise Refusal("There are findings that are not repaired.", code=ExitCode.FAILED)
