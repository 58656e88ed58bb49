"""Records one operation, makes every state real in which a power loss may leave it, and judges each."""

import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stores.connections import Durability, _connect_sqlite
from tenancy.startup import CATALOGUE_FILE
from tests.power_loss.operations import Mark, Recording
from tests.power_loss.promises import Promises, Seen, faults
from tests.power_loss.recorder import Tell, record
from tests.power_loss.scenarios import DATA, Scenario, Stage, Teller
from tests.power_loss.seeing import see
from tests.power_loss.states import Ground, Way, ways, whole
from tests.power_loss.volume import Standing, Volume, digest, make_real

#: Each state is written and removed again, thousands of times: in memory where there is such a place.
_MEMORY: Final = "/dev/shm"


@dataclass(slots=True)
class Outcome:
    """
    What became of one operation.

    :param moments: How many moments between operations there are, the first and the last included.
    :param states: How many states these may leave, each counted at each moment.
    :param distinct: How many of these differ.
    :param recovered: How many still differ once SQLite has recovered its database; each was opened and looked through.
    :param refused: In how many of `states` the directory does not open, all of them before the first start was over.
    :param broken: In how many of `states` a promise is broken.
    :param faults: Which, and in how many states each.
    """

    operations: int = 0
    moments: int = 0
    states: int = 0
    distinct: int = 0
    recovered: int = 0
    refused: int = 0
    broken: int = 0
    faults: Counter[str] = field(default_factory=Counter)


def try_out(
    scenario: Scenario,
    *,
    durability: Durability,
    double: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Outcome:
    """
    Try an operation. With `"process"` only the death of the process is tried, which loses nothing that was done.

    :param double: Makes something of the library do worse, while it is recorded.
    """
    with _folder() as folder:
        place = folder / "recorded"
        place.mkdir()
        promises = scenario.prepare(place)

        def work(tell: Tell) -> None:
            with double():
                scenario.perform(Stage(place, durability, Teller(tell), promises))

        recording = record(place, work).in_frames()
        return Trial(recording, promises, folder / "state", only_deaths=durability == "process").run()


class Trial:
    """
    Goes through the moments of one recording.

    :param place: Where states are made real, one at a time.
    :param only_deaths: Nothing is lost but what had not been done yet.
    """

    def __init__(self, recording: Recording, promises: Promises, place: Path, *, only_deaths: bool) -> None:
        self._recording = recording
        self._promises = promises
        self._place = place
        self._only_deaths = only_deaths
        self._keys = self._all_promises().keys
        #: What the files of a database become once SQLite has recovered them.
        self._databases: dict[bytes, bytes] = {}
        #: What was seen, by what was there and at what time; and by what was there once SQLite had recovered.
        self._seen: dict[tuple[bytes, int], Seen] = {}
        self._looked: dict[tuple[bytes, int], Seen] = {}
        self.outcome = Outcome(operations=recording.changes)

    def run(self) -> Outcome:
        """Judge every state at every moment."""
        ground = Ground(Volume.of(self._recording))
        states: dict[Way, bytes] = {}
        self._judge(ground, states)
        for place, operation in enumerate(self._recording.operations):
            if isinstance(operation, Mark):
                self._promises = self._promises.after(operation.said)
            safe = ground.safe
            ground.advance(place, operation)
            if ground.safe is not safe:
                states = {}
            self._judge(ground, states)
        self.outcome.distinct, self.outcome.recovered = len(self._seen), len(self._looked)
        return self.outcome

    def _all_promises(self) -> Promises:
        promises = self._promises
        for operation in self._recording.operations:
            if isinstance(operation, Mark):
                promises = promises.after(operation.said)
        return promises

    def _judge(self, ground: Ground, states: dict[Way, bytes]) -> None:
        """:param states: What each way led to since something last became safe."""
        self.outcome.moments += 1
        everything = whole(ground)
        chance = random.Random(self.outcome.moments)
        chosen = {everything} if self._only_deaths else {everything, *ways(ground, chance=chance)}
        for way in chosen:
            seen = self._see(ground, way, states)
            found = faults(self._promises, seen, all_there=way == everything)
            self.outcome.states += 1
            self.outcome.refused += bool(seen.refused)
            self.outcome.broken += bool(found)
            self.outcome.faults.update(set(found))

    def _see(self, ground: Ground, way: Way, states: dict[Way, bytes]) -> Seen:
        offset_us = self._promises.offset_us
        state = states.get(way)
        if state is not None and (state, offset_us) in self._seen:
            return self._seen[state, offset_us]
        tree = ground.state(way).tree()
        state = states[way] = digest(tree)
        if (state, offset_us) not in self._seen:
            recovered = self._recovered(tree), offset_us
            if recovered not in self._looked:
                with self._made_real(tree) as data:
                    self._looked[recovered] = see(data, keys=self._keys, offset_us=offset_us)
            self._seen[state, offset_us] = self._looked[recovered]
        return self._seen[state, offset_us]

    def _recovered(self, tree: dict[str, Standing]) -> bytes:
        """
        Return what no other state has once SQLite has opened its database, as the library does, and recovered it.

        Thousands of combinations of frames lead to the same few databases. What the library makes of these depends on
        nothing else.
        """
        parts: tuple[dict[str, Standing], dict[str, Standing]] = {}, {}
        for path, there in tree.items():
            parts[path.startswith(f"{DATA}/{CATALOGUE_FILE}")][path] = there
        others, database = parts
        known = digest(database)
        if known not in self._databases:
            self._databases[known] = self._recover(database) if database else b""
        return digest(others) + self._databases[known]

    def _recover(self, database: dict[str, Standing]) -> bytes:
        folders = {path: Standing(0o700, None, path) for path in ("", DATA)}
        with self._made_real({**folders, **database}) as data:
            try:
                with contextlib.closing(_connect_sqlite(str(data / CATALOGUE_FILE), "power", 1)) as connection:
                    content = connection.serialize()
            except sqlite3.Error:
                return digest(database)
            names, mode = sorted(os.listdir(data)), (data / CATALOGUE_FILE).stat().st_mode
        return hashlib.sha256(repr((names, mode)).encode() + content).digest()

    @contextlib.contextmanager
    def _made_real(self, tree: dict[str, Standing]) -> Iterator[Path]:
        self._place.mkdir()
        try:
            make_real(tree, self._place)
            yield self._place / DATA
        finally:
            shutil.rmtree(self._place)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    memory = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="power-loss-", dir=memory) as folder:
        yield Path(os.path.realpath(folder))
