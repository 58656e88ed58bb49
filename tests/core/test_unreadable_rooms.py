"""A room that cannot be listed is a finding, and keeps nobody from the others."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from stores.errors import StoreFull
from stores.names import mint_name
from tenancy import Lifetime, SessionManager, StorageFull, StorageUnavailable
from tenancy.unknown import GRACE
from tenancy.verify import Finding
from tests.conftest import INLINE_BYTES, ManagerFactory
from tests.stores.plants import plant_directory, plant_fifo, plant_link_to_a_directory

NOBODY = 65534


@pytest.fixture
def database_kind() -> str:
    """Only the store matters here."""
    return "sqlite"


@pytest.fixture
def inline_bytes() -> int:
    """Large results only, which are files whatever goes inline."""
    return INLINE_BYTES["inline"]


class Rooms:
    """Two sessions of each of two tenants, with two results each and a file in each that no row speaks of."""

    def __init__(self, make_manager: ManagerFactory) -> None:
        self.results = make_manager.results
        self._make_manager = make_manager
        self._locked: list[Path] = []
        with make_manager() as manager:
            for tenant in ("acme", "umbrella"):
                for name in ("one", "two"):
                    with manager.session(
                        tenant=tenant, user="ann", session=name, lifetime=Lifetime(idle=timedelta(days=20))
                    ) as session:
                        for _ in range(2):
                            session.write(os.urandom(33_000))
        self.all = sorted({path.parent for path in self.results.glob("*/*/*")})
        self.strangers = [self._plant(room) for room in self.all]

    @staticmethod
    def _plant(room: Path) -> Path:
        path = room / mint_name()
        path.write_bytes(b"nobody's")
        path.chmod(0o600)
        return path

    def lock(self, directory: Path) -> None:
        """Make a directory one that this process may not use."""
        self._locked.append(directory)
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, -1)
        else:
            directory.chmod(0)

    def unlock(self) -> None:
        for directory in self._locked:
            if os.geteuid() == 0:
                os.chown(directory, 0, -1)
            directory.chmod(0o700)

    def later(self) -> SessionManager:
        """A manager that has no room open yet, when the strangers are old enough."""
        manager = self._make_manager()
        manager.clock.advance(GRACE + timedelta(seconds=1))
        return manager


@pytest.fixture
def rooms(make_manager: ManagerFactory) -> Iterator[Rooms]:
    made = Rooms(make_manager)
    yield made
    made.unlock()


@pytest.mark.parametrize(
    ("level", "unreadable"),
    # A room: its two results and itself. A tenant: the four results of its rooms, and itself.
    [("room", 2 + 1), ("tenant", 4 + 1)],
)
def test_what_cannot_be_listed_is_a_finding_and_all_other_rooms_are_looked_at(
    level: str, unreadable: int, rooms: Rooms
) -> None:
    # The one that is looked at first.
    tenant = rooms.results / os.listdir(rooms.results)[0]
    locked = tenant / os.listdir(tenant)[0] if level == "room" else tenant
    rooms.lock(locked)
    others = [path for path in rooms.strangers if not path.is_relative_to(locked)]
    manager = rooms.later()
    report = manager.verify(accept_unknown=True)
    assert set(report.findings) == {
        Finding("unreadable", unreadable, repaired=False),
        Finding("unknown_bytes", len(others), repaired=False),
    }
    assert report.checked_results == 8
    report = manager.verify(repair=True, accept_unknown=True)
    assert set(report.findings) == {
        Finding("unreadable", unreadable, repaired=False),
        Finding("unknown_bytes", len(others), repaired=True),
    }
    assert not report.ok
    assert not any(path.exists() for path in others)
    rooms.unlock()
    assert {path for path in rooms.strangers if path.exists()} == set(rooms.strangers) - set(others)


def plant_of_somebody_else(path: Path, target: Path) -> None:
    """A directory of another user's, or of nobody's that we may use."""
    path.mkdir(mode=0o700)


@pytest.mark.parametrize("plant", [plant_link_to_a_directory, plant_fifo, plant_of_somebody_else])
def test_something_foreign_in_place_of_the_quarantine_is_a_finding_and_stays(
    plant: Callable[[Path, Path], None], rooms: Rooms, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    quarantine = rooms.results / "quarantine"
    plant(quarantine, outside / "file")
    if plant is plant_of_somebody_else:
        rooms.lock(quarantine)
    before = quarantine.lstat()
    report = rooms.later().verify(repair=True, accept_unknown=True)
    assert set(report.findings) == {
        Finding("unreadable", len(rooms.all), repaired=False),
        Finding("unknown_bytes", len(rooms.all), repaired=False),
    }
    assert all(path.exists() for path in rooms.strangers)
    assert quarantine.lstat() == before
    assert list(outside.iterdir()) == []


def test_a_room_that_closes_between_the_looks_is_a_finding(rooms: Rooms) -> None:
    manager = rooms.later()
    audit = manager._backend.across.audit
    names, closed = audit.names, rooms.all[0]

    def close_meanwhile(tenant_id: str, session_id: str) -> set[str]:
        if (tenant_id, session_id) == closed.parts[-2:] and closed.exists():
            closed.rename(rooms.results / "elsewhere")
            plant_directory(closed, closed)
            rooms.lock(closed)
        return names(tenant_id, session_id)

    audit.names = close_meanwhile  # type: ignore[method-assign]
    report = manager.verify(accept_unknown=True)
    assert {finding.kind for finding in report.findings} == {"unreadable", "unknown_bytes"}


def test_a_catalogue_that_does_not_answer_is_no_finding_of_a_rooms(rooms: Rooms) -> None:
    manager = rooms.later()
    audit, names = manager._backend.across.audit, manager._backend.across.audit.names

    def close_the_database(tenant_id: str, session_id: str) -> set[str]:
        manager._backend.across.database.close()
        return names(tenant_id, session_id)

    audit.names = close_the_database  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        manager.verify(accept_unknown=True)


def test_a_disk_without_room_for_the_quarantine_is_said_to_be_full(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bool:
        raise StoreFull("The disk of the store is full.")

    monkeypatch.setattr("stores.filesystem.FilesystemNamespace.set_aside", full)
    with pytest.raises(StorageFull):
        rooms.later().verify(repair=True, accept_unknown=True)
    assert all(path.exists() for path in rooms.strangers)
