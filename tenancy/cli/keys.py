"""`tenancy keys`: which there are, putting what they wrap under new ones, and moving tenants to their own."""

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tenancy.cli.consent import DryRunOption
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation, words
from tenancy.cli.output import Table, count, moment, note, progress
from tenancy.cli.who import ProviderOption, SomeTenantOption

if TYPE_CHECKING:
    from tenancy.rotation import KeyReport, RotationReport


class Level(StrEnum):
    """Which keys are rotated; see `SessionManager.rotate_keys`."""

    ROOT = "root"
    TENANT = "tenant"
    SESSION = "session"


LevelArgument = Annotated[Level, words("LEVEL", Level, help="Which keys.")]

_NOT_DONE: Final = "Some keys are still under an old one; run {again} to try again."


def list_keys(invocation: Invocation) -> None:
    """List the key-encryption keys, how many tenants hang on each, and what a rotation has still to do."""
    with closing(invocation.place().open()) as manager:
        report = manager.key_report()
    invocation.output.show(
        {
            "keys": [
                {
                    "provider": key.provider,
                    "key_id": key.key_id,
                    "state": key.state,
                    "created_at": key.created_at,
                    "tenants": key.tenants,
                }
                for key in report.root_keys
            ],
            "tenant_keys": report.tenant_keys,
            "session_keys": report.session_keys,
            "oldest_tenant_key_at": report.oldest_tenant_key_at,
            "oldest_session_key_at": report.oldest_session_key_at,
            "due": report.due,
        },
        Table(
            columns=("provider", "key", "state", "created", "tenants"),
            rows=[
                (key.provider, key.key_id, key.state, moment(key.created_at), count(key.tenants))
                for key in report.root_keys
            ],
        ),
        Table.of_fields(
            {
                "keys of tenants": _aged(report.tenant_keys, report.oldest_tenant_key_at),
                "keys of sessions": _aged(report.session_keys, report.oldest_session_key_at),
                "waiting for a rotation": _due(report),
            }
        ),
    )


def rotate(
    invocation: Invocation,
    *,
    level: LevelArgument,
    tenant: SomeTenantOption = None,
    provider: ProviderOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """
    Put keys under new ones: of tenants (root), of sessions (tenant), or give live sessions new ones (session).

    No result is touched, and everything stays readable. At the level root a key file gets a new primary key first;
    other providers have theirs made where they are kept. One that was interrupted is carried on instead of another
    begun. Exits 3 if something is left.
    """
    place = invocation.place()
    if provider is not None and (level is not Level.ROOT or tenant is not None):
        raise typer.BadParameter("--provider is for the level root, and for all who are with that provider.")
    key_file = place.key_file(provider)
    if dry_run:
        _forecast(invocation, level)
        return
    new_key_id = None
    with closing(place.open()) as manager, progress("Rotating") as advance:
        if level is Level.ROOT and tenant is None:
            # What hangs on an older key first: each key that is made is one more to be looked after.
            report = manager.rewrap_keys("root", on_progress=advance)
        else:
            report = manager.rotate_keys(level.value, tenant=tenant, on_progress=advance)
    if level is Level.ROOT and tenant is None:
        if report.changed or report.left > report.failed:
            note("Not everything was under the primary key yet; that was done first, and no new key was made.")
        else:
            new_key_id = _new_primary(key_file)
            with closing(place.open()) as manager, progress("Rotating") as advance:
                report = manager.rotate_keys("root", on_progress=advance)
    elif report.resumed:
        note("Carried on the rotation that was not finished; no other was begun.")
    _show(invocation, [report], {"new_key_id": new_key_id, **_document(report)})


def rewrap(invocation: Invocation, *, tenant: SomeTenantOption = None, dry_run: DryRunOption = False) -> None:
    """
    Finish rotations that were begun, at every level, and begin none. Without any it changes nothing.

    Exits 3 if something is left.
    """
    if dry_run:
        _forecast(invocation, None)
        return
    reports = []
    with closing(invocation.place().open()) as manager, progress("Rewrapping") as advance:
        for level in Level:
            reports.append(manager.rewrap_keys(level.value, tenant=tenant, on_progress=advance))
    _show(
        invocation,
        reports,
        {
            "levels": [_document(report) for report in reports],
            "complete": all(report.complete for report in reports),
        },
    )


def move(
    invocation: Invocation,
    *,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="The provider.", show_default=False)],
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="The tenant; either this or --from.", show_default=False),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Whatever is with this provider; either this or --tenant.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """
    Put a tenant's keys under a key of its own, or everything of one provider under another's, where it stays.

    Providers are called as in other_keys; that of the setting keys as `tenancy keys list` shows it. No result is
    touched, and everything stays readable. Exits 3 if something is left.
    """
    with closing(invocation.place().open()) as manager, progress("Moving") as advance:
        report = manager.move_keys(to=to, tenant=tenant, source=source, on_progress=advance)
    _show(invocation, [report], _document(report), again="this command")


def _new_primary(path: Path | None) -> str:
    from tenancy.keys.keyset_editing import add_primary_key

    if path is None:
        raise Refusal(
            "Everything is under the provider's primary key. Have a new one made where the keys are kept, and run this "
            "again; nothing was changed.",
            code=ExitCode.FAILED,
        )
    return add_primary_key(path)


def _forecast(invocation: Invocation, level: Level | None) -> None:
    with closing(invocation.place().open()) as manager:
        report = manager.key_report()
    note("Dry run: nothing was changed.")
    due = report.due if level is None else {level.value: report.due[level.value]}
    invocation.output.show(
        {
            "dry_run": True,
            "due": due,
            "tenant_keys": report.tenant_keys,
            "session_keys": report.session_keys,
        },
        Table.of_fields(
            {
                **{f"waiting at the level {name}": str(number) for name, number in due.items()},
                "keys of tenants": str(report.tenant_keys),
                "keys of sessions": str(report.session_keys),
            }
        ),
    )


def _show(
    invocation: Invocation,
    reports: "list[RotationReport]",
    document: dict[str, Any],
    *,
    again: str = "`tenancy keys rewrap`",
) -> None:
    invocation.output.show(
        document,
        Table(
            columns=("level", "changed", "failed", "left"),
            rows=[(each.level, str(each.changed), str(each.failed), str(each.left)) for each in reports],
        ),
    )
    if not all(each.complete for each in reports):
        raise Refusal(_NOT_DONE.format(again=again), code=ExitCode.PARTLY_DONE)


def _document(report: "RotationReport") -> dict[str, Any]:
    return {
        "level": report.level,
        "changed": report.changed,
        "resumed": report.resumed,
        "failed": report.failed,
        "left": report.left,
        "complete": report.complete,
    }


def _aged(number: int, oldest: Any) -> str:
    return f"{number}, the oldest of {moment(oldest)}" if number else "none"


def _due(report: "KeyReport") -> str:
    return ", ".join(f"{number} ({level})" for level, number in report.due.items() if number) or "none"
