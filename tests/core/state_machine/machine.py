"""The machine: what anybody may do, in any order, and what the model says must come of it."""

import string
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tenancy import (
    Lifetime,
    Limits,
    Receipt,
    ResultCorrupt,
    ResultNotFound,
    ResultTooLarge,
    SessionNotFound,
    TenancyError,
)
from tenancy.quotas import FIELDS_OF_LEVEL, UNSET
from tests.core.state_machine.aftermath import Aftermath, Reach
from tests.core.state_machine.checks import Checked, Where
from tests.core.state_machine.deaths import dying
from tests.core.state_machine.model import MINUTE, Item, Owner, Room, Tenant, User, effective, used
from tests.core.state_machine.model import Receipt as Expected

#: In minutes. Neither idle times nor their sixteenths come within a minute of a sum of `STEPS`, nor do the others:
#: time that really passes decides nothing.
IDLE: Final = [25.5, 25.5 + 48 * 4, 25.5 + 48 * 30]
MAXIMUM: Final = [10 * 60 + 1.5, 30 * 24 * 60 + 1.5]
RESULT: Final = [None, 61.5]
STEPS: Final = [3, 27, 66, 7 * 60, 27 * 60]

#: One of each pair is a piece, a pattern or a look-alike of the other.
NAMES: Final = [
    ("user1", "user10"),
    ("a%", "ab"),
    ("a_b", "aXb"),
    ("Room", "room"),
    ("\u00e9", "e\u0301"),
    ("..", "."),
    ("/", "../../etc"),
    (" x", "x"),
    ("%2e", "."),
    ("a\\", "a"),
    ("a' OR '1'='1", "a"),
    ("C:\\x", "~"),
]


@dataclass(frozen=True)
class Large:
    """A content too large to stand in a row, or for one segment; made from little, and shown as that."""

    kind: str
    seed: int
    size: int

    @property
    def value(self) -> str | bytes:
        data = Random(self.seed).randbytes(self.size)
        return data if self.kind == "bytes" else "\n".join(data[at : at + 50].hex() for at in range(0, len(data), 50))


@dataclass(frozen=True)
class Beyond:
    """So much more than what is in use."""

    by: int


TEXTS = st.text(st.characters(), max_size=30)
CONTENTS = (
    TEXTS
    | st.binary(max_size=30)
    | st.binary(max_size=3)
    | st.builds(Large, st.sampled_from(["text", "bytes"]), st.integers(0, 9), st.sampled_from([33_000, 70_000]))
)
KEYS = (
    TEXTS
    | st.sampled_from(["3_web_search_call-1.json", "../../x_a/b.txt", "/etc/cron.d/x", "CON", "a.txt::$DATA"])
    | st.text(string.printable, min_size=255, max_size=300)
)
LIFE = st.builds(
    lambda idle, maximum, result: Lifetime(
        idle=timedelta(minutes=idle),
        maximum=timedelta(minutes=maximum),
        result=None if result is None else timedelta(minutes=result),
    ),
    st.sampled_from(IDLE),
    st.sampled_from(MAXIMUM),
    st.sampled_from(RESULT),
)
PICK = st.integers(0, 999)
WHO = st.integers(0, 1)
ROOM = st.integers(0, 2)
AMOUNTS = st.sampled_from([None, 0, 2, 40_000, 150_000]) | st.builds(Beyond, st.integers(-1, 4))
LIMIT = st.sampled_from([None, None, None, 2, 40, 40_000])
UNIT = st.sampled_from(["bytes", "results", "sessions"])
#: At which of its steps a process dies. Most work has few.
STEP = st.sampled_from([0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 18, 22])

#: One session in the end of a user's or a tenant's is nothing that steps can be spent on.
USE = st.sampled_from(["nothing", "write", "write", "write", "delete", "delete", "read", "open"])
LEVEL = st.sampled_from(["session", "session", "session", "user", "user", "tenant"])

Pair = tuple[str, str]
Work = tuple[Callable[[], Any], Reach]
T = TypeVar("T")


def chosen(things: list[T], pick: int) -> T:
    """One of them."""
    return things[pick % len(things)]


class Machine(Checked):
    """Everything that can be done to one manager after the other."""

    @initialize(
        tenants=st.sampled_from(NAMES), users=st.sampled_from(NAMES), sessions=st.sampled_from(NAMES),
        rooms=st.lists(st.tuples(WHO, WHO, ROOM, LIFE), min_size=2, max_size=5, unique_by=lambda room: room[:3]),
        contents=st.lists(st.tuples(CONTENTS, KEYS), min_size=3, max_size=5),
    )  # fmt: skip
    def begin(
        self, tenants: Pair, users: Pair, sessions: Pair,
        rooms: list[tuple[int, int, int, Lifetime]], contents: list[tuple[Any, str]],
    ) -> None:  # fmt: skip
        """A house is not empty: what is worth attacking takes many steps to build."""
        self.tenants, self.users, self.sessions = tenants, users, (None, *sessions)
        for tenant, user, session, life in rooms:
            self.open(self.where(tenant, user, session), life, None)
        for pick, (content, key) in enumerate(contents):
            self.write_one(chosen(self.house.rooms(), pick), content, key)

    def where(self, tenant: int, user: int, session: int) -> Where:
        return self.tenants[tenant], self.users[user], self.sessions[session]

    def entered(self) -> list[Room]:
        """Rooms, open or not, to which somebody has a handle or can get one."""
        rooms = self.house.rooms()
        return [room for room in rooms if self.house.is_open(room) or room.handle] + self.ghosts

    def references(self) -> list[str]:
        """Every reference that is or was good somewhere."""
        items = [item for room in self.house.rooms() for item in room.items]
        return [item.reference for item in items if item.reference] + self.spent

    def moved_in(self, where: Where, ids: Any, life: Lifetime, limit: int | None) -> Room:
        """Take up a room that was created, and whoever was with it."""
        tenant = self.house.tenant(where[0])
        if tenant is None:
            tenant = Tenant(where[0], ids.tenant_id)
            self.house.tenants.append(tenant)
        user = self.house.user(*where[:2])
        if user is None:
            user = User(tenant, where[1], ids.user_id)
            tenant.users.append(user)
        assert (tenant.id, user.id) == (ids.tenant_id, ids.user_id)
        now, idle, maximum = self.house.now, _us(life.idle), _us(life.maximum)
        result = None if life.result is None else _us(life.result)
        room = Room(user, where[2], ids.session_id, idle, result, now + maximum, now, now + min(idle, maximum))
        room.limits = {} if limit is None else {"session_bytes": limit}
        user.rooms.append(room)
        return room

    def ended(self, before: list[Room]) -> None:
        """Keep the handles, and the references, of rooms that are there no more."""
        left = set(self.house.rooms())
        for room in before:
            if room not in left:
                self.spent += [item.reference for item in room.items if item.reference]
                self.ghosts += [room] if room.handle else []
        del self.spent[:-20], self.ghosts[:-5]

    # Using sessions.

    @rule(tenant=WHO, user=WHO, session=ROOM, life=LIFE, limit=LIMIT, contents=st.lists(CONTENTS, max_size=2))
    def open_session(
        self, tenant: int, user: int, session: int, life: Lifetime, limit: int | None, contents: list[Any]
    ) -> None:
        if self.is_late:
            return
        where = self.where(tenant, user, session)
        self.open(where, life, limit)
        room = self.house.room(*where)
        for content in contents if room is not None and self.house.is_open(room) else ():
            self.write_one(room, content, "opened.txt")

    def open(self, where: Where, life: Lifetime, limit: int | None) -> None:
        before = self.house.rooms()
        settings = {"lifetime": life, "limits": Limits(session_bytes=UNSET if limit is None else limit)}
        found = self.house.room(*where)
        if found is not None and self.house.is_open(found):
            found.handle = self.enter(where, **settings)
            assert found.handle._opened.ids.session_id == found.id
            self.house.touch(found)
            return
        refused = self.house.may_open(*where[:2])
        if refused is not None:
            self.expect_refused(refused, lambda: self.enter(where, **settings))
        else:
            handle = self.enter(where, **settings)
            if found is not None:
                found.live = False
            room = self.moved_in(where, handle._opened.ids, life, limit)
            room.handle = handle
            for level, owner in (("user", room.user), ("tenant", room.user.tenant)):
                bound = effective(f"{level}_sessions", *room.owners)
                assert bound is None or used(owner).sessions <= bound
        self.ended(before)

    @precondition(lambda self: self.entered())
    @rule(picks=st.lists(PICK, min_size=1, max_size=2), content=CONTENTS, key=KEYS)
    def write(self, picks: list[int], content: Any, key: str) -> None:
        if self.is_late:
            return
        for pick in picks:
            self.write_one(chosen(self.entered(), pick), content, key)

    def write_one(self, room: Room, content: Any, key: str) -> None:
        value = content.value if isinstance(content, Large) else content
        session, before = self.handle(room), self.house.rooms()
        if not self.house.is_open(room):
            self.expect(SessionNotFound, lambda: session.write(value, name=key))
            return
        item = self.new_item(room, value, key)
        largest = effective("max_result_bytes", *room.owners)
        if largest is not None and item.size > largest:
            error = self.expect(ResultTooLarge, lambda: session.write(value, name=key))
            assert (error.limit_bytes, error.requested_bytes) == (largest, item.size)
            return
        refused = self.house.may_write(room, item.size)
        if refused is not None:
            self.expect_refused(refused, lambda: session.write(value, name=key))
        else:
            item.reference = session.write(value, name=key)
            assert item.reference.split("-")[1] == str(item.number)
            assert item.reference not in self.references()
            self.house.touch(room)
            room.items.append(item)
            room.last_number += 1
            self.require_within_limits(room)
        self.ended(before)

    def new_item(self, room: Room, content: str | bytes, key: str) -> Item:
        expires = None if room.result is None else self.house.now + room.result
        return Item(room, room.last_number + 1, "", content, key, expires)

    def require_within_limits(self, room: Room) -> None:
        """No charge that went through is above a limit."""
        for level, owner in zip(("session", "user", "tenant"), room.owners, strict=True):
            names = dict(zip(("tenant", "user", "session"), room.where, strict=True))
            if level == "session" and room.name is None:
                continue
            asked = {
                name: names[name] for name in ("tenant", "user", "session")[: {"tenant": 1, "user": 2}.get(level, 3)]
            }
            found = self.manager.usage(**asked)
            assert (found.used_bytes, found.results) == used(owner)[:2]
            assert found.limit_bytes is None or found.used_bytes <= found.limit_bytes
            assert found.limit_results is None or found.results <= found.limit_results

    @precondition(lambda self: self.entered() and self.references())
    @rule(pick=PICK, which=PICK)
    def read(self, pick: int, which: int) -> None:
        if self.is_late:
            return
        room, reference = chosen(self.entered(), pick), chosen(self.references(), which)
        session = self.handle(room)
        item = self.item(room, reference)
        if not self.house.is_open(room):
            self.expect(SessionNotFound, lambda: session.read(reference))
            return
        self.house.touch(room)
        if item is None:
            self.expect(ResultNotFound, lambda: session.read(reference))
        else:
            self.require_content(item)

    def item(self, room: Room, reference: str) -> Item | None:
        """Return the result of that reference if the room shows it."""
        return next((item for item in self.house.listed(room) if item.reference == reference), None)

    @precondition(lambda self: self.own())
    @rule(pick=PICK, offset=st.integers(0, 150_000), max_chars=st.sampled_from([1, 3, 100, 50_000, 200_000]))
    def read_page(self, pick: int, offset: int, max_chars: int) -> None:
        if self.is_late:
            return
        item = chosen(self.own(), pick)
        session, content = self.handle(item.room), item.content
        self.house.touch(item.room)
        if isinstance(content, bytes):
            self.expect(ValueError, lambda: session.read_page(item.reference, offset=offset, max_chars=max_chars))
            return
        offset %= len(content) + 2
        try:
            page = session.read_page(item.reference, offset=offset, max_chars=max_chars)
        except ResultCorrupt:
            assert not item.is_sound
            return
        # Of a damaged result a page may be sound: then it is the right one.
        end = offset + max_chars
        assert page.text == content[offset:end]
        assert page.next_offset == (end if end < len(content) else None)
        assert (page.total_chars, page.total_lines) == (len(content), _lines(content))

    def own(self) -> list[Item]:
        """Results of open rooms."""
        return [item for room in self.house.open_rooms() for item in self.house.listed(room)]

    @precondition(lambda self: self.house.open_rooms())
    @rule(pick=PICK)
    def list_results(self, pick: int) -> None:
        if self.is_late:
            return
        room = chosen(self.house.open_rooms(), pick)
        listed = [result.reference for result in self.handle(room).results()]
        self.house.touch(room)
        assert listed == [item.reference for item in self.house.listed(room)]

    @precondition(lambda self: self.entered() and self.references())
    @rule(pick=PICK, which=PICK, own=st.booleans())
    def delete(self, pick: int, which: int, own: bool) -> None:
        if self.is_late:
            return
        if own and self.own():
            item = chosen(self.own(), pick)
            room, reference = item.room, item.reference
        else:
            room, reference = chosen(self.entered(), pick), chosen(self.references(), which)
        session = self.handle(room)
        if not self.house.is_open(room):
            self.expect(SessionNotFound, lambda: session.delete(reference))
            return
        found = self.item(room, reference)
        if found is None:
            self.expect(ResultNotFound, lambda: session.delete(reference))
        else:
            session.delete(reference)
            room.items.remove(found)
            self.spent.append(reference)

    # Administration.

    @rule(tenant=WHO, user=WHO, session=ROOM, level=LEVEL)
    def end(self, tenant: int, user: int, session: int, level: str) -> None:
        if self.is_late:
            return
        before, where = self.house.rooms(), self.where(tenant, user, session)
        call, expected = self.ending(where, level)
        require_counts(call(), expected())
        self.ended(before)

    def ending(self, where: Where, level: str) -> tuple[Callable[[], Receipt], Callable[[], Expected]]:
        """How a session, a user or a tenant is brought to its end, here and in the model."""
        names = dict(zip(("tenant", "user", "session"), where, strict=True))
        if level == "tenant":
            tenants = [one for one in self.house.tenants if one.name == where[0]]
            return (lambda: self.manager.erase_tenant(tenant=where[0])), lambda: self.house.erase(tenants)
        if level == "user":
            tenant = self.house.tenant(where[0])
            users = [] if tenant is None else [one for one in tenant.users if one.name == where[1]]
            return (lambda: self.manager.erase_user(tenant=where[0], user=where[1])), lambda: self.house.erase(users)
        return (lambda: self.manager.delete_session(**names)), lambda: self.house.delete(self.house.room(*where))

    @rule(tenant=WHO, user=st.none() | WHO, session=st.none() | st.integers(1, 2), data=st.data())
    def set_limits(self, tenant: int, user: int | None, session: int | None, data: st.DataObject) -> None:
        who = self.named(tenant, user, session)
        fields = st.sampled_from(FIELDS_OF_LEVEL[("tenant", "user", "session")[len(who) - 1]])
        limits = data.draw(st.dictionaries(fields, AMOUNTS, max_size=3))
        if self.is_late:
            return
        owner = self.owner(**who)
        if owner is None:
            self.expect(SessionNotFound, lambda: self.manager.set_limits(Limits(), **who), about="limits")
        else:
            owner.limits = {field: self.amount(owner, field, amount) for field, amount in limits.items()}
            self.manager.set_limits(Limits(**owner.limits), **who)

    def amount(self, owner: Owner, field: str, amount: Any) -> int | None:
        """A limit, or one that is this far from what is in use now."""
        if not isinstance(amount, Beyond):
            return amount  # type: ignore[no-any-return]
        now = used(owner)
        return max(
            0, amount.by + {"bytes": now.used_bytes, "results": now.results}.get(field.split("_")[1], now.sessions)
        )

    @precondition(lambda self: self.house.open_rooms())
    @rule(pick=PICK, level=st.integers(0, 2), unit=UNIT, by=st.integers(-1, 3), content=CONTENTS, life=LIFE)
    def fill_to_the_brim(self, pick: int, level: int, unit: str, by: int, content: Any, life: Lifetime) -> None:
        """Somebody at a limit, just above or just below it, asks for more: expired things have to make room first."""
        if self.is_late:
            return
        room = chosen(self.house.open_rooms(), pick)
        owner, named = room.owners[level], dict(zip(("tenant", "user", "session"), room.where, strict=True))
        who = {name: text for name, text in list(named.items())[: 3 - level] if text is not None}
        if len(who) != 3 - level or (unit == "sessions" and level == 0):
            return
        field = f"{('session', 'user', 'tenant')[level]}_{unit}"
        owner.limits = {field: self.amount(owner, field, Beyond(by))}
        self.manager.set_limits(Limits(**owner.limits), **who)
        if unit == "sessions":
            self.open((*room.where[:2], self.sessions[pick % 3]), life, None)
        else:
            self.write_one(room, content, "brim.txt")

    def named(self, tenant: int, user: int | None, session: int | None) -> dict[str, str]:
        who = {"tenant": self.tenants[tenant]}
        if user is not None:
            who["user"] = self.users[user]
            name = None if session is None else self.sessions[session]
            who |= {} if name is None else {"session": name}
        return who

    @rule(minutes=st.sampled_from(STEPS))
    def pass_time(self, minutes: int) -> None:
        self.manager.clock.advance(timedelta(minutes=minutes))
        self.house.now += minutes * MINUTE

    @rule(batch_size=st.sampled_from([1, 500]), repair=st.booleans())
    def clean_up(self, batch_size: int, repair: bool) -> None:
        if self.is_late:
            return
        before, waiting = self.house.rooms(), self.house.waiting()
        dry = self.manager.cleanup(dry_run=True)
        assert (dry.reclaimed_bytes, dry.results, dry.sessions) == waiting
        if not repair:
            done = self.manager.cleanup(batch_size=batch_size)
            assert done.complete
            assert (done.reclaimed_bytes, done.results, done.sessions) == self.house.cleanup()
        else:
            # Results are looked at before what has expired is taken away.
            damaged = self.house.damaged()
            unfinished = bool(self.house.stale() or list(self.house.unfinished()))
            report = self.manager.verify(repair=True)
            if unfinished:
                self.house.cleanup()
            assert report.ok == (not damaged and not self.house.stale())
        self.ended(before)

    # Behind the library's back.

    def blobs(self) -> list[Item]:
        """Results that have bytes of some kind in their place. Those of an ended room may be gone at any moment."""
        items = [item for room in self.house.rooms() if room.live for item in room.items]
        return [item for item in items if item.state == "committed" and item.holds is not None]

    @precondition(lambda self: len(self.blobs()) > 1)
    @rule(one=PICK, other=PICK)
    def swap_bytes(self, one: int, other: int) -> None:
        blobs, places = self.blobs(), self.place.blobs()
        first, second = chosen(blobs, one), chosen(blobs, other)
        one_place, other_place = (places[item.room.id, item.number] for item in (first, second))
        if first is second or one_place.inline != other_place.inline:
            return
        self.place.swap(self.manager, one_place, other_place)
        first.holds, second.holds = second.holds, first.holds

    @precondition(lambda self: any(item.is_sound for item in self.blobs()))
    @rule(pick=PICK, how=PICK)
    def damage_bytes(self, pick: int, how: int) -> None:
        item = chosen([item for item in self.blobs() if item.is_sound], pick)
        blob = self.place.blobs()[item.room.id, item.number]
        damage = chosen(self.place.damages(blob), how)
        self.place.damage(self.manager, blob, damage)
        item.holds = None if damage == "gone" else damage

    # The end of a process, and the next one.

    def restart(self) -> None:
        inline = {key for key, blob in self.place.blobs().items() if self.place.is_in_database(blob)}
        handles = [room.handle for room in [*self.house.rooms(), *self.ghosts] if room.handle]
        self.manager.close()
        for session in handles[:3]:
            self.expect(SessionNotFound, session.usage)
        self.manager = self.place.manager(offset_us=self.house.now)
        for room in self.house.rooms():
            room.handle = None
            for item in room.items if self.place.store == "memory" else ():
                # What was in its memory has ended with the process.
                item.holds = item.holds if (room.id, item.number) in inline else None
        self.ghosts.clear()

    @rule(work=USE, step=STEP, tenant=WHO, user=WHO, session=ROOM, pick=PICK, life=LIFE, content=CONTENTS)
    def die_using(
        self, work: str, step: int, tenant: int, user: int, session: int, pick: int, life: Lifetime, content: Any
    ) -> None:
        self.die(step, lambda: self.use(work, self.where(tenant, user, session), pick, life, content))

    @rule(step=STEP, tenant=WHO, user=WHO, session=ROOM, level=LEVEL)
    def die_ending(self, step: int, tenant: int, user: int, session: int, level: str) -> None:
        self.die(step, lambda: self.ending_reach(self.where(tenant, user, session), level))

    @rule(step=STEP, repair=st.booleans())
    def die_cleaning_up(self, step: int, repair: bool) -> None:
        self.die(step, lambda: self.cleaning(repair))

    def die(self, step: int, work: Callable[[], Work]) -> None:
        """The process ends in the middle of something; the next one finds it done, or not done, or to be finished."""
        if self.is_late:
            return
        call, reach = work()
        before = self.house.rooms()
        with dying(step), suppress(TenancyError):
            call()
        aftermath = Aftermath(self.house, self.place.rows(), reach, epoch_us=self.epoch_us)
        aftermath.settle()
        self.spent += [item.reference for item in aftermath.lost if item.reference]
        if aftermath.created is not None and reach.opening is not None:
            where, life, limit = reach.opening
            self.moved_in(where, aftermath.created, life, limit)
        self.ended(before)
        self.restart()
        item = reach.writing
        if item is not None and item in item.room.items and item.state == "committed":
            # The writer did not live to see it.
            with self.unseen():
                listed = {int(one.reference.split("-")[1]): one.reference for one in self.handle(item.room).results()}
            item.reference = listed[item.number]

    def use(self, work: str, where: Where, pick: int, life: Lifetime, content: Any) -> Work:
        house, reach = self.house, Reach()
        if work == "write" and house.open_rooms():
            room = chosen(house.open_rooms(), pick)
            session, value = self.handle(room), content.value if isinstance(content, Large) else content
            reach.used, reach.writing = room, self.new_item(room, value, "dying.txt")
            reach.add_reclaimable(house, room.user.tenant)
            return (lambda: session.write(value, name="dying.txt")), reach
        if work in ("read", "delete") and self.own():
            item = chosen(self.own(), pick)
            session = self.handle(item.room)
            reach.used, reach.items = (item.room, set()) if work == "read" else (None, {item})
            return (lambda: getattr(session, work)(item.reference)), reach
        if work == "nothing":
            return (lambda: None), reach
        tenant = house.tenant(where[0])
        reach.used, reach.opening = house.room(*where), (where, life, None)
        reach.add_reclaimable(house, *([] if tenant is None else [tenant]))
        return (lambda: self.enter(where, lifetime=life)), reach

    def ending_reach(self, where: Where, level: str) -> Work:
        house, reach = self.house, Reach()
        tenant, room = house.tenant(where[0]), house.room(*where)
        if level == "tenant":
            reach.add_erasure(*(one for one in house.tenants if one.name == where[0]))
        elif level == "user":
            reach.add_erasure(*(one for one in (tenant.users if tenant else ()) if one.name == where[1]))
        elif room is not None:
            reach.rooms = {room}
        return self.ending(where, level)[0], reach

    def cleaning(self, repair: bool) -> Work:
        reach = Reach()
        reach.add_reclaimable(self.house, *self.house.tenants)
        reach.add_erasure(*self.house.unfinished())
        return (lambda: self.manager.verify(repair=True) if repair else self.manager.cleanup()), reach


def require_counts(receipt: Receipt, expected: Expected) -> None:
    counts = (receipt.users, receipt.sessions, receipt.results, receipt.used_bytes, receipt.keys_destroyed)
    assert counts == (expected.users, expected.sessions, expected.results, expected.used_bytes, expected.keys)


def _us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def _lines(text: str) -> int:
    return text.count("\n") + (text != "" and not text.endswith("\n"))
