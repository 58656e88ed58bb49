"""`tenancy cleanup`: reclaim what has expired. Made for cron: it never asks."""

from contextlib import closing
from typing import Annotated

import typer

from tenancy.cli.consent import DryRunOption
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, note, progress, size


def _positive(seconds: float | None) -> float | None:
    # Not typer's `min`, which would take 0. Not a number is not more than it either.
    if seconds is not None and not seconds > 0:
        raise typer.BadParameter("must be more than 0.")
    return seconds


def cleanup(
    invocation: Invocation,
    *,
    dry_run: DryRunOption = False,
    yes: Annotated[  # noqa: ARG001
        bool, typer.Option("--yes", help="Taken like everywhere; cleanup removes only what has expired and never asks.")
    ] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="How many at a time.")] = 500,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            "--max-seconds",
            callback=_positive,
            help="Stop after about this long, more than 0, and exit 3 if something is left.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Reclaim expired sessions and results and unfinished writes. Any number of these may run at once."""
    with closing(invocation.place().open()) as manager, progress("Reclaiming") as advance:
        report = manager.cleanup(dry_run=dry_run, batch_size=batch_size, max_seconds=max_seconds, on_progress=advance)
    if dry_run:
        note("Dry run: nothing was changed.")
    invocation.output.show(
        {
            "sessions": report.sessions,
            "results": report.results,
            "reclaimed_bytes": report.reclaimed_bytes,
            "dry_run": report.dry_run,
            "complete": report.complete,
        },
        Table.of_fields(
            {
                "sessions": str(report.sessions),
                "results": str(report.results),
                "reclaimable" if dry_run else "reclaimed": size(report.reclaimed_bytes),
                "complete": "yes" if report.complete else "no",
            }
        ),
    )
    if not dry_run and not report.complete:
        raise Refusal("Stopped before everything was reclaimed; run it again.", code=ExitCode.PARTLY_DONE)
