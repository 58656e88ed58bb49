"""Somebody who may write below the store's root: what he finds there, what he puts there, and what he wants to get."""

import os
import random
import string
from pathlib import Path

from tenancy import Session
from tests.attacks.outside import Outside, differences, files_of
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.stores.files import exchange

#: Neither in the database whatever is inline, nor read whole for a page of it.
LARGE_TEXT = "".join(random.Random(1).choices(string.printable, k=120_000))
LARGE_BYTES = b"x" * 50_000


class Intruder:
    """
    Knows where everything is, and has a directory outside that looks like the store's.

    :param folder: Where that directory is to be.
    """

    def __init__(self, factory: ManagerFactory, ledger: Ledger, folder: Path) -> None:
        self._ledger = ledger
        self._root = factory.results
        self._attic = folder / "attic"
        self._outside = Outside(folder / "outside")
        self._outside.fill({place: size for place, size in files_of(self._root).items() if place[0] != "trash"})
        self._before = self._outside.snapshot()

    def file_of(self, reference: str) -> Path:
        """Where a result is."""
        number = int(reference.split("-")[1])
        name = self._ledger.one("SELECT result_id FROM tenancy_results WHERE number = :number", number=number)
        (path,) = [path for path in self._ledger.files if path.name == name]
        return path

    def room_of(self, session: Session) -> Path:
        """Where a session's results are."""
        ids = session._opened.ids
        return self._root / ids.tenant_id / ids.session_id

    def place_of(self, session: Session, level: str) -> Path:
        """The directory of a session or of its tenant."""
        return self.room_of(session) if level == "session" else self.room_of(session).parent

    def target_for(self, path: Path) -> Path:
        """What outside looks like a file of the store's."""
        return Path(self._outside.file(path.name))

    def swap(self, path: Path) -> None:
        """Let a directory and a link to one outside change places, or change back."""
        if not os.path.lexists(self._attic):
            rooms_above = path.parent == self._root
            self._attic.symlink_to(self._outside.outer if rooms_above else self._outside.room)
        exchange(path, self._attic)

    def changes(self) -> list[str]:
        """What is not outside as it was."""
        return differences(self._before, self._outside.snapshot())
