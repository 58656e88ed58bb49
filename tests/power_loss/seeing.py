"""Opens a data directory after a power loss and looks at everything in it: through the library, and from behind."""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

from stores.entries import TRASH
from stores.reserve import reserve_names
from tenancy import ConfigurationError, SchemaOutdated, SessionManager, TenancyError
from tenancy.startup import CATALOGUE_FILE, KEY_FILE, RESULTS_FOLDER
from tests.power_loss.promises import Key, Seen

#: Longer than any lease or claim, and shorter than any lifetime that a result must outlast.
_LATER: Final = timedelta(minutes=3)
_BELONGS: Final = {
    CATALOGUE_FILE,
    f"{CATALOGUE_FILE}-wal",
    f"{CATALOGUE_FILE}-shm",
    *reserve_names(CATALOGUE_FILE),
    KEY_FILE,
    RESULTS_FOLDER,
}
#: What `verify` may find and is counted or repaired.
_EXPECTED_FINDINGS: Final = {"unknown_bytes", "interrupted", "unfinished_erasure"}


def see(data: Path, *, keys: Iterable[Key], offset_us: int) -> Seen:
    """
    Open a data directory, read everything, clean up and verify, read again, and go on working in it.

    :param keys: References that were given out at some time. Each is asked for, listed or not.
    :param offset_us: What the clock is moved by.
    """
    with _quietly():
        try:
            # Nobody pulls the plug here.
            manager = SessionManager.local(data, durability="process")
        except (ConfigurationError, SchemaOutdated) as error:
            return Seen(refused=f"{type(error).__name__}: {str(error).replace(str(data), 'DATA')}")
        except Exception as error:  # no documented answer
            return Seen(problems=(f"Opening it raises {type(error).__name__}: {error}",))
        with manager:
            manager.clock.offset_us = offset_us
            try:
                return _seen(manager, data, frozenset(keys))
            except (TenancyError, sqlite3.Error) as error:
                return Seen(problems=(f"Working in it raises {type(error).__name__}: {error}",))


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Each damaged result is an event, and naive orders leave thousands."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def digest_of(content: str | bytes) -> str:
    """Return what no other content has; never letters only, like the name of an error."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return f"{type(content).__name__}:{sha256(data).hexdigest()}"


def _seen(manager: SessionManager, data: Path, keys: frozenset[Key]) -> Seen:
    problems: list[str] = []
    read = _read(manager, keys)
    with _behind(data) as catalogue:
        problems += _drifts(catalogue)
    manager.clock.advance(_LATER)
    report = manager.cleanup()
    if not report.complete:
        problems.append("Cleanup did not come to its end")
    verified = manager.verify(repair=True)
    for finding in verified.findings:
        if finding.kind not in _EXPECTED_FINDINGS or not (finding.repaired or finding.kind == "unknown_bytes"):
            problems.append(f"Verify finds {finding.kind}")
    if _read(manager, keys) != read:
        problems.append("Cleanup changes what can be read")
    with _behind(data) as catalogue:
        problems += [*_drifts(catalogue), *_leftovers(catalogue)]
        unknown, misplaced = _compared(catalogue, data / RESULTS_FOLDER)
    reported = sum(finding.count for finding in verified.findings if finding.kind == "unknown_bytes")
    if reported != unknown:
        problems.append(f"Verify reports {reported} unknown files of {unknown}")
    strays = [_kind_of(name) for name in sorted(os.listdir(data)) if name not in _BELONGS]
    problems += misplaced + [f"A file {name} is left" for name in strays] + _goes_on(manager)
    return Seen(read=read, unknown_files=unknown, problems=tuple(dict.fromkeys(problems)))


def _read(manager: SessionManager, keys: frozenset[Key]) -> Mapping[Key, str]:
    found: dict[Key, str] = {}
    for info in manager.sessions():
        who = (info.tenant, info.user, info.session or "")
        session = manager.session(tenant=info.tenant, user=info.user, session=info.session)
        listed = {result.reference for result in session.results()}
        for reference in listed | {key[3] for key in keys if key[:3] == who}:
            try:
                found[(*who, reference)] = digest_of(session.read(reference))
            except TenancyError as error:
                if reference in listed or type(error).__name__ != "ResultNotFound":
                    found[(*who, reference)] = type(error).__name__
    return found


def _goes_on(manager: SessionManager) -> list[str]:
    """Whatever was lost, the next results are stored and read like any others."""
    session = manager.session(tenant="acme", user="ann", session="afterwards")
    for content in ("small", os.urandom(50_000)):
        if session.read(session.write(content)) != content:
            return ["What is written afterwards reads as something else"]
    manager.delete_session(tenant="acme", user="ann", session="afterwards")
    return []


@contextlib.contextmanager
def _behind(data: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(data / CATALOGUE_FILE)) as catalogue:
        yield catalogue


def _drifts(catalogue: sqlite3.Connection) -> list[str]:
    """Counters that are not the sum of their rows, whatever the rows' state."""
    totals: dict[str, list[int]] = {}
    owners: dict[str, tuple[str, str, str]] = {}
    for tenant, user, session in catalogue.execute("SELECT tenant_id, user_id, session_id FROM tenancy_sessions"):
        owners[session] = (session, user, tenant)
        totals.setdefault(session, [0, 0, 0])
        for owner in (user, tenant):
            totals.setdefault(owner, [0, 0, 0])[2] += 1
    for session, size in catalogue.execute("SELECT session_id, size_bytes FROM tenancy_results"):
        for owner in owners[session]:
            totals[owner][0] += size
            totals[owner][1] += 1
    counted = {
        owner: found
        for owner, *found in catalogue.execute("SELECT owner_id, used_bytes, results, sessions FROM tenancy_usage")
        if any(found) or owner in totals
    }
    return [] if counted == totals else ["Usage is not the sum of the rows"]


def _leftovers(catalogue: sqlite3.Connection) -> Iterator[str]:
    """Rows of which nothing may be left after a cleanup."""
    for table, where in (
        ("tenancy_results", "state != 'committed'"),
        ("tenancy_sessions", "state != 'live'"),
        ("tenancy_users", "state != 'live'"),
        ("tenancy_tenants", "state != 'live'"),
        ("tenancy_receipts", "finished_at_us IS NULL"),
    ):
        (count,) = catalogue.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()
        if count:
            yield f"{count} rows of {table} are left with {where}"


def _compared(catalogue: sqlite3.Connection, results: Path) -> tuple[int, list[str]]:
    """Count the files without a row; say what rows lack, and which directories belong to nobody."""
    columns = "tenant_id, session_id, result_id, stored_bytes"
    rows = set(catalogue.execute(f"SELECT {columns} FROM tenancy_results WHERE inline = 0"))
    inline = set(catalogue.execute(f"SELECT {columns} FROM tenancy_results WHERE inline = 1"))
    blobs = set(catalogue.execute("SELECT outer_name, inner_name, name, length(data) FROM tenancy_blobs"))
    rooms = set(catalogue.execute("SELECT tenant_id, session_id FROM tenancy_sessions"))
    paths = [path.relative_to(results).parts for path in results.rglob("*")]
    files = {(*parts, (results.joinpath(*parts)).stat().st_size) for parts in paths if len(parts) == 3}
    problems = ["A row has no bytes"] * bool(rows - files) + ["Rows and blobs differ"] * (inline != blobs)
    problems += ["Something is left in the trash"] * any(parts[0] == TRASH and len(parts) > 1 for parts in paths)
    abandoned = [parts for parts in paths if len(parts) == 2 and parts[0] != TRASH and parts not in rooms]
    problems += ["A directory belongs to no session"] * bool(abandoned)
    return len(files - rows), problems


def _kind_of(name: str) -> str:
    """A name without what chance put into it."""
    return name.split(KEY_FILE)[0] + f"{KEY_FILE}…" if KEY_FILE in name else name
