"""`tenancy keys disable`, `enable` and `destroy`: what becomes of a key of a key file."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tenancy.cli.consent import DryRunOption, YesOption, ask, require_terminal
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, note
from tenancy.cli.who import ProviderOption

if TYPE_CHECKING:
    from tenancy.rotation import KeyReport, RootKeyInfo

KeyIdArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="Its id, as `tenancy keys list` shows it.")]

#: What the provider of the setting `keys` is called if that is a key file.
_OF_KEY_FILES: Final = "file"
_ELSEWHERE: Final = (
    "The key is not in a key file of ours, so this command cannot change it; do that where it is kept, and then run "
    "`tenancy keys rewrap`."
)


def disable(
    invocation: Invocation,
    *,
    key_id: KeyIdArgument,
    provider: ProviderOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Have a key of the key file open nothing, until it is enabled again. Running processes notice at once."""
    from tenancy.keys.keyset_editing import disable_key

    path, key = _which(invocation, key_id, provider, dry_run=dry_run, yes=yes, what="makes data unreadable")
    if not dry_run:
        ask(f"Disable this key? {key.tenants} tenants hang on it and cannot be read meanwhile.", yes=yes)
        disable_key(path, key_id)
    _show_key(invocation, key, "disabled", dry_run=dry_run)


def enable(invocation: Invocation, *, key_id: KeyIdArgument, provider: ProviderOption = None) -> None:
    """Have a key of the key file that was disabled open things again."""
    from tenancy.keys.keyset_editing import enable_key

    path, key = _which(invocation, key_id, provider, dry_run=True, yes=True, what="")
    enable_key(path, key_id)
    _show_key(invocation, key, "primary" if key.state == "primary" else "enabled", dry_run=False)


def destroy(
    invocation: Invocation,
    *,
    key_id: KeyIdArgument,
    provider: ProviderOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """
    Destroy a key of the key file for good, once nothing hangs on it.

    Whatever it wrapped, in copies and backups too, is then opened by nobody any more; by nobody who has no copy of the
    key file, that is.
    """
    path, key = _which(invocation, key_id, provider, dry_run=dry_run, yes=yes, what="destroys a key")
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
            "rewrap`, or `tenancy keys move` if they are with a provider of another name. Nothing was changed.",
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
            _require_unused(_find(manager.key_report(), key.key_id, key.provider))
    except BaseException:
        if key.state == "enabled":
            enable_key(path, key.key_id)
        raise
    destroy_key(path, key.key_id)


def _which(
    invocation: Invocation, key_id: str, provider: str | None, *, dry_run: bool, yes: bool, what: str
) -> "tuple[Path, RootKeyInfo]":
    place = invocation.place()
    path = place.key_file(provider)
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
    return path, _find(report, key_id, _OF_KEY_FILES if provider is None else provider)


def _find(report: "KeyReport", key_id: str, provider: str) -> "RootKeyInfo":
    for key in report.root_keys:
        if (key.provider, key.key_id) == (provider, key_id) and key.state not in ("missing", "unknown", "foreign"):
            # Whatever its provider is called elsewhere, or was before: a key that is gone is gone for all of them.
            return replace(key, tenants=sum(each.tenants for each in report.root_keys if each.key_id == key_id))
    raise Refusal("There is no such key in the key file; nothing was changed.", code=ExitCode.NOT_FOUND)


def _show_key(invocation: Invocation, key: "RootKeyInfo", state: str, *, dry_run: bool) -> None:
    if dry_run:
        note("Dry run: nothing was changed.")
    document = {"key_id": key.key_id, "state": key.state if dry_run else state, "tenants": key.tenants}
    invocation.output.show(
        {**document, "dry_run": dry_run}, Table.of_fields({name: str(value) for name, value in document.items()})
    )
