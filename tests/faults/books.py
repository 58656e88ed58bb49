"""A look at rows, counters and files from behind: do they agree, and is anything left that belongs to nobody?"""

import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from stores.entries import TRASH
from stores.reserve import reserve_names
from tenancy.startup import CATALOGUE_FILE, KEY_FILE, RESULTS_FOLDER
from tests.core.ledger import Ledger

_KNOWN: Final = frozenset({CATALOGUE_FILE, KEY_FILE, RESULTS_FOLDER, *reserve_names(CATALOGUE_FILE)})


class Audited(Protocol):
    """What can be looked at: a data directory that nobody has open."""

    @property
    def data(self) -> Path: ...

    @property
    def results(self) -> Path: ...

    @property
    def database_url(self) -> str: ...


def books(house: Audited) -> Iterator[str]:
    """Say what is wrong, a sentence each, in a house that cleanup has been through."""
    with closing(Ledger(house)) as ledger:
        try:
            ledger.require_balanced()
        except AssertionError as error:
            yield f"rows, counters and files do not agree: {described(error)}"
        if set(ledger.states()) - {"committed"}:
            yield "a result is left half done"
        sessions = ledger.all("SELECT tenant_id, session_id, state FROM tenancy_sessions")
        if any(state != "live" for _, _, state in sessions):
            yield "a session is left half removed"
        if ledger.count("tenancy_session_keys") != len(sessions):
            yield "a key is left without its session, or a session without its key"
        rooms = {(tenant, session) for tenant, session, _ in sessions}
        for directory in ledger.directories:
            parts = directory.relative_to(house.results).parts
            if parts[0] == TRASH:
                yield "something is left in the trash"
            elif parts not in rooms and parts not in {room[:1] for room in rooms}:
                yield "a directory is left that belongs to nobody"
    strangers = {path.name for path in house.data.iterdir()} - _KNOWN
    if strangers:
        yield f"there are files in the data directory that nobody knows: {sorted(strangers)}"


def described(error: Exception) -> str:
    """Say what went wrong and in which line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} in {where.name}: {where.line}"
