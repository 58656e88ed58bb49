"""Kills processes at random moments, again and again, and puts others in their place."""

import multiprocessing
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Final

from tests.faults.house import House
from tests.faults.kills.houses import PostgresHouse, house_on
from tests.faults.kills.journal import Story, story
from tests.faults.kills.lives import Life
from tests.faults.kills.verdict import verdict
from tests.forked import in_a_child

#: Who is at work at any moment.
CREW: Final = ("writer", "writer", "writer", "reader", "deleter", "cleaner")
#: How many lines a life is to have in its journal before it ends: none while it starts, an odd number in the middle of
#: something. And how much longer it lives then, at most; the rest is up to chance.
_LINES: Final = (0, 1, 1, 1, 2, 3, 3, 5, 7, 12)
_MORE_SECONDS: Final = 0.02
#: Who does not get that far is killed all the same.
_PATIENCE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.002
#: How far time moves at each death, so that leases run out and brief sessions end while everybody is at work. A lease
#: is to be long enough for a write whose process nobody lets run for a while.
_STEP_US: Final = 2 * 1_000_000


@dataclass(frozen=True, slots=True)
class Killed:
    """
    What became of a run.

    :param kills: How many processes were killed, by role.
    :param in_the_middle: How many of them were in the middle of an operation.
    :param done: How many operations of each kind were acknowledged.
    :param broken: What is not as it must be.
    """

    database: str
    seed: int
    kills: dict[str, int]
    in_the_middle: int
    done: dict[str, int]
    broken: list[str] = field(default_factory=list)


def kill(
    database: str, *, kills: int, seed: int, told: Callable[[int, int], None] = lambda done, total: None
) -> Killed:
    """
    Let a crew work on a data directory and kill one of them after the other.

    :param database: One of `DATABASES`. Results go inline or into files, by their size.
    :param told: Called with how many were killed so far, and how many there will be.
    """
    with tempfile.TemporaryDirectory(prefix="tenancy-kills-") as name:
        folder, journals = Path(name) / "house", Path(name) / "journals"
        folder.mkdir()
        journals.mkdir()
        with house_on(database, folder=folder) as house:
            crew = Crew(house, journals, seed=seed)
            try:
                for number in range(kills):
                    crew.kill_one()
                    told(number + 1, kills)
            finally:
                crew.kill_all()
            heard = story(sorted(journals.glob("*.jsonl")))
            broken = [*crew.failures, *in_a_child(partial(_verdict, house, heard, crew.offset_us.value))]
            return Killed(database, seed, crew.kills, heard.cut_off, heard.done, broken)


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody at work."""

    role: str
    process: BaseProcess
    journal: Path

    def lines(self) -> int:
        """How much is in the journal."""
        try:
            return self.journal.read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


class Crew:
    """Everybody who is at work."""

    def __init__(self, house: House | PostgresHouse, journals: Path, *, seed: int) -> None:
        self._house = house
        self._journals = journals
        self._chance = random.Random(seed)
        self._context = multiprocessing.get_context("fork")
        self._births = 0
        #: Shared with all of them.
        self.offset_us = RawValue("q", 0)
        self.kills = dict.fromkeys(CREW, 0)
        #: Who ended without being killed.
        self.failures: list[str] = []
        self._members = [self._born(role) for role in CREW]

    def kill_one(self) -> None:
        """Wait for a moment and kill somebody."""
        place = self._chance.randrange(len(self._members))
        member = self._members[place]
        lines, more_seconds = self._chance.choice(_LINES), self._chance.uniform(0, _MORE_SECONDS)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        ended: list[object] = []
        while not ended and member.lines() < lines and time.monotonic() < deadline:
            ended = self._ended_within(_LOOK_SECONDS)
        ended = ended or self._ended_within(more_seconds)
        if ended:
            # Somebody ended without being killed, who then is the one to be replaced.
            place = next(n for n, other in enumerate(self._members) if other.process.sentinel in ended)
        self._end(self._members[place])
        self.kills[self._members[place].role] += 1
        self.offset_us.value += _STEP_US
        self._members[place] = self._born(self._members[place].role)

    def kill_all(self) -> None:
        """Let nobody live."""
        for member in self._members:
            self._end(member)

    def _ended_within(self, seconds: float) -> list[object]:
        return list(wait([member.process.sentinel for member in self._members], timeout=seconds))

    def _end(self, member: Member) -> None:
        member.process.kill()
        member.process.join()
        if member.process.exitcode != -signal.SIGKILL:
            self.failures.append(f"a {member.role} ended by itself, with {member.process.exitcode}")

    def _born(self, role: str) -> Member:
        self._births += 1
        life = Life(
            name=f"{role}-{self._births}",
            open=self._house.open,
            journals=self._journals,
            offset_us=self.offset_us,
            seed=self._chance.getrandbits(64),
        )
        process = self._context.Process(target=life.live, args=(role,), daemon=True)
        process.start()
        return Member(role, process, life.journal)


def _verdict(house: House | PostgresHouse, heard: Story, offset_us: int) -> list[str]:
    return verdict(house, heard, offset_us=offset_us)
