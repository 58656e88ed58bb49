"""Ids that do not belong together name nothing, in any step of the catalogue: not even by a bug above it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from tenancy import Lifetime, Session, SessionManager, SessionNotFound
from tenancy.backend import Backend
from tenancy.catalogue import counters
from tenancy.catalogue.charges import Charge, NotCharged, charge_last
from tenancy.catalogue.erasure import Erasing
from tenancy.catalogue.reclaim import Removed
from tenancy.catalogue.result_rows import Doomed, NewResult, StoredResult
from tenancy.catalogue.sessions import Ids, end_expired, end_session
from tenancy.quotas import Usage
from tenancy.references import Reference, parse_reference
from tests.core.ledger import Ledger


@dataclass(frozen=True)
class Room:
    """One person's session, with a result that is readable and one that is being written."""

    ids: Ids
    reference: Reference
    stored: StoredResult
    pending: NewResult

    @classmethod
    def of(cls, session: Session) -> "Room":
        ids, catalogue = session._opened.ids, session._backend.catalogue
        reference = parse_reference(session.write("x" * 100))
        assert reference is not None
        stored = catalogue.results.find(ids, reference).result
        assert stored is not None
        new = NewResult(ids, "p" * 32, lambda number: replace(reference, number=number), stored.envelope, inline=False)
        assert catalogue.results.insert(new).reference.number == 2
        return cls(ids, reference, stored, new)

    @property
    def doomed(self) -> Doomed:
        """The result that is being written, about to be removed."""
        return Doomed(self.ids, 2, self.pending.result_id, False, 100)

    def seen_as(self, **foreign: str) -> "Room":
        """The same room under ids of which one is somebody else's."""
        ids = replace(self.ids, **foreign)
        return replace(self, ids=ids, pending=replace(self.pending, ids=ids))


@dataclass(frozen=True)
class People:
    """Two users of a tenant and one of another; the first has two sessions."""

    ann: Room
    ann_too: Room
    bob: Room
    eve: Room

    def foreign(self) -> Iterator[tuple[str, Room]]:
        """Every way in which one of three ids can be wrong."""
        for mine, other in ((self.ann, self.eve), (self.eve, self.ann)):
            yield "another tenant", mine.seen_as(tenant_id=other.ids.tenant_id)
            yield "another tenant's session", other.seen_as(tenant_id=mine.ids.tenant_id, user_id=mine.ids.user_id)
        yield "no tenant", self.ann.seen_as(tenant_id="a" * 32)
        yield "no session", self.ann.seen_as(session_id="a" * 32)

    def of_another_user(self) -> Iterator[tuple[str, Room]]:
        """A tenant's own session, but not this user's."""
        for mine, other in ((self.ann, self.bob), (self.bob, self.ann_too)):
            yield "another user's session", other.seen_as(user_id=mine.ids.user_id)
        yield "another tenant's user", self.ann.seen_as(user_id=self.eve.ids.user_id)
        yield "no user", self.ann.seen_as(user_id="a" * 32)


@pytest.fixture
def people(manager: SessionManager) -> People:
    def room(tenant: str, user: str, session: str) -> Room:
        return Room.of(manager.session(tenant=tenant, user=user, session=session))

    return People(
        room("acme", "ann", "one"), room("acme", "ann", "two"), room("acme", "bob", "one"), room("globex", "ann", "one")
    )


@pytest.fixture
def backend(manager: SessionManager) -> Backend:
    return manager._backend


REFUSED = "refused"
Step = Callable[[Backend, Room], Any]

#: Steps on behalf of a user, with what each answers to ids that name nothing.
OF_A_USER: dict[str, tuple[Step, Any]] = {
    "admit": (lambda b, room: b.catalogue.results.admit(room.ids, key_version=1, size_bytes=1), REFUSED),
    "insert": (lambda b, room: b.catalogue.results.insert(replace(room.pending, result_id="q" * 32)), REFUSED),
    "commit": (lambda b, room: b.catalogue.results.commit(room.pending, 2), REFUSED),
    "find": (lambda b, room: b.catalogue.results.find(room.ids, room.reference), REFUSED),
    "list": (lambda b, room: b.catalogue.results.list(room.ids, before=None, page=10), REFUSED),
    "doom": (lambda b, room: b.catalogue.results.doom(room.ids, room.reference, drop=lambda *_: None), None),
    "is_live": (lambda b, room: b.catalogue.sessions.is_live(room.ids), False),
}
#: Steps on a session that somebody has found before.
OF_A_SESSION: dict[str, tuple[Step, Any]] = {
    "abandon": (lambda b, room: b.catalogue.results.abandon(room.pending, 2), True),
    "forget": (lambda b, room: b.catalogue.results.forget(room.pending, 2), None),
    "renew": (lambda b, room: b.catalogue.results.renew(room.pending, 2), None),
    "remove": (lambda b, room: b.catalogue.results.remove(room.doomed), False),
    "touch": (lambda b, room: b.catalogue.sessions.touch(room.ids), None),
    "has_ended": (lambda b, room: b.catalogue.sessions.has_ended(room.ids), True),
    "usage_of": (lambda b, room: _used(b.catalogue.administration.usage_of(room.ids)), (0, 0)),
    "names": (lambda b, room: b.catalogue.audit.names(room.ids.tenant_id, room.ids.session_id), set()),
    "committed": (lambda b, room: list(b.catalogue.audit.committed(room.ids)), []),
    "is_committed": (lambda b, room: b.catalogue.audit.is_committed(room.ids, room.stored), False),
    "remove_sessions": (
        lambda b, room: b.across.reclaim.remove_sessions([room.ids], drop=lambda *_: None),
        [Removed()],
    ),
    "release": (
        lambda b, room: b.across.reclaim.release(sessions=[room.ids], results=[room.doomed]),
        None,
    ),
    "charge": (lambda b, room: _within(b, charge_last, room, Charge("session", room.ids.session_id)), REFUSED),
    "refund": (lambda b, room: _within(b, counters.refund, room, room.ids.session_id, size_bytes=1), None),
    "close": (lambda b, room: _within(b, counters.close_counters, room, room.ids.session_id), None),
    "forget counters": (lambda b, room: _within(b, counters.remove_counters, room, room.ids.session_id), None),
    "lock": (lambda b, room: _within(b, counters.lock_owner, room, room.ids.session_id), False),
    "end": (lambda b, room: _within(b, end_session, room, room.ids.session_id), 0),
}


def _used(usage: Usage) -> tuple[int, int]:
    return usage.used_bytes, usage.results


def _within(backend: Backend, step: Callable[..., Any], room: Room, *given: Any, **named: Any) -> Any:
    with backend.catalogue.access.writing(room.ids.tenant_id) as transaction:
        return step(transaction, room.ids.tenant_id, *given, **named)


def answers(backend: Backend, steps: dict[str, tuple[Step, Any]], room: Room) -> dict[str, Any]:
    """What steps answer that is not what they must."""
    found = {}
    for name, (step, expected) in steps.items():
        answer: Any = REFUSED
        with suppress(SessionNotFound, NotCharged):
            answer = step(backend, room)
        if answer != expected:
            found[name] = answer
    return found


def test_ids_of_which_one_is_somebody_elses_name_no_session(
    manager: SessionManager, backend: Backend, people: People, ledger: Ledger
) -> None:
    # So that a touch would have something to move.
    manager.clock.advance(timedelta(hours=2))
    before = ledger.snapshot()
    for what, room in people.foreign():
        assert {what: answers(backend, OF_A_USER | OF_A_SESSION, room)} == {what: {}}
        assert ledger.snapshot() == before, what
    for what, room in people.of_another_user():
        assert {what: answers(backend, OF_A_USER, room)} == {what: {}}
        assert ledger.snapshot() == before, what


def test_the_same_steps_do_something_where_the_ids_belong_together(
    manager: SessionManager, backend: Backend, people: People, ledger: Ledger
) -> None:
    steps = OF_A_USER | OF_A_SESSION
    # These tidy up after what others have begun; see below and in the tests of cleanup.
    steps = {name: step for name, step in steps.items() if name not in ("remove_sessions", "remove", "release")}
    manager.clock.advance(timedelta(hours=2))
    for name, step in steps.items():
        room = Room.of(manager.session(tenant="acme", user="ann", session=f"for {name}"))
        before = ledger.snapshot()
        changes = answers(backend, {name: step}, room) or ledger.snapshot() != before
        assert changes, name
    assert people.ann.ids != people.bob.ids


def test_ids_of_which_one_is_somebody_elses_end_nothing_that_has_expired(
    manager: SessionManager, backend: Backend, people: People, ledger: Ledger
) -> None:
    def end(room: Room) -> None:
        now_us = backend.catalogue.sessions._moments.parameter()
        _within(backend, end_expired, room, room.ids.session_id, now_us=now_us)

    before = ledger.snapshot()
    # It has not expired.
    end(people.ann)
    assert ledger.snapshot() == before
    manager.clock.advance(timedelta(days=40))
    for what, room in people.foreign():
        end(room)
        assert ledger.snapshot() == before, what
    end(people.ann)
    assert ledger.snapshot() != before


def test_ids_of_which_one_is_somebody_elses_reclaim_nothing(
    manager: SessionManager, backend: Backend, people: People, ledger: Ledger
) -> None:
    manager.clock.advance(timedelta(days=40))
    assert len(backend.across.reclaim.end_expired(page=10)) == 4
    assert len(backend.across.reclaim.claim_ended(page=10)) == 4
    before = ledger.snapshot()
    steps = {name: OF_A_SESSION[name] for name in ("abandon", "forget", "remove", "remove_sessions", "release", "end")}
    for what, room in people.foreign():
        assert {what: answers(backend, steps, room)} == {what: {}}
        assert ledger.snapshot() == before, what
    ann, eve = people.ann.ids, people.eve.ids
    reclaim = backend.across.reclaim
    ended = {
        "tenant": sorted(ids.session_id for ids in reclaim.ended_of(ann.tenant_id, page=10)),
        "user": sorted(ids.session_id for ids in reclaim.ended_of(ann.tenant_id, user_id=ann.user_id, page=10)),
        "foreign user": reclaim.ended_of(ann.tenant_id, user_id=eve.user_id, page=10),
        "foreign tenant": reclaim.ended_of(eve.tenant_id, user_id=ann.user_id, page=10),
    }
    mine = sorted(room.ids.session_id for room in (people.ann, people.ann_too))
    assert ended == {
        "tenant": sorted([*mine, people.bob.ids.session_id]),
        "user": mine,
        "foreign user": [],
        "foreign tenant": [],
    }
    assert reclaim.remove_sessions([ann], drop=lambda *_: None) == [Removed(1, 2, 200)]


def test_room_is_made_among_a_tenants_own_sessions_and_results(
    manager: SessionManager, backend: Backend, ledger: Ledger
) -> None:
    short = Lifetime(idle=timedelta(days=30), maximum=timedelta(days=30), result=timedelta(hours=1))
    for tenant in ("acme", "globex"):
        manager.session(tenant=tenant, user="ann", session="old", lifetime=Lifetime(idle=timedelta(hours=1)))
        manager.session(tenant=tenant, user="ann", session="new", lifetime=short).write("x")
    manager.clock.advance(timedelta(hours=2))
    tenants = dict(ledger.all("SELECT name, tenant_id FROM tenancy_tenants"))
    reclaim = backend.catalogue.reclaim
    acme, globex = tenants["acme"], tenants["globex"]
    assert {ids.tenant_id for ids in reclaim.end_expired(page=9, tenant_id=acme)} == {acme}
    assert {doomed.ids.tenant_id for doomed in reclaim.doom_expired(page=9, tenant_id=globex)} == {globex}
    # Both old sessions, ended or not, and the result of the tenant that was not asked for.
    assert backend.across.reclaim.waiting() == Removed(2, 1, 1)


def test_an_erasure_under_ids_that_do_not_belong_together_erases_nothing(
    manager: SessionManager, backend: Backend, people: People, ledger: Ledger
) -> None:
    (erasing,) = backend.catalogue.erasure.begin_user(tenant="acme", user="bob")
    before = ledger.snapshot()
    receipt = backend.catalogue.receipts.read(erasing.tenant_id, erasing.receipt_id)
    ann, eve = people.ann.ids, people.eve.ids
    for foreign in (
        Erasing(eve.tenant_id, erasing.user_id, erasing.receipt_id),
        Erasing(eve.tenant_id, ann.user_id, erasing.receipt_id),
        Erasing(ann.tenant_id, eve.user_id, "r" * 32),
    ):
        backend.catalogue.erasure.end_rest(foreign)
        backend.catalogue.erasure.finish(foreign)
        with pytest.raises(LookupError):
            backend.catalogue.receipts.read(foreign.tenant_id, foreign.receipt_id)
        assert ledger.snapshot() == before
    assert backend.catalogue.receipts.read(erasing.tenant_id, erasing.receipt_id) == receipt
    assert manager.session(tenant="acme", user="ann", session="one").read(str(people.ann.reference)) == "x" * 100
