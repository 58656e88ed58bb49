"""A data directory that faults are tried on: who is in it, what they have stored, and what must become of it."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from stores.reserve import reserve_names
from tenancy import Session, SessionManager
from tenancy.quotas import Lifetime
from tenancy.startup import CATALOGUE_FILE, RESULTS_FOLDER

#: Which way results take: all of them into files, or all of them inline.
WAYS: Final = {"files": 0, "inline": 32768}
#: `"kept"`: it must be there whatever happens. `"target"`: the operation is to remove it. `"ended"`: it has expired, or
#: somebody before has begun to remove it.
Fate = Literal["kept", "target", "ended"]

_RESERVE: Final = frozenset(reserve_names(CATALOGUE_FILE))

#: In several pages of a database, and still inline.
LARGE: Final = "".join(f"{number * 7919 % 1_000_003:06} {number % 97}\n" for number in range(2000))


@dataclass(frozen=True, slots=True)
class Entry:
    """One result."""

    tenant: str
    user: str
    session: str
    reference: str
    content: str
    fate: Fate = "kept"

    @property
    def room(self) -> dict[str, str]:
        """Whose and which session it is in, as a manager takes it."""
        return {"tenant": self.tenant, "user": self.user, "session": self.session}

    def as_target(self) -> "Entry":
        """The same result, which an operation is to remove."""
        return replace(self, fate="target")


@dataclass(slots=True)
class World:
    """
    What is in a data directory.

    :param facts: Whatever else an operation wants to know.
    """

    entries: list[Entry] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def with_fate(self, fate: Fate) -> Iterator[Entry]:
        """The results with one fate."""
        return (entry for entry in self.entries if entry.fate == fate)

    def as_json(self) -> str:
        """For a pipe between processes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "World":
        """What `as_json` was called on."""
        found = json.loads(text)
        return cls([Entry(**entry) for entry in found["entries"]], found["facts"])


@dataclass(frozen=True, slots=True)
class House:
    """
    A data directory in a folder of its own. Not open: whoever wants it opens it.

    :param inline_bytes: See `Settings`.
    """

    folder: Path
    inline_bytes: int
    #: Whoever opened it; for whoever wants all of them closed.
    managers: list[SessionManager] = field(default_factory=list, compare=False)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def results(self) -> Path:
        """Where the files of its store are."""
        return self.data / RESULTS_FOLDER

    @property
    def database_url(self) -> str:
        """Its catalogue."""
        return f"sqlite:///{self.data / CATALOGUE_FILE}"

    def open(self, *, later: timedelta = timedelta(0)) -> SessionManager:
        """Open it as somebody does who wants nothing lost when the power goes."""
        manager = SessionManager.local(self.data, inline_bytes=self.inline_bytes, durability="power")
        manager.clock.advance(later)
        self.managers.append(manager)
        return manager

    def execute(self, statement: str) -> None:
        """Change the catalogue behind the library's back."""
        with closing(sqlite3.connect(self.data / CATALOGUE_FILE)) as connection, connection:
            connection.execute(statement)

    def become_copy_of(self, template: "House") -> None:
        """Throw away what is there and take what a template has."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(template.folder, self.folder, copy_function=_copied)


def _copied(source: str, target: str) -> None:
    if Path(source).name in _RESERVE:
        # Megabytes that nobody ever writes to: they are made, and given up.
        os.link(source, target)
    else:
        shutil.copy2(source, target)


class Filler:
    """
    Puts people's results into a house and remembers them.

    :param house: May be empty as yet.
    """

    def __init__(self, house: House) -> None:
        self.manager = house.open()
        self.world = World()

    def session(self, tenant: str, user: str, session: str, *, lifetime: Lifetime | None = None) -> Session:
        """Open a session."""
        return self.manager.session(tenant=tenant, user=user, session=session, lifetime=lifetime)

    def write(
        self,
        tenant: str,
        user: str,
        session: str,
        *,
        content: str | None = None,
        fate: Fate = "kept",
        lifetime: Lifetime | None = None,
    ) -> Entry:
        """Store a result in a session."""
        content = content or f"number {len(self.world.entries)} of {user} of {tenant}"
        reference = self.session(tenant, user, session, lifetime=lifetime).write(content)
        entry = Entry(tenant, user, session, reference, content, fate)
        self.world.entries.append(entry)
        return entry

    def people(self) -> None:
        """Somebody's session that most operations are about, and others' that no operation is about."""
        self.write("acme", "ann", "chat")
        self.write("acme", "ann", "chat", content=LARGE)
        self.write("acme", "bob", "chat")
        self.write("globex", "ann", "chat", content=LARGE)

    def filled(self) -> World:
        """Close the house and tell what is in it."""
        self.manager.close()
        return self.world


def filled_with_people(house: House) -> World:
    """Fill a house in the way most operations find it."""
    filler = Filler(house)
    with closing(filler.manager):
        filler.people()
        return filler.filled()
