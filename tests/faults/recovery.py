"""
What must be true after a fault, whatever it was, for somebody who opens the data directory anew: the invariants.

What is not asked for:

* That a call which raised has changed nothing. The fault may have struck after the commit point (what a delete still
  has to remove, the answer of the database), where nothing can be taken back any more. What is asked is that all of it
  happened or nothing, and that nothing is left half done when cleanup has been there.
* That a call whose process was killed did either.
* That the process which met the fault can go on with the connection it has.
* That the name of SQLite's log is on the disk. SQLite syncs its directory once and does not look at the answer
  (`unixSync` of os_unix.c): if that failed, which nobody hears of, and then the power goes, commits are lost.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Final

from tenancy import SessionManager, TenancyError
from tenancy.startup import RESULTS_FOLDER
from tests.faults.books import books, described
from tests.faults.house import House, World
from tests.faults.injector import KILL, KILLED_BY, SYNCS, Outcome, Seen
from tests.faults.operations import Operation

#: Longer than any lease or claim, and far shorter than any lifetime in a house.
LEASES_OUT: Final = timedelta(minutes=3)
_ANSWERS: Final = ("StorageUnavailable", "StorageFull")
_ANSWERS_AT_START: Final = (*_ANSWERS, "ConfigurationError")

#: Interrupted before anything was tried: Python itself then tries again.
_NO_FAILURES: Final = ("EINTR",)
#: The folder, the tenant's, the session's, and the file. Everything above is a directory.
_PARTS_OF_A_RESULT: Final = 4

#: Whose session holds what under which reference.
Found = dict[tuple[str, str, str], dict[str, str | bytes]]


def broken(house: House, world: World, operation: Operation, outcome: Outcome, *, mode: str) -> list[str]:
    """Bring a data directory in order as an operator would, and say what is not as it must be, a sentence each."""
    found = list(_answer(operation, outcome, mode=mode))
    try:
        if not outcome.is_returned:
            operation.repair(house)
        with closing(house.open(later=operation.later)) as manager:
            found += _contents(manager, world, operation, outcome)
            manager.clock.advance(LEASES_OUT)
            if not manager.cleanup().complete:
                found.append("cleanup did not come to its end")
            found += _contents(manager, world, operation, outcome)
            found += [f"verify finds {finding.count} {finding.kind}" for finding in manager.verify().findings]
        found += books(house)
    except Exception as error:
        found.append(f"afterwards: {described(error)}")
    return sorted(set(found))


def _answer(operation: Operation, outcome: Outcome, *, mode: str) -> Iterator[str]:
    if outcome.died is not None and not (mode == KILL and outcome.died == KILLED_BY):
        yield f"the process ended by itself, with {outcome.died}"
    if outcome.raised is not None:
        if not outcome.is_ours:
            yield f"it raised {outcome.said}, which is no error of ours"
        elif outcome.raised not in (_ANSWERS_AT_START if operation.starts else _ANSWERS):
            yield f"it raised {outcome.raised}, which says something that is not true"
        elif outcome.raised == "StorageFull" and mode != "ENOSPC":
            yield "it said that the disk is full, and it was not"
    if outcome.returned == "something else":
        yield "it read something else than was written"
    if outcome.struck is not None and outcome.struck.name in SYNCS and mode not in (KILL, *_NO_FAILURES):
        yield from _syncs(operation, outcome, outcome.struck)


def _syncs(operation: Operation, outcome: Outcome, struck: Seen) -> Iterator[str]:
    """Judge what became of a failure to bring something to the disk."""
    parts = (struck.target or "").split("/")
    is_result = parts[0] == RESULTS_FOLDER and len(parts) == _PARTS_OF_A_RESULT
    if is_result and outcome.is_synced_again:
        yield "a file that could not be synced was synced again"
    is_of_log = (struck.name, struck.target) == ("fdatasync", "")
    if outcome.is_returned and operation.must_sync and not is_of_log and (is_result or struck.name != "close"):
        yield "something could not be synced, and it was acknowledged nevertheless"


def _contents(manager: SessionManager, world: World, operation: Operation, outcome: Outcome) -> Iterator[str]:
    found: Found = {}
    for info in list(manager.sessions()):
        session = manager.session(tenant=info.tenant, user=info.user, session=info.session)
        room = found[info.tenant, info.user, info.session or ""] = {}
        for result in list(session.results()):
            try:
                room[result.reference] = session.read(result.reference)
            except TenancyError as error:
                yield f"a result that is listed cannot be read: {type(error).__name__}"
    returned = outcome.is_returned
    for entry in world.with_fate("kept"):
        if _taken(found, entry.room, entry.reference) != entry.content:
            yield "a result that nobody touched is lost or altered"
    for entry in world.with_fate("ended"):
        if _taken(found, entry.room, entry.reference) is not None:
            yield "a result that has ended can be read"
    targets = list(world.with_fate("target"))
    left = [content for entry in targets if (content := _taken(found, entry.room, entry.reference)) is not None]
    if left and returned:
        yield "what was removed and acknowledged is there again"
    if left and left != [entry.content for entry in targets]:
        yield "what was to be removed is removed in part, or altered"
    if operation.opens and returned and tuple(operation.opens.values()) not in found:
        yield "a session that was opened is not there"
    yield from _written(found, operation, outcome)


def _written(found: Found, operation: Operation, outcome: Outcome) -> Iterator[str]:
    """Judge the results that nobody knows of: what is left of `found`."""
    room = tuple(operation.writes.values()) if operation.writes else None
    strangers = [(key, reference, content) for key, held in found.items() for reference, content in held.items()]
    if any((key, content) != (room, operation.content) for key, _, content in strangers) or len(strangers) > 1:
        yield "there is a result that nobody wrote"
    if room and outcome.returned is not None and outcome.returned not in [reference for _, reference, _ in strangers]:
        yield "a write was acknowledged and is lost"


def _taken(found: Found, room: dict[str, str], reference: str) -> str | bytes | None:
    return found.get((room["tenant"], room["user"], room["session"]), {}).pop(reference, None)
