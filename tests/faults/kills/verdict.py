"""What must be true when the killing is over: nothing is lost, nothing that was deleted is back, nothing is left."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Final

from tenancy import ResultNotFound, SessionManager, TenancyError
from tests.core.ledger import Ledger
from tests.faults.books import books
from tests.faults.house import House
from tests.faults.kills.houses import PostgresHouse
from tests.faults.kills.journal import Room, Story
from tests.faults.kills.lives import BRIEF, STAYING, content_of
from tests.faults.recovery import LEASES_OUT

#: Longer than any session lives.
_FOR_EVER: Final = timedelta(days=60)


def verdict(house: House | PostgresHouse, told: Story, *, offset_us: int) -> list[str]:
    """Say what is not as it must be, a sentence each."""
    found = list(told.wrongs)
    with closing(house.open()) as manager:
        manager.clock.offset_us = offset_us
        found += [f"before cleanup: {sentence}" for sentence in _results(manager, told)]
        manager.clock.advance(LEASES_OUT)
        if not manager.cleanup().complete:
            found.append("cleanup did not come to its end")
        found += _results(manager, told)
        found += [f"verify finds {finding.count} {finding.kind}" for finding in manager.verify().findings]
    found += books(house)
    with closing(house.open()) as manager, closing(Ledger(house)) as ledger:
        manager.clock.offset_us = offset_us
        manager.clock.advance(_FOR_EVER)
        manager.cleanup()
        if any(ledger.count(table) for table in ("tenancy_sessions", "tenancy_results", "tenancy_blobs")):
            found.append("rows are left of sessions that have expired")
        if ledger.files or ledger.directories:
            found.append("files or directories are left of sessions that have expired")
        if any(any(row[1:]) for row in ledger.counters()):
            found.append("something is charged to those who have nothing")
    return found


def _results(manager: SessionManager, told: Story) -> Iterator[str]:
    there: Counter[str] = Counter()
    for room in STAYING + BRIEF:
        for key, reference, content in _listed(manager, room):
            there[key] += 1
            if content != content_of(key):
                yield f"{key} is altered or damaged"
            if told.begun.get(key) != room:
                yield f"{key} is in a room where nobody wrote it"
            if key in told.refused:
                yield f"{key} was refused ({told.refused[key]}) and is there"
            if key in told.written and told.written[key] != (room, reference):
                yield f"{key} has another reference than was acknowledged"
            if (room, reference) in told.deleted:
                yield f"{key} was deleted and is there again"
    if any(count > 1 for count in there.values()):
        yield "a result is there twice"
    for key, (room, reference) in told.written.items():
        if room in STAYING and (room, reference) not in told.deleting and not there[key]:
            yield f"{key} was acknowledged and is lost"
    yield from _readable(manager, told)


def _listed(manager: SessionManager, room: Room) -> Iterator[tuple[str, str, object]]:
    tenant, user, name = room
    if not any(info.session == name for info in manager.sessions(tenant=tenant, user=user)):
        return
    session = manager.session(tenant=tenant, user=user, session=name)
    for result in list(session.results()):
        try:
            yield result.name, result.reference, session.read(result.reference)
        except TenancyError as error:
            yield result.name, result.reference, error


def _readable(manager: SessionManager, told: Story) -> Iterator[str]:
    """Ask by reference too: what a listing does not show could still be there."""
    for room, reference in told.deleted:
        tenant, user, name = room
        try:
            manager.session(tenant=tenant, user=user, session=name).read(reference)
        except ResultNotFound:
            continue
        yield f"{reference} was deleted and can be read"
