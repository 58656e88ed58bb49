"""`tenancy keys`: which there are, putting what they wrap under new ones, and ending old ones."""

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tenancy.cli.consent import DryRunOption, YesOption, ask, require_terminal
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation, words
from tenancy.cli.output import Table, count, moment, note, progress
from tenancy.cli.place import Place
from tenancy.cli.who import SomeTenantOption

if TYPE_CHECKING:
    from tenancy.rotation import KeyReport, RootKeyInfo, RotationReport


class Level(StrEnum):
    """Which keys are rotated; see `SessionManager.rotate_keys`."""

    ROOT = "root"
    TENANT = "tenant"
    SESSION = "session"


LevelArgument = Annotated[Level, words("LEVEL", Level, help="Which keys.")]
KeyIdArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="Its id, as `tenancy keys list` shows it.")]

_ELSEWHERE: Final = (
    "The key is not in a key file of ours, so this command cannot change it; do that where it is kept, and then run "
    "`tenancy keys rewrap`."
)
_NOT_DONE: Final = "Some keys are still under an old one; run `tenancy keys rewrap` to try again."


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
    invocation: Invocation, *, level: LevelArgument, tenant: SomeTenantOption = None, dry_run: DryRunOption = False
) -> None:
    """
    Put keys under new ones: of tenants (root), of sessions (tenant), or give live sessions new ones (session).

    No result is touched, and everything stays readable. At the level root a key file gets a new primary key first;
    other providers have theirs made where they are kept. One that was interrupted is carried on instead of another
    begun. Exits 3 if something is left.
    """
    place = invocation.place()
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
            new_key_id = _new_primary(place)
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


def disable(
    invocation: Invocation, *, key_id: KeyIdArgument, dry_run: DryRunOption = False, yes: YesOption = False
) -> None:
    """Have a key of the key file open nothing, until it is enabled again. Running processes notice at once."""
    from tenancy.keys.keyset_editing import disable_key

    path, key = _which(invocation, key_id, dry_run=dry_run, yes=yes, what="makes data unreadable")
    if not dry_run:
        ask(f"Disable this key? {key.tenants} tenants hang on it and cannot be read meanwhile.", yes=yes)
        disable_key(path, key_id)
    _show_key(invocation, key, "disabled", dry_run=dry_run)


def enable(invocation: Invocation, *, key_id: KeyIdArgument) -> None:
    """Have a key of the key file that was disabled open things again."""
    from tenancy.keys.keyset_editing import enable_key

    path, key = _which(invocation, key_id, dry_run=True, yes=True, what="")
    enable_key(path, key_id)
    _show_key(invocation, key, "primary" if key.state == "primary" else "enabled", dry_run=False)


def destroy(
    invocation: Invocation, *, key_id: KeyIdArgument, dry_run: DryRunOption = False, yes: YesOption = False
) -> None:
    """
    Destroy a key of the key file for good, once nothing hangs on it.

    Whatever it wrapped, in copies and backups too, is then opened by nobody any more; by nobody who has no copy of the
    key file, that is.
    """
    path, key = _which(invocation, key_id, dry_run=dry_run, yes=yes, what="destroys a key")
    _require_unused(key)
    if not dry_run:
        ask("Destroy this key for good? Backups that hang on it will open no more.", yes=yes)
        _destroy(invocation, path, key)
    _show_key(invocation, key, "destroyed", dry_run=dry_run)


def _require_unused(key: "RootKeyInfo") -> None:
    if key.state == "primary":
        raise Refusal(
            "This is the primary key; make another one first: `tenancy keys rotate root`. Nothing was changed.",
            code=ExitCode.FAILED,
        )
    if key.tenants:
        raise Refusal(
            f"{key.tenants} tenants still hang on this key; put them under the primary one first: `tenancy keys "
            "rewrap`. Nothing was changed.",
            code=ExitCode.FAILED,
        )


def _destroy(invocation: Invocation, path: Path, key: "RootKeyInfo") -> None:
    from tenancy.keys.keyset_editing import destroy_key, disable_key, enable_key

    if key.state == "destroyed":
        return
    # Disabled before it is looked at for the last time: whatever was put under it since the first look is seen, and
    # nothing that is put under it later was ever of use to anybody.
    disable_key(path, key.key_id)
    try:
        with closing(invocation.place().open()) as manager:
            _require_unused(_find(manager.key_report(), key.key_id))
    except BaseException:
        if key.state == "enabled":
            enable_key(path, key.key_id)
        raise
    destroy_key(path, key.key_id)


def _new_primary(place: Place) -> str:
    from tenancy.keys.keyset_editing import add_primary_key

    path = place.key_file()
    if path is None:
        raise Refusal(
            "Everything is under the provider's primary key. Have a new one made where the keys are kept, and run this "
            "again; nothing was changed.",
            code=ExitCode.FAILED,
        )
    return add_primary_key(path)


def _which(invocation: Invocation, key_id: str, *, dry_run: bool, yes: bool, what: str) -> "tuple[Path, RootKeyInfo]":
    place = invocation.place()
    path = place.key_file()
    if path is None:
        raise Refusal(_ELSEWHERE, code=ExitCode.USAGE)
    if not dry_run:
        require_terminal(yes=yes, what=what)
    with closing(place.open()) as manager:
        report = manager.key_report()
        if not dry_run and not report.due["root"]:
            # Changes nothing, but the catalogue knows the primary key from here on, by which later starts tell that
            # they have the right ones.
            manager.rewrap_keys("root")
    return path, _find(report, key_id)


def _find(report: "KeyReport", key_id: str) -> "RootKeyInfo":
    for key in report.root_keys:
        if key.key_id == key_id and key.state not in ("missing", "unknown", "foreign"):
            return key
    raise Refusal("There is no such key in the key file; nothing was changed.", code=ExitCode.NOT_FOUND)


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


def _show(invocation: Invocation, reports: "list[RotationReport]", document: dict[str, Any]) -> None:
    invocation.output.show(
        document,
        Table(
            columns=("level", "changed", "failed", "left"),
            rows=[(each.level, str(each.changed), str(each.failed), str(each.left)) for each in reports],
        ),
    )
    if not all(each.complete for each in reports):
        raise Refusal(_NOT_DONE, code=ExitCode.PARTLY_DONE)


def _document(report: "RotationReport") -> dict[str, Any]:
    return {
        "level": report.level,
        "changed": report.changed,
        "resumed": report.resumed,
        "failed": report.failed,
        "left": report.left,
        "complete": report.complete,
    }


def _show_key(invocation: Invocation, key: "RootKeyInfo", state: str, *, dry_run: bool) -> None:
    if dry_run:
        note("Dry run: nothing was changed.")
    document = {"key_id": key.key_id, "state": key.state if dry_run else state, "tenants": key.tenants}
    invocation.output.show(
        {**document, "dry_run": dry_run}, Table.of_fields({name: str(value) for name, value in document.items()})
    )


def _aged(number: int, oldest: Any) -> str:
    return f"{number}, the oldest of {moment(oldest)}" if number else "none"


def _due(report: "KeyReport") -> str:
    return ", ".join(f"{number} ({level})" for level, number in report.due.items() if number) or "none"
