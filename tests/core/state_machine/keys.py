"""The machine with its keys: they are rotated, ended and away, and nothing that anybody stored is any different."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tenancy import KeyUnavailable, SessionNotFound
from tenancy.keys.keyset import KeyState
from tenancy.keys.keyset_editing import add_primary_key, destroy_key, disable_key, enable_key, list_keys
from tests.core.state_machine.aftermath import Reach
from tests.core.state_machine.machine import CONTENTS, LIFE, PICK, ROOM, STEP, WHO, Large, Machine, chosen
from tests.core.state_machine.model import Room, Tenant

LEVELS = st.sampled_from(["root", "tenant", "session"])


class KeysMachine(Machine):
    """Everything that can be done to one manager and its keys."""

    @rule(level=LEVELS, one=st.none() | WHO)
    def rotate(self, level: Any, one: int | None) -> None:
        if self.is_late:
            return
        name = None if one is None else self.tenants[one]
        if name is not None and self.house.tenant(name) is None:
            self.expect(SessionNotFound, lambda: self.manager.rotate_keys(level, tenant=name), about="rotate")
            return
        if level == "root":
            add_primary_key(self.place.factory.key_file)
        tenants = [one for one in self.house.tenants if one.receipt is None and name in (None, one.name)]
        expected = {
            "root": sum(tenant.keys for tenant in tenants),
            "tenant": sum(room.keys for tenant in tenants for room in tenant.rooms if room.live),
            "session": sum(self.house.is_open(room) for tenant in tenants for room in tenant.rooms),
        }[level]
        report = self.manager.rotate_keys(level, tenant=name)
        assert (report.failed, report.left) == (0, 0)
        # One that died may have done a part of it.
        assert report.changed <= expected
        assert report.resumed or report.changed == expected or level == "root"
        self.count_keys(tenants, level)
        if level == "tenant":
            assert {tenant.keys for tenant in tenants} <= {1}

    def count_keys(self, tenants: list[Tenant], level: str) -> None:
        """Take up how many keys there are now: one more at most where there was something to be rotated."""
        of_session: dict[str, int] = dict(
            self.place.ledger.all("SELECT session_id, count(*) FROM tenancy_session_keys GROUP BY session_id")
        )
        of_tenant: dict[str, int] = dict(
            self.place.ledger.all("SELECT tenant_id, count(*) FROM tenancy_tenant_keys GROUP BY tenant_id")
        )
        for tenant in self.house.tenants:
            now = of_tenant.get(tenant.id, 0)
            if tenant.receipt is None:
                assert now in (
                    {1, tenant.keys, tenant.keys + 1} if level == "tenant" and tenant in tenants else {tenant.keys}
                )
                tenant.keys = now
            for room in tenant.rooms:
                self._count(room, of_session.get(room.id, 0), may_grow=level == "session" and tenant in tenants)

    def _count(self, room: Room, now: int, *, may_grow: bool) -> None:
        if not room.live:
            assert now == 0
        else:
            assert now in ({room.keys, room.keys + 1} if may_grow else {room.keys})
            room.keys = now

    @rule(pick=PICK, how=st.sampled_from(["disable", "destroy"]))
    def end_old_keys(self, pick: int, how: str) -> None:
        """Nothing hangs on them once all is under the primary one."""
        if self.is_late:
            return
        path = self.place.factory.key_file
        old = [key.key_id for key in list_keys(path) if key.state is KeyState.ENABLED]
        assert self.manager.rewrap_keys("root").left == 0
        for key_id in old:
            (destroy_key if how == "destroy" else disable_key)(path, key_id)
        for key in list_keys(path):
            # What was disabled can do again what it could; nothing needs it.
            if key.state is KeyState.DISABLED and pick % 2:
                enable_key(path, key.key_id)

    @precondition(lambda self: self.house.open_rooms())
    @rule(pick=PICK, tenant=WHO, user=WHO, session=ROOM, life=LIFE, content=CONTENTS, deletes=st.booleans())
    def use_while_the_key_is_away(
        self, pick: int, tenant: int, user: int, session: int, life: Any, content: Any, deletes: bool
    ) -> None:
        """What has to be opened or sealed is refused and changes nothing; what is to go goes."""
        if self.is_late:
            return
        room, where = chosen(self.house.open_rooms(), pick), self.where(tenant, user, session)
        handle, items = self.handle(room), self.house.listed(room)
        value = content.value if isinstance(content, Large) else content
        found = self.house.room(*where)
        with self.place.key_away():
            for item in items[:2]:
                self.house.touch(room)
                self.expect(KeyUnavailable, lambda item=item: handle.read(item.reference))
            self.expect(KeyUnavailable, lambda: handle.write(value))
            if found is None or not self.house.is_open(found):
                self.expect(KeyUnavailable, lambda: self.enter(where, lifetime=life))
            if deletes and items:
                handle.delete(items[0].reference)
                room.items.remove(items[0])
                self.spent.append(items[0].reference)

    @rule(step=STEP, level=LEVELS, one=st.none() | WHO)
    def die_rotating(self, step: int, level: Any, one: int | None) -> None:
        if self.is_late:
            return
        name = None if one is None else self.tenants[one]
        if level == "root":
            add_primary_key(self.place.factory.key_file)
        tenants = [one for one in self.house.tenants if one.receipt is None and name in (None, one.name)]
        self.die(step, lambda: ((lambda: self.manager.rotate_keys(level, tenant=name)), Reach()))
        self.count_keys(tenants, level)
