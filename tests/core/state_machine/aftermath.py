"""What the death of the process has left: anything its work may have got to, and nothing else."""

from dataclasses import dataclass, field
from typing import Any

from tenancy import Lifetime
from tests.core.state_machine.model import MINUTE, House, Item, Owner, Room, Tenant, User
from tests.core.state_machine.place import Rows


@dataclass
class Reach:
    """
    What the work that died may have changed.

    :param owners: Tenants and users that it may have begun to erase, or have erased.
    :param rooms: Rooms that it may have ended or removed.
    :param items: Results that it may have made unreadable or have removed.
    :param used: The room whose expiry it may have moved.
    :param opening: The names of a room that it may have created, its lifetime, and its limit.
    :param writing: The result that it may have written.
    """

    owners: set[Owner] = field(default_factory=set)
    rooms: set[Room] = field(default_factory=set)
    items: set[Item] = field(default_factory=set)
    used: Room | None = None
    opening: tuple[tuple[str, str, str | None], Lifetime, int | None] | None = None
    writing: Item | None = None

    def add_reclaimable(self, house: House, *tenants: Tenant) -> None:
        """Also what anybody may reclaim who needs room, or keeps house."""
        for tenant in tenants:
            self.rooms |= {room for room in tenant.rooms if not house.is_open(room)}
            self.items |= {item for room in tenant.rooms for item in room.items if not house.is_readable(item)}

    def add_erasure(self, *owners: Tenant | User) -> None:
        """Also the erasure of somebody."""
        for owner in owners:
            self.owners |= {owner, *(owner.users if isinstance(owner, Tenant) else ())}
            self.rooms |= set(owner.rooms)


class Aftermath:
    """
    Brings a model in line with what is there, and demands that it could come to be so.

    :param epoch_us: The real moment at which the model's time begins.
    """

    def __init__(self, house: House, rows: Rows, reach: Reach, *, epoch_us: int) -> None:
        self._house = house
        self._rows = rows
        self._reach = reach
        self._epoch_us = epoch_us
        #: Results that are there no more.
        self.lost: list[Item] = []
        #: The ids of a room that was created.
        self.created: Any = None

    def settle(self) -> None:
        """Do it."""
        self._begun()
        for room in self._house.rooms():
            self._room(room)
        self._finished()
        for room in self._house.rooms():
            self._items(room)
        self._created()

    def _begun(self) -> None:
        for tenant in self._house.tenants:
            for owner in (tenant, *tenant.users):
                if self._rows.owners.get(owner.id) != "live" and owner.receipt is None:
                    assert owner in self._reach.owners
                    self._house.begin(owner)

    def _room(self, room: Room) -> None:
        row = self._rows.sessions.get(room.id)
        if row is None:
            assert room in self._reach.rooms
            self.lost += room.items
            self._house.remove(room)
            return
        if row.state == "ended" and room.live:
            assert room in self._reach.rooms
            room.live = False
        assert row.state == ("live" if room.live else "ended")
        room.claimed = self._moment(row.claimed_until_us) or 0
        if not self._is_now(room.used, row.used_at_us):
            assert room is self._reach.used
            self._house.touch(room)
        assert self._is_now(room.used, row.used_at_us)
        assert self._is_now(room.expires, row.expires_at_us)

    def _is_now(self, moment: int, real_us: int) -> bool:
        return abs(real_us - self._epoch_us - moment) < MINUTE

    def _finished(self) -> None:
        for owner in [*self._house.tenants, *(user for tenant in self._house.tenants for user in tenant.users)]:
            if owner.id not in self._rows.owners and (isinstance(owner, Tenant) or owner in owner.tenant.users):
                assert owner in self._reach.owners
                assert owner.rooms == []
                self._house.carry_out(owner)

    def _items(self, room: Room) -> None:
        for item in list(room.items):
            row = self._rows.results.get((room.id, item.number))
            if row is None:
                assert item in self._reach.items
                room.items.remove(item)
                self.lost.append(item)
            elif row.state != "committed":
                assert item.state == row.state or item in self._reach.items
                item.state, item.lease = row.state, self._moment(row.lease_until_us)

    def _created(self) -> None:
        rooms = {room.id: room for room in self._house.rooms()}
        known = {(room.id, item.number) for room in rooms.values() for item in room.items}
        for key in set(self._rows.results) - known:
            item, row = self._reach.writing, self._rows.results[key]
            assert item is not None
            assert key == (item.room.id, item.number)
            item.state, item.lease = row.state, self._moment(row.lease_until_us)
            item.room.items.append(item)
            item.room.last_number += 1
        for session_id in set(self._rows.sessions) - set(rooms):
            assert self._reach.opening is not None
            assert self.created is None
            self.created = self._rows.sessions[session_id].ids

    def _moment(self, moment_us: int | None) -> int | None:
        return None if moment_us is None else moment_us - self._epoch_us
