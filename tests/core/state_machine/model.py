"""
What ought to be true, in plain Python: who has which rooms, what is in them, what it is charged, and until when.

Moments are microseconds on the clock that the machine moves by hand. Real time passes too; every duration here is
chosen so that a minute of it changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tenancy.cleanup import RECLAIM_ON_REFUSAL
from tenancy.quotas import DEFAULT_LIMITS

MINUTE: Final = 60_000_000
LEASE: Final = 2 * MINUTE
CLAIM: Final = 1 * MINUTE
TOUCH_FRACTION: Final = 16


class Refused(NamedTuple):
    """A limit that does not allow something."""

    level: str
    unit: str
    limit: int
    used: int
    requested: int


class Used(NamedTuple):
    """What an owner is charged."""

    used_bytes: int
    results: int
    sessions: int


@dataclass(eq=False)
class Receipt:
    """What an erasure has removed so far."""

    users: int = 0
    sessions: int = 0
    results: int = 0
    used_bytes: int = 0
    keys: int = 0


@dataclass(eq=False)
class Item:
    """A result's row, readable or not."""

    room: "Room"
    number: int
    reference: str
    content: str | bytes
    name: str
    expires: int | None
    state: str = "committed"
    lease: int | None = None
    #: Whose bytes stand in this one's place: its own, those of another, something else's, or nobody's (`None`).
    holds: object = None

    def __post_init__(self) -> None:
        self.holds = self

    @property
    def size(self) -> int:
        """What it is charged."""
        content = self.content
        return len(content) if isinstance(content, bytes) else len(content.encode("utf-8", "surrogatepass"))

    @property
    def is_sound(self) -> bool:
        """Whether its bytes are the ones that were written."""
        return self.holds is self


@dataclass(eq=False)
class Room:
    """A session's row: one generation of a name. It lives until it is ended, also when it has expired."""

    user: "User"
    name: str | None
    id: str
    idle: int
    result: int | None
    maximum_at: int
    used: int
    expires: int
    handle: Any = None
    live: bool = True
    claimed: int = 0
    last_number: int = 0
    #: How many wrapped keys it has while it lives.
    keys: int = 1
    limits: dict[str, int | None] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)

    @property
    def where(self) -> tuple[str, str, str | None]:
        """By which names it is opened."""
        return self.user.tenant.name, self.user.name, self.name

    @property
    def owners(self) -> "tuple[Room, User, Tenant]":
        """Who is charged for what is in it, the narrowest first."""
        return self, self.user, self.user.tenant


@dataclass(eq=False)
class User:
    """A user's row. It has a receipt while it is being erased."""

    tenant: "Tenant"
    name: str
    id: str
    receipt: Receipt | None = None
    limits: dict[str, int | None] = field(default_factory=dict)
    rooms: list[Room] = field(default_factory=list)


@dataclass(eq=False)
class Tenant:
    """A tenant's row, likewise."""

    name: str
    id: str
    receipt: Receipt | None = None
    limits: dict[str, int | None] = field(default_factory=dict)
    users: list[User] = field(default_factory=list)
    keys: int = 1

    @property
    def rooms(self) -> list[Room]:
        """All its users' rooms, in the order in which the library goes through them."""
        return sorted((room for user in self.users for room in user.rooms), key=lambda room: room.id)


Owner = Tenant | User | Room
LEVELS: Final = {Room: "session", User: "user", Tenant: "tenant"}


def effective(limit: str, *owners: Owner) -> int | None:
    """Return what holds at the first of these owners: the narrowest that has it, or the manager's."""
    found: int | None = getattr(DEFAULT_LIMITS, limit)
    for owner in reversed(owners):
        found = owner.limits.get(limit, found)
    return found


def used(owner: Owner) -> Used:
    """Sum up what an owner is charged: everything that has a row, whatever its state."""
    rooms = [owner] if isinstance(owner, Room) else owner.rooms
    items = [item for room in rooms for item in room.items]
    return Used(sum(item.size for item in items), len(items), len(rooms))


def refusal(*owners: Owner, size: int = 0, results: int = 0, sessions: int = 0) -> Refused | None:
    """
    Return the first limit that does not allow so much more, the narrowest owner first.

    A limit below what is in use refuses a result of no bytes as well; a session is refused by limits on sessions only.
    """
    for index, owner in enumerate(owners):
        level, now = LEVELS[type(owner)], used(owner)
        asked = [("bytes", now.used_bytes, size), ("results", now.results, results)] if results else []
        for unit, have, more in asked or [("sessions", now.sessions, sessions)]:
            limit = effective(f"{level}_{unit}", *owners[index:])
            if limit is not None and have + more > limit:
                return Refused(level, unit, limit, have, more)
    return None


class House:
    """All of it."""

    def __init__(self) -> None:
        self.now = 0
        self.tenants: list[Tenant] = []

    # Who is there.

    def rooms(self) -> list[Room]:
        """Every room that has a row."""
        return [room for tenant in self.tenants for room in tenant.rooms]

    def open_rooms(self) -> list[Room]:
        """The rooms that anybody can still enter."""
        return [room for room in self.rooms() if self.is_open(room)]

    def tenant(self, name: str) -> Tenant | None:
        """The live tenant of that name."""
        return next((one for one in self.tenants if one.name == name and one.receipt is None), None)

    def user(self, tenant: str, name: str) -> User | None:
        """The live user of that name."""
        found = self.tenant(tenant)
        users = () if found is None else found.users
        return next((one for one in users if one.name == name and one.receipt is None), None)

    def room(self, tenant: str, user: str, name: str | None) -> Room | None:
        """The room of that name that was not ended, expired or not."""
        found = self.user(tenant, user)
        rooms = () if found is None else found.rooms
        return next((one for one in rooms if one.name == name and one.live), None)

    def is_open(self, room: Room) -> bool:
        """Whether a room can be entered: neither ended nor expired."""
        return room.live and room.expires > self.now

    def is_readable(self, item: Item) -> bool:
        """Whether a result of an open room is there for its readers."""
        return item.state == "committed" and (item.expires is None or item.expires > self.now)

    def listed(self, room: Room) -> list[Item]:
        """What a room shows, newest first."""
        return sorted(filter(self.is_readable, room.items), key=lambda item: -item.number)

    # What use does.

    def touch(self, room: Room) -> None:
        """Move the idle expiry, at most once per sixteenth of the idle time."""
        if room.used + room.idle // TOUCH_FRACTION < self.now:
            room.used, room.expires = self.now, min(self.now + room.idle, room.maximum_at)

    def may_open(self, tenant: str, user: str) -> Refused | None:
        """Whether another session may be created; makes room for it if that is needed."""
        refused = self._may_open(tenant, user)
        found = self.tenant(tenant)
        if refused is None or found is None or not self.make_room(found):
            return refused
        return self._may_open(tenant, user)

    def _may_open(self, tenant: str, user: str) -> Refused | None:
        of_tenant = self.tenant(tenant) or Tenant(tenant, "")
        of_user = self.user(tenant, user) or User(of_tenant, user, "")
        return refusal(of_user, of_tenant, sessions=1)

    def may_write(self, room: Room, size: int) -> Refused | None:
        """Whether so much may be written; makes room for it if that is needed."""
        refused = refusal(*room.owners, size=size, results=1)
        if refused is None or not self.make_room(room.user.tenant):
            return refused
        return refusal(*room.owners, size=size, results=1)

    # What ends.

    def make_room(self, tenant: Tenant) -> bool:
        """Reclaim a few of a tenant's expired rooms and results; whether there were any."""
        most = RECLAIM_ON_REFUSAL
        gone = self._end_expired(tenant, most) or [room for room in tenant.rooms if not room.live][:most]
        expired = self._expired_items(tenant)[:most]
        for room in gone:
            self.remove(room)
        for item in expired:
            item.room.items.remove(item)
        return bool(gone or expired)

    def _end_expired(self, tenant: Tenant, most: int | None = None) -> list[Room]:
        ended = [room for room in tenant.rooms if room.live and room.expires <= self.now][:most]
        for room in ended:
            room.live = False
        return ended

    def _expired_items(self, tenant: Tenant) -> list[Item]:
        items = [item for room in tenant.rooms if room.live for item in room.items]
        return [item for item in items if item.state == "committed" and not self.is_readable(item)]

    def remove(self, room: Room) -> None:
        """Take away an ended room with all in it, and count it on the receipt of its user's erasure."""
        receipt, charged = room.user.receipt, used(room)
        if receipt is not None:
            receipt.sessions += 1
            receipt.results += charged.results
            receipt.used_bytes += charged.used_bytes
        room.live = False
        room.user.rooms.remove(room)

    def stale(self) -> list[Item]:
        """Writes and deletes that nobody is at any more."""
        items = [item for room in self.rooms() for item in room.items]
        return [item for item in items if item.lease is not None and item.lease <= self.now]

    def waiting(self) -> Used:
        """What a cleanup would reclaim."""
        gone = [room for room in self.rooms() if not self.is_open(room)]
        items = {item for room in gone for item in room.items} | set(self.stale())
        items |= {item for tenant in self.tenants for item in self._expired_items(tenant)}
        return Used(sum(item.size for item in items), len(items), len(gone))

    def cleanup(self) -> Used:
        """Reclaim what has ended, and finish what was interrupted."""
        tenants = list(self.tenants)
        before = self._charged(tenants)
        for tenant in tenants:
            self._end_expired(tenant)
            for item in self._expired_items(tenant):
                item.room.items.remove(item)
        for item in self.stale():
            if item.room.live:
                item.room.items.remove(item)
        for room in self.rooms():
            if not room.live and room.claimed <= self.now:
                self.remove(room)
        for erasing in list(self.unfinished()):
            self.carry_out(erasing)
        return Used(*(was - now for was, now in zip(before, self._charged(tenants), strict=True)))

    def _charged(self, tenants: list[Tenant]) -> Used:
        return Used(*(sum(each) for each in zip(Used(0, 0, 0), *map(used, tenants), strict=True)))

    def unfinished(self) -> Iterator[Tenant | User]:
        """The erasures that were begun and not finished."""
        for tenant in self.tenants:
            if tenant.receipt is not None:
                yield tenant
            else:
                yield from (user for user in tenant.users if user.receipt is not None)

    def begin(self, owner: Tenant | User) -> Receipt:
        """Begin an erasure: from here on everything in it is unreadable."""
        if owner.receipt is None:
            keys = sum(room.keys for room in owner.rooms if room.live)
            owner.receipt = Receipt(keys=keys + (owner.keys if isinstance(owner, Tenant) else 0))
            for user in owner.users if isinstance(owner, Tenant) else ():
                user.receipt = user.receipt or owner.receipt
            for room in owner.rooms:
                room.live = False
        return owner.receipt

    def carry_out(self, owner: Tenant | User) -> None:
        """Finish an erasure."""
        for room in list(owner.rooms):
            self.remove(room)
        for user in list(owner.users) if isinstance(owner, Tenant) else [owner]:
            assert user.receipt is not None
            user.receipt.users += 1
            user.tenant.users.remove(user)
        if isinstance(owner, Tenant):
            self.tenants.remove(owner)

    def delete(self, room: Room | None) -> Receipt:
        """Take away one room, whether or not it has expired."""
        if room is None:
            return Receipt()
        charged = used(room)
        self.remove(room)
        return Receipt(0, 1, charged.results, charged.used_bytes, room.keys)

    def erase(self, owners: "list[Tenant] | list[User]") -> Receipt:
        """Erase the owners of one name, those whose erasure was interrupted first; the last one's receipt."""
        receipt = Receipt()
        for owner in sorted(owners, key=lambda one: (one.receipt is None, one.id)):
            receipt = self.begin(owner)
            self.carry_out(owner)
        return receipt

    def damaged(self) -> list[Item]:
        """The results that a check must complain of."""
        items = [item for room in self.rooms() if room.live for item in room.items]
        return [item for item in items if item.state == "committed" and not item.is_sound]
