"""Houses in which something has expired, was left half done, or counts wrong."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from stores.errors import StoreUnavailable
from stores.trash import Trash
from tenancy import Lifetime, TenancyError
from tenancy.catalogue.results import ResultTable
from tenancy.cleanup import Cleaner
from tests.core.interposed import Killed
from tests.faults.house import Filler, House, World

#: What is brief has expired by then, and every lease of before; the rest has not.
LATER: Final = timedelta(hours=2)
_BRIEF: Final = timedelta(hours=1)


def filled_with_ended(house: House) -> World:
    """People with sessions and results that have expired, and with deletes and writes that were cut short."""
    filler = Filler(house)
    with closing(filler.manager):
        filler.people()
        _expired(filler)
        _cut_short(filler)
        return filler.filled()


def filled_with_leftovers(house: House) -> World:
    """The same, with an erasure that was cut short and with counters that say something else than the rows."""
    filler = Filler(house)
    with closing(filler.manager):
        filler.people()
        _cut_short(filler)
        filler.write("globex", "ted", "chat", fate="ended")
        with _cut(Cleaner, "carry_out"), suppress(StoreUnavailable, TenancyError):
            filler.manager.erase_user(tenant="globex", user="ted")
        world = filler.filled()
    house.execute("UPDATE tenancy_usage SET used_bytes = used_bytes + 7, results = results + 1")
    return world


def _expired(filler: Filler) -> None:
    for user in ("ann", "bob"):
        filler.write("acme", user, "brief", fate="ended", lifetime=Lifetime(idle=_BRIEF))
    lifetime = Lifetime(result=_BRIEF)
    for _ in range(2):
        filler.write("acme", "ann", "of brief results", fate="ended", lifetime=lifetime)


def _cut_short(filler: Filler) -> None:
    """Leave a pending row with its file, a deleting row with its file, and a room in the trash."""
    doomed = filler.write("acme", "bob", "chat", fate="ended")
    removed = filler.write("acme", "bob", "removed", fate="ended")
    filler.write("acme", "bob", "chat")
    with _cut(Cleaner, "finish"), suppress(TenancyError):
        filler.session("acme", "bob", "chat").delete(doomed.reference)
    with _cut(ResultTable, "commit"), _cut(ResultTable, "abandon"), _inline_off(filler), suppress(Killed):
        filler.session("acme", "bob", "chat").write("never acknowledged")
    with _cut(Trash, "empty"), suppress(TenancyError):
        filler.manager.delete_session(**removed.room)


@contextmanager
def _inline_off(filler: Filler) -> Iterator[None]:
    # Only a result on its way into a file can be pending.
    backend = filler.manager._backend
    before, backend.inline_bytes = backend.inline_bytes, 0
    yield
    backend.inline_bytes = before


@contextmanager
def _cut(owner: type, method: str) -> Iterator[None]:
    """Let a process die, or give up, at one place."""

    def cut(*_: Any, **__: Any) -> None:
        raise Killed if owner is ResultTable else StoreUnavailable("cut short")

    real: Callable[..., Any] = getattr(owner, method)
    setattr(owner, method, cut)
    try:
        yield
    finally:
        setattr(owner, method, real)
