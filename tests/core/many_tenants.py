"""
Many tenants in one process, each with a canary of its own, doing everything at once and prying into each other's rooms.

All call their users and sessions the same, and any thread works for anybody: what keeps them apart is the scope alone.
"""

import logging
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tenancy import ResultNotFound, Session, SessionManager
from tests.leaks import shown_by_error

THREADS: Final = 32
TENANTS: Final = 20
USERS: Final = ("ann", "bob")
SESSIONS: Final = ("chat", "notes")

_CANARY: Final = re.compile(r"canary-(\d\d)-[0-9a-f]{8}")
#: The share of each operation, in percent. Nothing is deleted faster than it is written.
_MIX: Final = {
    "write": 25,
    "read": 20,
    "page": 15,
    "list": 8,
    "delete": 7,
    "usage": 4,
    "sessions": 4,
    "pry into a result": 12,
    "pry into a session": 5,
}


@dataclass(slots=True)
class Room:
    """A session, and what must be in it."""

    tenant: int
    session: Session
    lock: threading.Lock = field(default_factory=threading.Lock)
    contents: dict[str, str | bytes] = field(default_factory=dict)

    def any_reference(self, chance: random.Random) -> str | None:
        with self.lock:
            return chance.choice(list(self.contents)) if self.contents else None

    def content(self, reference: str) -> str | bytes | None:
        with self.lock:
            return self.contents.get(reference)


@dataclass(frozen=True, slots=True)
class Figures:
    """
    How it went.

    :param operations: How many there were of each kind.
    :param foreign: Where a canary of another tenant was seen.
    :param failures: What went wrong otherwise.
    """

    operations: Counter[str]
    seconds: float
    foreign: list[str]
    failures: list[str]

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.operations.items()))
        total = sum(self.operations.values())
        return (
            f"{total:,} operations of {TENANTS} tenants in {THREADS} threads in {self.seconds:.1f} s"
            f" ({total / self.seconds:,.0f}/s; {kinds}); foreign canaries: {len(self.foreign)};"
            f" other failures: {len(self.failures)}"
        )


class _Listener(logging.Handler):
    """Looks for any canary at all in every record there is: none has a place in a log."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(level=logging.NOTSET)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if _CANARY.search(f"{record.getMessage()} {vars(record)}"):
            self._found.append(f"log of {record.name}")


class Crowd:
    """
    The tenants of one manager.

    :param manager: Whose. It must hold nothing yet.
    """

    def __init__(self, manager: SessionManager, *, seed: int) -> None:
        self._manager = manager
        self._chance = random.Random(seed)
        self._canaries = [f"canary-{number:02}-{self._chance.getrandbits(32):08x}" for number in range(TENANTS)]
        self._rooms = [
            Room(tenant, manager.session(tenant=self._names(tenant), user=user, session=name))
            for tenant in range(TENANTS)
            for user in USERS
            for name in SESSIONS
        ]
        self._foreign: list[str] = []
        self._failures: list[str] = []
        self._done: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._doings: dict[str, Callable[[Room, random.Random], bool | None]] = {
            "write": self._write,
            "read": self._read,
            "page": self._page,
            "list": self._list,
            "delete": self._delete,
            "usage": self._usage,
            "sessions": self._sessions,
            "pry into a result": self._pry_result,
            "pry into a session": self._pry_session,
        }

    def _names(self, tenant: int) -> str:
        return f"tenant {self._canaries[tenant]}"

    def work(self, operations: int) -> Figures:
        """Let everybody do so much, all at once."""
        shares = [operations // THREADS + (number < operations % THREADS) for number in range(THREADS)]
        seeds = [self._chance.getrandbits(32) for _ in shares]
        root, listener = logging.getLogger(), _Listener(self._foreign)
        level = root.level
        root.addHandler(listener)
        root.setLevel(logging.DEBUG)
        started = time.monotonic()
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(self._work_share, shares, seeds))
        finally:
            seconds = time.monotonic() - started
            root.setLevel(level)
            root.removeHandler(listener)
        return Figures(self._done, seconds, self._foreign, self._failures)

    def require_exact(self) -> None:
        """Every room holds exactly what was written into it and not deleted, and is charged for it."""
        for room in self._rooms:
            assert {one.reference for one in room.session.results()} == set(room.contents)
            for reference, content in room.contents.items():
                assert room.session.read(reference) == content
            assert room.session.usage().used_bytes == sum(map(_size, room.contents.values()))
        for tenant in range(TENANTS):
            held = [content for room in self._rooms if room.tenant == tenant for content in room.contents.values()]
            usage = self._manager.usage(tenant=self._names(tenant))
            assert (usage.results, usage.used_bytes) == (len(held), sum(map(_size, held)))
        assert self._manager.verify().ok

    def _work_share(self, share: int, seed: int) -> None:
        chance = random.Random(seed)
        kinds, weights = list(_MIX), list(_MIX.values())
        for _ in range(share):
            (kind,) = chance.choices(kinds, weights)
            # Whoever comes next: a thread, and a connection, works for one tenant after the other.
            room = chance.choice(self._rooms)
            try:
                if self._doings[kind](room, chance) is False:
                    # Nothing there to do that with.
                    kind = "write"
                    self._write(room, chance)
            except Exception as error:
                self._failures.append(f"{kind}: {error!r}")
                self._look(shown_by_error(error), tenant=None, where=f"error of {kind}")
            with self._counting:
                self._done[kind] += 1

    def _look(self, shown: Iterable[object], *, tenant: int | None, where: str) -> None:
        """Search for canaries of others; of anybody, if `tenant` is `None`."""
        for one in shown:
            text = one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
            if any(tenant is None or int(number) != tenant for number in _CANARY.findall(text)):
                self._foreign.append(where)

    def _write(self, room: Room, chance: random.Random) -> None:
        canary = self._canaries[room.tenant]
        text = f"{canary} {chance.getrandbits(64):x}\n" * chance.choice([1, 3, 40, 1500])
        content = text.encode() if chance.random() < 0.3 else text
        reference = room.session.write_result(content, name=f"0_fetch_{canary}.txt", tool=f"fetch {canary}")
        with room.lock:
            if reference in room.contents:
                self._failures.append("a reference was given twice")
            room.contents[reference] = content

    def _read(self, room: Room, chance: random.Random) -> bool:
        reference = room.any_reference(chance)
        wanted = None if reference is None else room.content(reference)
        if reference is None or wanted is None:
            return False
        try:
            content = room.session.read(reference)
        except ResultNotFound:
            self._require_deleted(room, reference)
            return True
        self._look([content], tenant=room.tenant, where="read")
        if content != wanted or type(content) is not type(wanted):
            self._failures.append("a read gave something else than was written")
        return True

    def _page(self, room: Room, chance: random.Random) -> bool:
        reference = room.any_reference(chance)
        wanted = None if reference is None else room.content(reference)
        if reference is None or not isinstance(wanted, str):
            return False
        offset = chance.randrange(len(wanted))
        try:
            page = room.session.read_page(reference, offset=offset, max_chars=2000)
        except ResultNotFound:
            self._require_deleted(room, reference)
            return True
        self._look([page.text], tenant=room.tenant, where="page")
        if page.text != wanted[offset : offset + 2000]:
            self._failures.append("a page gave something else than was written")
        return True

    def _list(self, room: Room, chance: random.Random) -> None:
        for one in room.session.results():
            self._look([one.reference, one.name, one.tool], tenant=room.tenant, where="listing")

    def _delete(self, room: Room, chance: random.Random) -> bool:
        with room.lock:
            if not room.contents:
                return False
            reference = chance.choice(list(room.contents))
            # Gone from the books first: whoever still asks may or may not get it.
            del room.contents[reference]
        room.session.delete(reference)
        return True

    def _usage(self, room: Room, chance: random.Random) -> None:
        usage = self._manager.usage(tenant=self._names(room.tenant), user=chance.choice(USERS))
        self._look([usage], tenant=None, where="usage")
        if usage.sessions < len(SESSIONS):
            self._failures.append("a user's own sessions were not counted")

    def _sessions(self, room: Room, chance: random.Random) -> None:
        for info in self._manager.sessions(tenant=self._names(room.tenant)):
            self._look([info.tenant, info.user, info.session], tenant=room.tenant, where="sessions")

    def _pry_result(self, room: Room, chance: random.Random) -> bool:
        """Try a reference of another tenant's, or of another room of one's own."""
        other = chance.choice([one for one in self._rooms if one is not room])
        reference = other.any_reference(chance)
        if reference is None:
            return False
        ways: list[Callable[[], Any]] = [
            lambda: room.session.read(reference),
            lambda: room.session.read_page(reference, max_chars=100),
            lambda: room.session.delete(reference),
        ]
        try:
            got = chance.choice(ways)()
        except ResultNotFound as error:
            self._look(shown_by_error(error), tenant=None, where="error of prying")
            return True
        self._failures.append("somebody else's reference worked")
        self._look([getattr(got, "text", got)], tenant=room.tenant, where="prying")
        return True

    def _pry_session(self, room: Room, chance: random.Random) -> None:
        """Open a session of one's own under a name that only another tenant has, and look around."""
        name = f"room {chance.getrandbits(64):x} of somebody"
        (other,) = chance.sample([one for one in self._rooms if one.tenant != room.tenant], 1)
        theirs = self._manager.session(tenant=other.session.scope.tenant, user="ann", session=name)
        theirs.write(self._canaries[other.tenant], name=f"0_fetch_{self._canaries[other.tenant]}")
        with self._manager.session(tenant=room.session.scope.tenant, user="ann", session=name) as mine:
            for one in mine.results():
                self._failures.append("a session showed what is in another tenant's of the same name")
                self._look([one.reference, one.name, mine.read(one.reference)], tenant=room.tenant, where="session")
            if mine.usage().results:
                self._failures.append("a session counted what is in another tenant's of the same name")
        for session in (mine, theirs):
            scope = session.scope
            gone = self._manager.delete_session(tenant=scope.tenant, user=scope.user, session=scope.session)
            if gone.results != (session is theirs):
                self._failures.append("deleting a session deleted another tenant's results")

    def _require_deleted(self, room: Room, reference: str) -> None:
        if room.content(reference) is not None:
            self._failures.append("a result was not found that nobody had deleted")


def _size(content: str | bytes) -> int:
    return len(content.encode() if isinstance(content, str) else content)
