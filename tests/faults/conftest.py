"""Faults are tried in a child of the test run, since whoever traces waits for whatever child there is."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.faults.injector import Injector, Outcome, Seen, Work
from tests.forked import in_a_child


class Struck:
    """Strikes pieces of work that use the folder `watched`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "watched"
        self.folder.mkdir()

    def calls_of(self, work: Work) -> list[Seen]:
        """See `Injector.calls_of`."""
        told = in_a_child(lambda: [asdict(seen) for seen in Injector(self.folder).calls_of(work)])
        return [Seen(**one) for one in told]

    def strike(self, work: Work, *, mode: str, number: int) -> Outcome:
        """See `Injector.strike`."""
        told: dict[str, Any] = in_a_child(lambda: asdict(Injector(self.folder).strike(work, mode=mode, number=number)))
        struck = told.pop("struck")
        return Outcome(None if struck is None else Seen(**struck), **told)

    def strike_first(self, name: str, work: Callable[[], Any], *, mode: str) -> Outcome:
        """Strike the first call of this name, on whatever file of the folder."""
        hit = [seen for seen in self.calls_of(lambda: work) if seen.is_hit_by(mode)]
        number = 1 + next(n for n, seen in enumerate(hit) if seen.name == name and seen.target is not None)
        return self.strike(lambda: work, mode=mode, number=number)


@pytest.fixture
def struck(tmp_path: Path) -> Struck:
    """Strikes work on a folder."""
    return Struck(tmp_path)
