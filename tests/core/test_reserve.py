"""A full disk under the catalogue: what takes something away uses the reserve, what adds something does not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stores.errors import StoreFull
from stores.reserve import RESERVE_FILES
from stores.sql import Database, Transaction
from tenancy import Lifetime, Limits, Session, SessionManager, StorageFull
from tests.conftest import INLINE_BYTES
from tests.core.ledger import Ledger

Open = Callable[..., Session]
WHO = {"tenant": "acme", "user": "ann", "session": "chat"}


@pytest.fixture
def database_kind() -> str:
    """A server keeps its own disk."""
    return "sqlite"


@pytest.fixture
def inline_bytes() -> int:
    """The catalogue is written to either way."""
    return INLINE_BYTES["inline"]


@pytest.fixture
def reserve(manager: SessionManager) -> Callable[[], int]:
    """Counts the files of the reserve."""
    path = manager._backend.catalogue.database.sqlite_path
    assert path is not None
    return lambda: len(list(path.parent.glob(f"{path.name}-reserve*")))


class FullDisk:
    """
    Lets no transaction of the catalogue be committed, until so many files of the reserve were given up.

    :param enough: How many; `None` if no number is.
    """

    def __init__(self, reserve: Callable[[], int], *, enough: int | None) -> None:
        self._reserve = reserve
        self._enough = enough
        self.fewest = RESERVE_FILES
        self.refused = 0

    def is_full(self) -> bool:
        self.fewest = min(self.fewest, self._reserve())
        return self._enough is None or self._reserve() > RESERVE_FILES - self._enough

    @contextmanager
    def writing(self, real: Callable[..., Any], database: Database, **settings: Any) -> Iterator[Transaction]:
        with real(database, **settings) as transaction:
            yield transaction
            if self.is_full():
                self.refused += 1
                raise StoreFull("The disk of the database is full.")


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch, reserve: Callable[[], int]) -> Callable[..., FullDisk]:
    def filled(*, enough: int | None) -> FullDisk:
        disk, real = FullDisk(reserve, enough=enough), Database.writing
        monkeypatch.setattr(Database, "writing", lambda self, **settings: disk.writing(real, self, **settings))
        return disk

    return filled


def delete(manager: SessionManager, session: Session, reference: str) -> None:
    session.delete(reference)


def clean(manager: SessionManager, session: Session, reference: str) -> None:
    manager.clock.advance(timedelta(days=40))
    assert manager.cleanup().complete


def repair(manager: SessionManager, session: Session, reference: str) -> None:
    with manager._backend.catalogue.database.reading() as transaction:
        transaction.connection.execute("UPDATE tenancy_usage SET used_bytes = used_bytes + 1")
    assert manager.verify(repair=True).ok


REMOVERS = {
    "delete": delete,
    "delete_session": lambda manager, session, reference: manager.delete_session(**WHO),
    "erase_user": lambda manager, session, reference: manager.erase_user(tenant="acme", user="ann"),
    "erase_tenant": lambda manager, session, reference: manager.erase_tenant(tenant="acme"),
    "cleanup": clean,
    "repair": repair,
    "set_limits": lambda manager, session, reference: manager.set_limits(Limits(user_bytes=9), tenant="acme"),
}


@pytest.mark.parametrize("enough", [1, RESERVE_FILES])
@pytest.mark.parametrize("remover", REMOVERS)
def test_what_takes_something_away_is_done_with_as_much_of_the_reserve_as_it_takes(
    remover: str,
    enough: int,
    manager: SessionManager,
    session: Session,
    ledger: Ledger,
    reserve: Callable[[], int],
    fill: Callable[..., FullDisk],
) -> None:
    reference = session.write(b"x" * 40_000)
    assert reserve() == RESERVE_FILES
    disk = fill(enough=enough)
    REMOVERS[remover](manager, session, reference)
    assert disk.fewest == RESERVE_FILES - enough
    assert disk.refused >= enough
    # It is there again for the next one.
    assert reserve() == RESERVE_FILES
    ledger.require_balanced()


@pytest.mark.parametrize("remover", REMOVERS)
def test_a_disk_that_stays_full_is_said_to_be_full_and_nothing_is_half_done(
    remover: str,
    manager: SessionManager,
    session: Session,
    ledger: Ledger,
    reserve: Callable[[], int],
    fill: Callable[..., FullDisk],
) -> None:
    reference = session.write(b"x" * 40_000)
    disk = fill(enough=None)
    with pytest.raises(StorageFull):
        REMOVERS[remover](manager, session, reference)
    assert disk.fewest == 0
    assert ledger.states() == {"committed": 1}
    if remover != "repair":
        ledger.require_balanced()


def test_what_adds_something_leaves_the_reserve_alone(
    manager: SessionManager,
    session: Session,
    open_session: Open,
    ledger: Ledger,
    reserve: Callable[[], int],
    fill: Callable[..., FullDisk],
) -> None:
    reference = session.write("kept")
    disk = fill(enough=1)
    for write in (lambda: session.write(b"x" * 40_000), lambda: session.write("x"), lambda: open_session("another")):
        with pytest.raises(StorageFull):
            write()
    assert disk.fewest == RESERVE_FILES
    assert session.read(reference) == "kept"
    ledger.require_balanced()


def test_while_the_reserve_is_in_use_nothing_is_added(
    manager: SessionManager,
    session: Session,
    open_session: Open,
    ledger: Ledger,
    reserve: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference = session.write("kept")
    database = manager._backend.catalogue.database
    assert database.give_up_reserve()
    with monkeypatch.context() as full:
        full.setattr("stores.reserve.Reserve._has_room", lambda self, files: False)
        for write in (lambda: session.write(b"x" * 40_000), lambda: session.write("x"), lambda: open_session("b")):
            with pytest.raises(StorageFull):
                write()
        assert session.read(reference) == "kept"
        session.delete(reference)
    ledger.require_balanced()
    session.write("there is room again")
    assert reserve() == RESERVE_FILES


def test_cleanup_takes_smaller_batches_where_there_is_not_room_for_large_ones(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        open_session(f"s{number}", lifetime=Lifetime(idle=timedelta(hours=1))).write("x")
    manager.clock.advance(timedelta(hours=1))
    table = type(manager._backend.catalogue.reclaim)
    pages: list[int] = []

    def limited(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *, page: int, **only: Any) -> Any:
            pages.append(page)
            if page > 5:
                raise StoreFull("The disk of the database is full.")
            return method(self, page=page, **only)

        return run

    for name in ("end_expired", "claim_ended"):
        monkeypatch.setattr(table, name, limited(getattr(table, name)))
    assert manager.cleanup().sessions == 12
    assert set(pages) == {500, 50, 5}
    ledger.require_empty()


def test_a_checkpoint_uses_the_reserve_too(
    manager: SessionManager, session: Session, reserve: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.write("x")
    database = manager._backend.catalogue.database
    real, seen = Database._checkpoint, []

    def checkpoint(self: Database, mode: str) -> bool:
        seen.append((mode, reserve()))
        if reserve() > RESERVE_FILES - 2:
            raise StoreFull("The disk of the database is full.")
        return real(self, mode)

    monkeypatch.setattr(Database, "_checkpoint", checkpoint)
    assert database.checkpoint(truncate=True)
    assert seen[-1] == ("TRUNCATE", RESERVE_FILES - 2)
    assert Path(f"{database.sqlite_path}-wal").stat().st_size == 0
