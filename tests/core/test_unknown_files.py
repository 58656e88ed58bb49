"""Files that no row speaks of: left alone, then set aside, never deleted; and when there are many, an alarm."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from stores.names import mint_name
from tenancy import Lifetime, Limits, QuotaExceeded, Session, SessionManager
from tenancy.catalogue.reclaim import Removed
from tenancy.cleanup import Cleaner
from tenancy.unknown import GRACE, ONE_IN, Quarantine, UnknownFiles
from tenancy.verify import Finding
from tests.conftest import INLINE_BYTES, ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]
MOMENT = timedelta(seconds=1)


@pytest.fixture
def inline_bytes() -> int:
    """Only large results here, which are files whatever goes inline."""
    return INLINE_BYTES["inline"]


@pytest.fixture
def session(open_session: Open) -> Session:
    """One that outlives the grace."""
    return open_session(lifetime=Lifetime(idle=timedelta(days=20)))


@pytest.fixture
def results(make_manager: ManagerFactory) -> Path:
    return make_manager.results


def fill(session: Session, files: int) -> dict[str, bytes]:
    """Results that are files, whatever goes inline."""
    contents = [os.urandom(33_000) for _ in range(files)]
    return {session.write(content): content for content in contents}


def plant(room: Path) -> Path:
    """A file as a write leaves it whose row power loss has taken."""
    path = room / mint_name()
    path.write_bytes(b"nobody's")
    path.chmod(0o600)
    return path


def age(room: Path) -> None:
    """Let all files of a room have been there for long."""
    for path in room.iterdir():
        os.utime(path, (0, 0))


def room_of(results: Path) -> Path:
    return next(path.parent for path in results.glob("*/*/*"))


def kinds(manager: SessionManager, **settings: bool) -> list[Finding]:
    return list(manager.verify(**settings).findings)


@pytest.mark.case(61)
def test_an_unknown_file_is_left_alone_for_a_day_and_then_set_aside(
    manager: SessionManager, session: Session, ledger: Ledger, results: Path
) -> None:
    contents = fill(session, ONE_IN)
    stranger = plant(room_of(results))
    before = session.usage().used_bytes
    assert kinds(manager) == [Finding("unknown_bytes", 1, repaired=False)]
    manager.clock.advance(GRACE / 2)
    assert kinds(manager, repair=True) == [Finding("unknown_bytes", 1, repaired=False)]
    assert stranger.read_bytes() == b"nobody's"
    # Old enough; but nothing is moved by somebody who only looks.
    manager.clock.advance(GRACE / 2 + MOMENT)
    assert kinds(manager) == [Finding("unknown_bytes", 1, repaired=False)]
    assert stranger.exists()
    report = manager.verify(repair=True)
    assert (report.ok, report.alarm) == (True, False)
    assert report.findings == (Finding("unknown_bytes", 1, repaired=True),)
    aside = results / "quarantine" / stranger.relative_to(results)
    assert aside.read_bytes() == b"nobody's"
    assert not stranger.exists()
    assert manager.verify().ok
    assert (session.usage().used_bytes, len(list(session.results()))) == (before, ONE_IN)
    assert all(session.read(reference) == content for reference, content in contents.items())
    # Neither cleanup nor an erasure takes it away.
    manager.clock.advance(timedelta(days=40))
    assert manager.cleanup().sessions == 1
    manager.erase_tenant(tenant="acme")
    assert [str(path.relative_to(results)) for path in ledger.files] == [str(aside.relative_to(results))]
    assert aside.read_bytes() == b"nobody's"
    assert not any(any(row[1:]) for row in ledger.counters())


def test_unknown_files_of_rooms_that_nobody_has_are_set_aside_too(
    manager: SessionManager, session: Session, results: Path
) -> None:
    fill(session, 2 * ONE_IN)
    beside = results / room_of(results).parent.name / mint_name()
    elsewhere = results / mint_name() / mint_name()
    strangers = []
    for room in (beside, elsewhere):
        room.mkdir(parents=True, mode=0o700)
        room.parent.chmod(0o700)
        strangers.append(plant(room))
    manager.clock.advance(GRACE + MOMENT)
    assert kinds(manager, repair=True) == [Finding("unknown_bytes", 2, repaired=True)]
    for path in strangers:
        assert (results / "quarantine" / path.relative_to(results)).read_bytes() == b"nobody's"


def test_what_is_young_stays_a_finding_beside_what_was_set_aside(
    manager: SessionManager, session: Session, results: Path
) -> None:
    fill(session, 2 * ONE_IN)
    old, young = plant(room_of(results)), plant(room_of(results))
    manager.clock.advance(GRACE + MOMENT)
    now = manager.clock.now_us() / 1e6
    os.utime(young, (now, now))
    report = manager.verify(repair=True)
    assert set(report.findings) == {Finding("unknown_bytes", 1, repaired=value) for value in (True, False)}
    assert not report.ok
    assert (old.exists(), young.exists()) == (False, True)


def test_more_that_appear_before_they_are_set_aside_are_no_debt(
    manager: SessionManager, session: Session, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session, ONE_IN)
    plant(room_of(results))
    real = Quarantine.set_aside

    def plant_another(quarantine: Quarantine, found: UnknownFiles) -> int:
        plant(room_of(results))
        return real(quarantine, found)

    monkeypatch.setattr(Quarantine, "set_aside", plant_another)
    manager.clock.advance(GRACE + MOMENT)
    report = manager.verify(repair=True)
    assert report.findings == (Finding("unknown_bytes", 2, repaired=True),)
    assert report.ok


def test_a_file_with_a_name_of_somebody_elses_is_none_of_ours(
    manager: SessionManager, session: Session, results: Path
) -> None:
    fill(session, 1)
    room = room_of(results)
    for name in ("notes.txt", "A" * 32, "core"):
        (room / name).write_bytes(b"x")
    (room / ("l" * 32)).symlink_to("/etc/passwd")
    manager.clock.advance(GRACE + MOMENT)
    assert manager.verify(repair=True).ok
    assert len(list(room.iterdir())) == 5


@pytest.mark.parametrize("unknown", [1, 2])
def test_more_than_one_in_a_hundred_stops_everything_with_an_alarm(
    unknown: int,
    manager: SessionManager,
    session: Session,
    ledger: Ledger,
    results: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(session, unknown * (ONE_IN - 1) - 1)
    room = room_of(results)
    strangers = [plant(room) for _ in range(unknown)]
    ledger.run("UPDATE tenancy_usage SET used_bytes = used_bytes + 1")
    manager.clock.advance(GRACE + MOMENT)
    before = ledger.snapshot()
    for repair in (False, True):
        report = manager.verify(repair=repair)
        assert (report.alarm, report.ok) == (True, False)
        assert not any(finding.repaired for finding in report.findings)
    assert ledger.snapshot() == before
    assert all(path.exists() for path in strangers)
    assert [getattr(record, "event", "") for record in caplog.records] == ["many_unknown"] * 2
    # One more that is known, and it is exactly one in a hundred.
    ledger.run("UPDATE tenancy_usage SET used_bytes = used_bytes - 1")
    fill(session, 1)
    assert manager.verify(repair=True).ok


def test_who_knows_why_there_are_so_many_may_go_on(manager: SessionManager, session: Session, results: Path) -> None:
    fill(session, 1)
    stranger = plant(room_of(results))
    manager.clock.advance(GRACE + MOMENT)
    report = manager.verify(repair=True, accept_unknown=True)
    assert (report.alarm, report.ok) == (False, True)
    assert not stranger.exists()


def test_an_old_catalogue_beside_newer_files_deletes_nothing(
    make_manager: ManagerFactory, manager: SessionManager, session: Session, results: Path, ledger: Ledger
) -> None:
    old = fill(session, 20)
    ledger_of_old = ledger.snapshot()
    new = fill(session, 5)
    files = sorted(path for path in results.rglob("*") if path.is_file())
    # What a database restored from a backup is: without the rows that came after it, all they were charged included.
    ledger.run("DELETE FROM tenancy_results WHERE number > 20")
    report = manager.verify(repair=True)
    assert report.alarm
    assert {finding.kind: finding.count for finding in report.findings} == {"unknown_bytes": 5, "wrong_usage": 3}
    assert sorted(path for path in results.rglob("*") if path.is_file()) == files
    assert len(files) == len(old) + len(new)
    assert ledger_of_old != ledger.snapshot()
    assert all(session.read(reference) == content for reference, content in old.items())


def test_a_file_that_goes_away_while_it_is_looked_at_is_nobodys_loss(
    manager: SessionManager, session: Session, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session, ONE_IN)
    stranger = plant(room_of(results))
    manager.clock.advance(GRACE + MOMENT)
    names, looks = manager._backend.across.audit.names, []

    def removed_meanwhile(tenant_id: str, session_id: str) -> set[str]:
        looks.append(tenant_id)
        if len(looks) == 2:
            with suppress(FileNotFoundError):
                shutil.move(stranger, results.parent)
        return names(tenant_id, session_id)

    monkeypatch.setattr(manager._backend.across.audit, "names", removed_meanwhile)
    report = manager.verify(repair=True)
    assert len(looks) == 2
    assert report.findings == (Finding("unknown_bytes", 1, repaired=False),)
    assert not (results / "quarantine").exists()


@pytest.mark.parametrize("reclaim", ["cleanup", "refused write"])
def test_the_room_of_an_expired_session_goes_and_what_no_row_knows_of_it_is_set_aside(
    reclaim: str, manager: SessionManager, open_session: Open, ledger: Ledger, results: Path
) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(days=1)))
    old = fill(session, 3)
    room = room_of(results)
    newer = fill(session, 2)
    # A database of before the last two, where the session has long expired; with them it would not have.
    ledger.run("DELETE FROM tenancy_results WHERE number > 3")
    ledger.run("UPDATE tenancy_usage SET used_bytes = 99000, results = 3")
    manager.clock.advance(timedelta(days=2))
    age(room)
    if reclaim == "cleanup":
        assert manager.cleanup().results == len(old)
    else:
        manager.set_limits(Limits(tenant_results=3), tenant="acme")
        open_session("other").write(b"makes room")
    assert not room.exists()
    aside = results / "quarantine" / room.relative_to(results)
    assert len(list(aside.iterdir())) == len(newer)
    assert manager.verify().ok


def test_a_room_with_something_young_that_no_row_knows_is_left_for_later(
    manager: SessionManager, open_session: Open, results: Path
) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(days=1)))
    fill(session, 2)
    stranger = plant(room_of(results))
    manager.clock.advance(timedelta(days=2))
    report = manager.cleanup()
    assert (report.sessions, report.complete) == (0, False)
    assert stranger.read_bytes() == b"nobody's"
    # A writer at the limit gets what else there is to reclaim, and its own answer.
    manager.set_limits(Limits(tenant_results=2), tenant="acme")
    with pytest.raises(QuotaExceeded):
        open_session("other").write(b"finds no room")
    assert stranger.exists()
    # It was a writer's that was slower than its lease, who has noticed.
    stranger.unlink()
    manager.clock.advance(timedelta(minutes=2))
    assert manager.cleanup().complete
    assert not stranger.parent.exists()


def test_an_erasure_removes_files_that_no_row_knows_too(
    manager: SessionManager, session: Session, ledger: Ledger, results: Path
) -> None:
    fill(session, 1)
    plant(room_of(results))
    manager.erase_user(tenant="acme", user="ann")
    assert ledger.files == []


def test_what_a_writer_leaves_in_the_room_of_a_session_that_is_gone_is_removed_with_it(
    manager: SessionManager, session: Session, ledger: Ledger, results: Path
) -> None:
    fill(session, 1)
    room, ids = room_of(results), session._opened.ids
    manager.delete_session(tenant="acme", user="ann", session="chat")
    # It made the room anew after one worker had removed it, and another worker is still at it.
    room.mkdir(parents=True, mode=0o700)
    room.parent.chmod(0o700)
    plant(room)
    assert Cleaner(manager._backend, across=True).remove_session(ids) == Removed()
    assert ledger.files == []
