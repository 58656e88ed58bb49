"""What has to hold after every step, whatever was done."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Any, Final

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

from stores.names import mint_name
from tenancy import Limits, QuotaExceeded, ResultCorrupt, ResultNotFound, Session, SessionNotFound
from tenancy.catalogue.sessions import SessionTable
from tenancy.clock import to_datetime
from tests.core.state_machine.model import House, Item, Owner, Refused, Room, Tenant, User, effective, used
from tests.core.state_machine.place import Place

#: After this much real time an example does nothing more: its moments are only known to the minute.
REAL_SECONDS: Final = 45.0
_A_MINUTE: Final = timedelta(minutes=1)

Where = tuple[str, str, str | None]


class Checked(RuleBasedStateMachine):
    """
    A manager, a model of all it holds, and the comparison of the two.

    :param place: A database, a store and a key, which are begun anew.
    """

    #: How many of each kind of thing one step looks at; others in each step.
    readings = 2

    def __init__(self, place: Place) -> None:
        super().__init__()
        # Replayed, an example must take the same course: in which order work is done, and so what a death leaves of it,
        # goes by ids.
        self._patch = pytest.MonkeyPatch()
        chance = Random(0)
        for module in ("opening", "writing", "catalogue.erasure"):
            self._patch.setattr(f"tenancy.{module}.mint_name", lambda: mint_name(chance.randbytes))
        self.place = place
        place.start()
        self.house = House()
        self.manager = place.manager(offset_us=0)
        self.epoch_us = self.manager.clock.now_us()
        self._began = time.monotonic()
        self._turn = 0
        #: Rooms that are gone and to which somebody still holds a handle of this manager.
        self.ghosts: list[Room] = []
        #: References that were good once.
        self.spent: list[str] = []
        self._said: dict[object, str] = {}
        self.tenants: tuple[str, ...] = ()
        self.users: tuple[str, ...] = ()
        self.sessions: tuple[str | None, ...] = ()

    def teardown(self) -> None:
        try:
            # Not after a failure, which this would only hide.
            if sys.exc_info()[0] is None and not self.is_late:
                self._require_that_nothing_stays()
        finally:
            self._patch.undo()
            self.place.stop()

    def _require_that_nothing_stays(self) -> None:
        """Everybody leaves, and with them goes everything that was ever stored, damaged, interrupted or swept aside."""
        self.manager.clock.advance(timedelta(minutes=3))
        for tenant in self.tenants:
            self.manager.erase_tenant(tenant=tenant)
        assert self.manager.cleanup().complete
        self.place.ledger.require_empty()
        assert list(self.manager.sessions()) == []
        assert self.manager.verify().findings == ()

    @property
    def is_late(self) -> bool:
        """Whether too much real time has passed for the model's moments."""
        return time.monotonic() - self._began > REAL_SECONDS

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What the machine itself looks at is not used by anybody: no expiry moves."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SessionTable, "touch", lambda *_, **__: None)
            yield

    def handle(self, room: Room) -> Session:
        """Return somebody's handle to a room. An open one that has none gets one."""
        if room.handle is None:
            with self.unseen():
                room.handle = self.enter(room.where)
            assert room.handle._opened.ids.session_id == room.id
        found: Session = room.handle
        return found

    def enter(self, where: Where, **settings: Any) -> Session:
        """Open a session by its names."""
        tenant, user, session = where
        return self.manager.session(tenant=tenant, user=user, session=session, **settings)

    def expect(self, error: type[Exception], call: Callable[[], Any], *, about: str = "") -> Any:
        """Demand exactly this refusal; and of "not found", whatever the reason, one and the same sentence."""
        with pytest.raises(error) as refusal:
            call()
        assert type(refusal.value) is error
        if error in (SessionNotFound, ResultNotFound):
            assert str(refusal.value) == self._said.setdefault((error, about), str(refusal.value))
        return refusal.value

    def expect_refused(self, refused: Refused, call: Callable[[], Any]) -> None:
        """Demand the refusal of exactly this limit."""
        error = self.expect(QuotaExceeded, call)
        assert Refused(error.level, error.unit, error.limit, error.used, error.requested) == refused

    def names(self) -> Iterator[dict[str, str]]:
        """Every tenant, user and session that may be there, as arguments."""
        for tenant in self.tenants:
            yield {"tenant": tenant}
            for user in self.users:
                yield {"tenant": tenant, "user": user}
                for session in filter(None, self.sessions):
                    yield {"tenant": tenant, "user": user, "session": session}

    def owner(self, *, tenant: str, user: str | None = None, session: str | None = None) -> Owner | None:
        """Return whom the arguments name, if the library may know of it."""
        if user is None:
            return self.house.tenant(tenant)
        if session is None:
            return self.house.user(tenant, user)
        room = self.house.room(tenant, user, session)
        return room if room is not None and self.house.is_open(room) else None

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if self.is_late or not self.tenants:
            return
        self._turn += 1
        with self.unseen():
            self._require_sessions()
            self._require_usage()
            for room in self.house.open_rooms():
                self._require_results(room)
            self._require_contents()
            self._require_nothing_foreign()
            self._require_nothing_from_ghosts()
            self._require_findings()

    def _some(self, things: Iterable[Any]) -> list[Any]:
        """As many as a step pays for, others in every step."""
        found = list(things)
        start = self._turn * self.readings % max(1, len(found))
        return (found[start:] + found[:start])[: self.readings]

    def _require_sessions(self) -> None:
        expected = {room.where: room for room in self.house.open_rooms()}
        listed = list(self.manager.sessions())
        assert sorted(map(repr, expected)) == sorted(repr((info.tenant, info.user, info.session)) for info in listed)
        for info in listed:
            room = expected[info.tenant, info.user, info.session]
            now = used(room)
            assert (info.used_bytes, info.results) == (now.used_bytes, now.results)
            assert abs(info.expires_at - to_datetime(self.epoch_us + room.expires)) < _A_MINUTE
            assert abs(info.used_at - to_datetime(self.epoch_us + room.used)) < _A_MINUTE
        for who in self._some({"tenant": tenant, "user": user} for tenant in self.tenants for user in self.users)[:1]:
            for asked in (who, {"tenant": who["tenant"]}):
                shown = {(info.tenant, info.user, info.session) for info in self.manager.sessions(**asked)}
                assert shown == {where for where in expected if where[: len(asked)] == tuple(asked.values())}

    def _require_usage(self) -> None:
        there = [who for who in self.names() if self.owner(**who)]
        absent = [who for who in self.names() if who not in there]
        for who in [*self._some(there), *self._some(absent)[:1]]:
            owner = self.owner(**who)
            found = self.manager.usage(**who)
            assert (found.used_bytes, found.results, found.sessions) == (used(owner) if owner else (0, 0, 0)), who
            level = ("tenant", "user", "session")[len(who) - 1]
            chain = _chain(owner)
            expected = [effective(f"{level}_{unit}", *chain) for unit in ("bytes", "results")]
            expected += [effective("max_result_bytes", *chain)]
            assert [found.limit_bytes, found.limit_results, found.max_result_bytes] == expected, who
            if level != "session":
                assert found.limit_sessions == effective(f"{level}_sessions", *chain)
            if owner is None:
                self.expect(SessionNotFound, lambda who=who: self.manager.limits(**who), about="limits")
            else:
                assert self.manager.limits(**who) == Limits(**owner.limits)

    def _require_results(self, room: Room) -> None:
        listed = [
            (result.reference, result.name, result.kind, result.size_bytes) for result in self.handle(room).results()
        ]
        assert listed == [
            (item.reference, item.name[:1024], "text" if isinstance(item.content, str) else "bytes", item.size)
            for item in self.house.listed(room)
        ]

    def _require_contents(self) -> None:
        readable = [item for room in self.house.open_rooms() for item in self.house.listed(room)]
        for item in self._some(readable):
            self.require_content(item)

    def require_content(self, item: Item) -> None:
        """A result reads back exactly, or is said to be damaged if it is."""
        session = self.handle(item.room)
        if item.is_sound:
            found = session.read(item.reference)
            assert type(found) is type(item.content)
            # In a word, or a failure would print all of it.
            is_same = found == item.content
            assert is_same
        else:
            self.expect(ResultCorrupt, lambda: session.read(item.reference))

    def _require_nothing_foreign(self) -> None:
        rooms = self.house.open_rooms()
        known = [item.reference for room in self.house.rooms() for item in room.items if item.reference]
        pairs = [(room, reference) for room in rooms for reference in {*known, *self.spent}]
        own = {(room, item.reference) for room in rooms for item in self.house.listed(room)}
        for room, reference in self._some(sorted(set(pairs) - own, key=lambda pair: (pair[0].id, pair[1]))):
            session = self.handle(room)
            for call in (session.read, session.delete, lambda text, to=session: to.read_page(text, max_chars=1)):
                self.expect(ResultNotFound, lambda call=call, reference=reference: call(reference))

    def _require_nothing_from_ghosts(self) -> None:
        closed = [room for room in self.house.rooms() if room.handle and not self.house.is_open(room)]
        for room in self._some(closed + self.ghosts):
            session: Session = room.handle
            references = [item.reference for item in room.items if item.reference] or self.spent[-1:] or ["result-1"]
            calls: list[Callable[[], Any]] = [session.usage, lambda to=session: list(to.results())]  # type: ignore[misc]
            if references != ["result-1"]:
                calls += [lambda to=session, text=references[0]: to.read(text)]  # type: ignore[misc]
            for call in calls:
                self.expect(SessionNotFound, call)

    def _require_findings(self) -> None:
        damaged = self.house.damaged()
        missing = sum(item.holds is None for item in damaged)
        expected = {
            "missing_bytes": missing,
            "damaged": len(damaged) - missing,
            "interrupted": len(self.house.stale()),
            "unfinished_erasure": len(list(self.house.unfinished())),
        }
        report = self.manager.verify()
        found = {finding.kind: finding.count for finding in report.findings}
        assert found == {kind: count for kind, count in expected.items() if count}
        live = [item for room in self.house.rooms() if room.live for item in room.items]
        assert report.checked_results == sum(item.state == "committed" for item in live)


def _chain(owner: Owner | None) -> tuple[Owner, ...]:
    """Whose limits hold there, the narrowest first."""
    if isinstance(owner, Room):
        return owner.owners
    if isinstance(owner, User):
        return owner, owner.tenant
    return (owner,) if isinstance(owner, Tenant) else ()
