"""What the processes do that are killed: write, read, delete and clean up, each with a manager of its own, for ever."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_int64
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, NoReturn

from tenancy import ResultNotFound, Session, SessionManager, SessionNotFound, StorageUnavailable, TenancyError
from tenancy.quotas import Lifetime
from tests.faults.kills.journal import Journal, Room, story

#: Rooms that stay, and some that end while everybody is at work: by expiry, or because somebody deletes them.
STAYING: Final[tuple[Room, ...]] = tuple(
    (tenant, user, "chat") for tenant in ("acme", "globex") for user in ("ann", "bob")
)
BRIEF: Final[tuple[Room, ...]] = tuple((tenant, "ann", "brief") for tenant in ("acme", "globex"))
_LIFETIMES: Final = {"chat": None, "brief": Lifetime(idle=timedelta(minutes=1), maximum=timedelta(minutes=1))}
#: Inline, inline in several pages, and into a file although half of it is compressed away.
_SIZES: Final = (50, 9_000, 100_000)
#: What may happen to somebody who did nothing wrong: a brief room has ended, or ends under a write of theirs.
_ENDED: Final = (SessionNotFound, ResultNotFound)
_ENDS: Final = (*_ENDED, StorageUnavailable)


@dataclass(frozen=True, slots=True)
class Life:
    """
    One process, from its start to its death.

    :param name: Like no other's.
    :param offset_us: How far time has been moved, for everybody alike.
    """

    name: str
    open: Callable[[], SessionManager]
    journals: Path
    offset_us: c_int64
    seed: int

    @property
    def journal(self) -> Path:
        """Where its journal is."""
        return self.journals / f"{self.name}.jsonl"

    def live(self, role: str) -> NoReturn:
        """Do what this role does until somebody ends it."""
        chance = random.Random(self.seed)
        journal = Journal(self.journal)
        try:
            manager = self.open()
            # What is killed has no say in when: whoever ends by itself has failed.
            while True:
                manager.clock.offset_us = self.offset_us.value
                ROLES[role](self, manager, journal, chance)
        except BaseException as error:
            journal.wrong(f"a {role} met {type(error).__name__}: {error}")
            raise

    def write(self, manager: SessionManager, journal: Journal, chance: random.Random) -> None:
        """Store a result of which everything follows from its name."""
        room = chance.choice(STAYING + BRIEF)
        key = f"{self.name}-{chance.getrandbits(64):016x}"
        journal.begun("write", key=key, room=room)
        try:
            reference = opened(manager, room).write(content_of(key), name=key)
        except TenancyError as error:
            journal.refused("write", key=key, room=room, error=type(error).__name__)
            if room in STAYING or not isinstance(error, _ENDS):
                raise
        else:
            journal.done("write", key=key, room=room, reference=reference)

    def read(self, manager: SessionManager, journal: Journal, chance: random.Random) -> None:
        """Read a room from one end to the other, and one result that was acknowledged to somebody."""
        room = chance.choice(STAYING + BRIEF)
        journal.begun("read")
        with _unless_ended(room):
            session = opened(manager, room)
            for result in list(session.results())[:10]:
                with _unless_ended(room, ResultNotFound):  # deleted since it was listed
                    if session.read(result.reference) != content_of(result.name):
                        journal.wrong(f"{result.name} reads as something else")
        acknowledged = self._acknowledged(chance)
        if acknowledged is not None:
            self._read_acknowledged(manager, journal, *acknowledged)
        journal.done("read")

    def delete(self, manager: SessionManager, journal: Journal, chance: random.Random) -> None:
        """Delete a result that was acknowledged to somebody, or now and then a whole brief session."""
        if chance.random() < 0.1:
            tenant, user, session = chance.choice(BRIEF)
            journal.begun("end")
            manager.delete_session(tenant=tenant, user=user, session=session)
            journal.done("end")
        acknowledged = self._acknowledged(chance)
        if acknowledged is None:
            return
        _, room, reference = acknowledged
        journal.begun("delete", room=room, reference=reference)
        try:
            opened(manager, room).delete(reference)
        except ResultNotFound as error:  # somebody was faster
            journal.refused("delete", room=room, reference=reference, error=type(error).__name__)
        else:
            journal.done("delete", room=room, reference=reference)

    def clean(self, manager: SessionManager, journal: Journal, chance: random.Random) -> None:
        """Reclaim, in steps of one size or another."""
        journal.begun("cleanup")
        manager.cleanup(batch_size=chance.choice((1, 3, 500)))
        journal.done("cleanup")

    def _acknowledged(self, chance: random.Random) -> tuple[str, Room, str] | None:
        """Choose among what one of the writers has written in a room that stays."""
        files = sorted(self.journals.glob("writer-*.jsonl"))
        if not files:
            return None
        told = story([chance.choice(files)])
        written = [(key, room, reference) for key, (room, reference) in told.written.items() if room in STAYING]
        return chance.choice(written) if written else None

    def _read_acknowledged(
        self, manager: SessionManager, journal: Journal, key: str, room: Room, reference: str
    ) -> None:
        try:
            if opened(manager, room).read(reference) != content_of(key):
                journal.wrong(f"{key} was acknowledged and reads as something else")
        except ResultNotFound:
            if (room, reference) not in story(sorted(self.journals.glob("deleter-*.jsonl"))).deleting:
                journal.wrong(f"{key} was acknowledged, nobody deletes it, and it is not there")


def content_of(key: str) -> str:
    """Return what was written under a name."""
    chance = random.Random(key)
    return f"{key}:{chance.randbytes(chance.choice(_SIZES) // 2).hex()}"


def opened(manager: SessionManager, room: Room) -> Session:
    """Open a room."""
    tenant, user, session = room
    return manager.session(tenant=tenant, user=user, session=session, lifetime=_LIFETIMES[session])


@contextmanager
def _unless_ended(room: Room, *more: type[TenancyError]) -> Iterator[None]:
    try:
        yield
    except more:
        pass
    except _ENDED:
        if room in STAYING:
            raise


ROLES: Final[Mapping[str, Callable[[Life, SessionManager, Journal, random.Random], None]]] = {
    "writer": Life.write,
    "reader": Life.read,
    "deleter": Life.delete,
    "cleaner": Life.clean,
}
