"""The checks of `tenancy doctor`. Each looks at one thing and changes nothing."""

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenancy.cli.check import Check, Status
from tenancy.cli.key_check import keys
from tenancy.cli.output import moment, size
from tenancy.cli.place import MAKE_A_KEY, Place
from tenancy.errors import SchemaOutdated, TenancyError

if TYPE_CHECKING:
    from tenancy import SessionManager

_INIT_COMMAND: Final = "`tenancy init`"
_INIT: Final = f"Run {_INIT_COMMAND}."
_GIB: Final = 2**30
#: Less free space than this is a warning; less than a sixteenth of it a failure.
_ROOM_BYTES: Final = 1 * _GIB
_CLEANUP_DUE: Final = timedelta(days=2)
#: Versions with the fix of the WAL-reset bug, which may corrupt a database that several connections write
#: (https://www.sqlite.org/wal.html#walresetbug).
_SQLITE_FIXED: Final = (3, 51, 3)
_SQLITE_BACKPORTS: Final = {(3, 50): 7, (3, 44): 6}


def run_checks(place: Place) -> Iterator[Check]:
    """Look at everything. What depends on something that failed is left out."""
    yield environment(os.environ)
    found_schema = schema(place)
    found_key = key(place, is_new=_is_new(place, found_schema))
    found_store = store(place)
    yield found_key
    yield found_schema
    yield found_store
    found = [found_key, found_schema, found_store]
    if place.sqlite_file() is None and found_schema.status is not Status.FAIL:
        of_roles = list(roles(place))
        yield from of_roles
        found += of_roles
    if all(check.status is not Status.FAIL for check in found):
        yield from catalogue(place)
    yield tracing()
    yield disk(place)
    if place.sqlite_file() is not None:
        yield sqlite(sqlite3.sqlite_version_info)


def _is_new(place: Place, found_schema: Check) -> bool:
    """Whether nothing was ever made there, so that nothing can have been lost."""
    paths = (place.sqlite_file(), place.key_file(), place.store_directory())
    return found_schema.advice == _INIT and not any(path is not None and os.path.lexists(path) for path in paths)


def environment(variables: "os._Environ[str] | dict[str, str]") -> Check:
    """Look for variables that look like settings and are none."""
    from tenancy.settings import Settings

    prefix = "HAYSTACK_TENANCY_"
    known = {*Settings.model_fields, "data", "config", "secrets_dir"}
    unknown = sorted(
        name
        for name in variables
        if name.startswith(prefix) and name.removeprefix(prefix).lower().partition("__")[0] not in known
    )
    if unknown:
        return Check(
            "environment", Status.WARN, f"Not settings: {', '.join(unknown)}.", "Check the spelling, or ignore this."
        )
    return Check("environment", Status.OK, "No variable is misspelt.")


def key(place: Place, *, is_new: bool) -> Check:
    """Look whether the key is there and nobody else can read it. A key service is not asked: see `catalogue`."""
    from tenancy.keys.opening import open_keyring

    try:
        open_keyring(place.keys(), place.other_keys()).close()
    except TenancyError as error:
        return Check("key", Status.FAIL, str(error), _key_advice(place, is_new=is_new))
    if place.is_keyless():
        return Check(
            "key",
            Status.WARN,
            "There is none here: the setting keys is none:. Nothing can be read or written; what only removes works.",
            "Name the key where results are read or written; jobs that only clean up or erase need none.",
        )
    if place.key_file() is None:
        return Check("key", Status.OK, "It is where the setting keys says.")
    return Check("key", Status.OK, "It is there, and only this user can read it.")


def _key_advice(place: Place, *, is_new: bool) -> str:
    file = place.key_file()
    if file is None:
        if not place.lacks_key_variable():
            return "Correct the setting keys, or what it names."
        return f"Set it; `{MAKE_A_KEY}` makes a key, which reads nothing that was stored under another one."
    if is_new:
        return _INIT
    try:
        found = file.lstat()
    except OSError:
        return "Restore it from a backup; without it nothing can be read."
    if found.st_uid != os.geteuid():
        return f"Run as uid {found.st_uid}."
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        return f"chmod 600 {file}"
    return "Restore it from a backup; without it nothing can be read."


def schema(place: Place) -> Check:
    """Look whether the database answers and has this version's schema."""
    from tenancy.upgrade import check

    file = place.sqlite_file()
    try:
        check(place.database_url())
    except SchemaOutdated as error:
        # What is the matter, and what to do: two sentences.
        fact, _, advice = str(error).partition(". ")
        if _INIT_COMMAND in advice:
            advice = _INIT if file is None or not _holds_results(place) else f"Restore {file} from a backup."
        return Check("database", Status.FAIL, f"{fact}.", advice)
    except TenancyError as error:
        advice = "Start the database, or correct database_url." if file is None else f"Restore {file} from a backup."
        return Check("database", Status.FAIL, str(error), advice)
    return Check("database", Status.OK, "It answers, and its schema is current.")


def _holds_results(place: Place) -> bool:
    directory = place.store_directory()
    try:
        return directory is not None and any(directory.iterdir())
    except OSError:
        return False


def store(place: Place) -> Check:
    """Look whether the store's directory belongs to this user, and to nobody else."""
    if place.store_url() == "memory:":
        return Check("store", Status.WARN, "Results are lost when the process ends.", "Use file:/// or database:.")
    path = place.store_directory()
    if path is None:
        return Check("store", Status.OK, "Results are in the database.")
    try:
        found = path.stat()
    except OSError:
        return Check("store", Status.FAIL, f"{path} is not there.", _INIT)
    if not stat.S_ISDIR(found.st_mode):
        return Check("store", Status.FAIL, f"{path} is not a directory.", "Correct store_url.")
    if found.st_uid != os.geteuid():
        return Check("store", Status.FAIL, f"{path} belongs to uid {found.st_uid}.", f"Run as uid {found.st_uid}.")
    if found.st_mode & 0o077:
        return Check("store", Status.FAIL, f"Others may enter {path}.", f"chmod 700 {path}")
    return Check("store", Status.OK, "Only this user can enter it.")


def roles(place: Place) -> Iterator[Check]:
    """Look whether PostgreSQL's row-level security is there and holds the roles back."""
    from tenancy.startup import role_problems, server_problem

    try:
        problems = role_problems(place.database_url(), place.maintenance_url())
        of_server = server_problem(place.database_url())
    except TenancyError as error:
        yield Check("roles", Status.FAIL, str(error), "Correct maintenance_url, or run `tenancy init`.")
        return
    if problems:
        yield Check(
            "roles",
            Status.FAIL,
            " ".join(problems),
            "Run `tenancy init` with an owner_url, which makes both roles; put back what else was changed.",
        )
    elif place.maintenance_url() is None:
        yield Check(
            "roles",
            Status.WARN,
            "There is no maintenance_url, so cleanup, verify and listings of all tenants refuse.",
            "Set it where those run; services that only serve requests need none.",
        )
    else:
        yield Check("roles", Status.OK, "Row-level security is there and holds both roles back.")
    if of_server is not None:
        yield Check("server", Status.WARN, of_server, "Upgrade the server.")


def _refused(manager: "SessionManager", names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            manager.require_key(name)
        except TenancyError as error:
            yield name, str(error)


def catalogue(place: Place) -> Iterator[Check]:
    """Look whether key, catalogue and store belong together, and when cleanup last ran."""
    refused: dict[str, str] = {}
    try:
        with closing(place.open()) as manager:
            if not place.is_keyless():
                manager.require_key()
                refused = dict(_refused(manager, place.other_keys()))
            cleaned_at = manager.cleaned_at()
            # On PostgreSQL only the maintenance role knows what all tenants hang on.
            may_ask = place.sqlite_file() is not None or place.maintenance_url() is not None
            report = manager.key_report() if may_ask and not place.is_keyless() else None
    except TenancyError as error:
        advice = "Use the keys and the store that belong to it."
        if error.retryable:
            advice = "See that it answers, and try again."
        yield Check("catalogue", Status.FAIL, str(error), advice)
        return
    told = "It opens, without a key." if place.is_keyless() else "The key is the one it was made with."
    yield Check("catalogue", Status.OK, told)
    for name, why in refused.items():
        yield Check("other keys", Status.WARN, f"{name}: {why}", "Its tenants wait; nobody else does.")
    if report is not None:
        yield keys(report, now=datetime.now(UTC))
    if cleaned_at is None or datetime.now(UTC) - cleaned_at > _CLEANUP_DUE:
        last = moment(cleaned_at)
        yield Check("cleanup", Status.WARN, f"Last complete cleanup: {last}.", "Run `tenancy cleanup` from cron.")
        return
    yield Check("cleanup", Status.OK, f"Last complete cleanup: {moment(cleaned_at)}.")


def tracing() -> Check:
    """Look whether Haystack would put what tools return into traces."""
    from haystack.tracing.tracer import tracer

    if tracer.is_content_tracing_enabled:
        return Check(
            "tracing",
            Status.WARN,
            "Haystack traces content: what users say and tools return leaves this library's protection.",
            "Unset HAYSTACK_CONTENT_TRACING_ENABLED.",
        )
    return Check("tracing", Status.OK, "Haystack traces no content.")


def disk(place: Place) -> Check:
    """Look whether there is room on the disks of the store and the database, and nothing in the reserve's place."""
    paths = [path for path in (place.store_directory(), place.sqlite_file()) if path is not None]
    disks = [os.statvfs(existing) for path in paths if (existing := _existing(path)) is not None]
    if not disks:
        return Check("disk", Status.OK, "Nothing is kept on a disk of this machine.")
    free = [found.f_bavail * found.f_frsize for found in disks]
    detail = f"{size(min(free))} free."
    # A file system that counts no inodes says that it has none in all.
    if any(found.f_files and not found.f_favail for found in disks):
        return Check("disk", Status.FAIL, f"{detail} No inode is free.", "Make room; run `tenancy cleanup`.")
    if min(free) < _ROOM_BYTES // 16:
        return Check("disk", Status.FAIL, detail, "Make room; run `tenancy cleanup`.")
    if min(free) < _ROOM_BYTES:
        return Check("disk", Status.WARN, detail, "Make room; run `tenancy cleanup`.")
    if taken := _taken_from_reserve(place):
        return Check(
            "disk",
            Status.WARN,
            f"{detail} Something else stands in place of the reserve for a full disk.",
            f"Take away {', '.join(taken)}.",
        )
    return Check("disk", Status.OK, detail)


def _taken_from_reserve(place: Place) -> list[str]:
    from stores.errors import StoreError
    from stores.reserve import taken_names

    file = place.sqlite_file()
    with suppress(StoreError):
        return [] if file is None else taken_names(str(file))
    return []


def _existing(path: Path) -> Path | None:
    return next((each for each in (path, *path.absolute().parents) if each.exists()), None)


def sqlite(version: tuple[int, int, int]) -> Check:
    """Look whether this SQLite is one that keeps a database whole under concurrent writers."""
    written = ".".join(map(str, version))
    backport = _SQLITE_BACKPORTS.get(version[:2])
    if version >= _SQLITE_FIXED or (backport is not None and version[2] >= backport):
        return Check("sqlite", Status.OK, f"SQLite {written}.")
    return Check(
        "sqlite",
        Status.WARN,
        f"SQLite {written} has the WAL-reset bug, which can damage a database that several processes write.",
        "Use a Python with SQLite 3.51.3 or newer, or PostgreSQL.",
    )
