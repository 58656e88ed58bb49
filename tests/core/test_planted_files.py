"""Links, pipes, devices and directories in place of results: damage when read, loudly and at once, and deletable."""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tenancy import ResultCorrupt, Session, SessionManager, StorageUnavailable
from tests.conftest import ManagerFactory
from tests.core.intruder import LARGE_BYTES, LARGE_TEXT, Intruder
from tests.core.ledger import Ledger
from tests.stores.files import modes_below
from tests.stores.plants import PLANTS, plant_directory, replace

Open = Callable[..., Session]

#: No call that meets one waits for it. What a slow machine does is not counted: the best of three tries.
AT_ONCE_SECONDS = 0.1


@pytest.fixture
def contents(session: Session) -> dict[str, str | bytes]:
    """A result for each thing to be planted, half of them text, and one more."""
    written = [LARGE_TEXT if number % 2 else LARGE_BYTES for number in range(len(PLANTS))]
    return {session.write(content): content for content in [*written, LARGE_BYTES]}


@pytest.fixture
def intruder(
    make_manager: ManagerFactory, ledger: Ledger, contents: dict[str, str | bytes], tmp_path: Path
) -> Intruder:
    return Intruder(make_manager, ledger, tmp_path)


def require_corrupt(use: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
    """Every time, at once, and with one event."""
    seconds = []
    for _ in range(3):
        caplog.clear()
        began = time.perf_counter()
        with pytest.raises(ResultCorrupt):
            use()
        seconds.append(time.perf_counter() - began)
        assert [getattr(record, "event", "") for record in caplog.records] == ["corrupt"]
    assert min(seconds) < AT_ONCE_SECONDS


@pytest.mark.case(16, 17, 18, 60, 89)
def test_whatever_stands_in_place_of_a_result_is_damage_and_can_be_deleted(
    manager: SessionManager,
    session: Session,
    contents: dict[str, str | bytes],
    intruder: Intruder,
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    *references, untouched = contents
    before, listed = session.usage(), [result.reference for result in session.results()]
    for reference, plant in zip(references, PLANTS, strict=True):
        path = intruder.file_of(reference)
        replace(path, plant, intruder.target_for(path))
    for reference in references:
        require_corrupt(partial(session.read, reference), caplog)
        if isinstance(contents[reference], str):
            require_corrupt(partial(session.read_page, reference, offset=90_000, max_chars=10), caplog)
            require_corrupt(partial(session.read_page, reference, max_chars=1), caplog)
    # Nothing of it is lost, uncharged or removed by anybody who only looks.
    assert [result.reference for result in session.results()] == listed
    for repair in (False, True):
        assert {found.kind: found.count for found in manager.verify(repair=repair).findings} == {
            "damaged": len(references)
        }
    manager.cleanup()
    assert session.usage() == before
    assert session.read(untouched) == contents[untouched]
    for reference in references:
        session.delete(reference)
    assert manager.verify().ok
    assert (session.usage().results, session.usage().used_bytes) == (1, len(LARGE_BYTES))
    assert intruder.changes() == []
    ledger.require_balanced()


def expire(manager: SessionManager) -> None:
    manager.clock.advance(timedelta(days=60))
    manager.cleanup()


ENDINGS: dict[str, Callable[[SessionManager], object]] = {
    "deleted": lambda manager: manager.delete_session(tenant="acme", user="ann", session="chat"),
    "user erased": lambda manager: manager.erase_user(tenant="acme", user="ann"),
    "tenant erased": lambda manager: manager.erase_tenant(tenant="acme"),
    "expired": expire,
}


@pytest.mark.case(23, 89)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_session_ends_with_all_that_was_planted_in_it_and_nothing_it_leads_to(
    manager: SessionManager,
    session: Session,
    open_session: Open,
    contents: dict[str, str | bytes],
    intruder: Intruder,
    ledger: Ledger,
    ending: str,
) -> None:
    other = open_session("other", tenant="globex")
    kept = other.write(LARGE_BYTES)
    room = intruder.room_of(session)
    for reference, plant in zip(list(contents)[:-1], PLANTS, strict=True):
        path = intruder.file_of(reference)
        replace(path, plant, intruder.target_for(path))
    for name, target in {
        "slash": Path("/"),
        "root": room.parent.parent,
        "itself": room,
        "a" * 32: intruder.room_of(other),
        "b" * 32: next(intruder.room_of(other).iterdir()),
    }.items():
        (room / name).symlink_to(target)
    ENDINGS[ending](manager)
    assert not room.exists()
    assert intruder.changes() == []
    if ending == "expired":
        ledger.require_empty()
    else:
        assert other.read(kept) == LARGE_BYTES
        assert len(ledger.files) == 1
        ledger.require_balanced()


@pytest.mark.case(89)
@pytest.mark.parametrize("content", [LARGE_TEXT, LARGE_BYTES], ids=["text", "bytes"])
def test_another_sessions_result_in_place_of_ours_shows_nothing_of_it(
    session: Session, open_session: Open, ledger: Ledger, caplog: pytest.LogCaptureFixture, content: str | bytes
) -> None:
    other = open_session("other", user="bob")
    mine = session.write(content)
    (own,) = ledger.files
    theirs = other.write(content)
    (foreign,) = set(ledger.files) - {own}
    assert own.stat().st_size == foreign.stat().st_size
    for plant in (own.symlink_to, own.hardlink_to, lambda path: path.rename(own)):
        own.unlink()
        plant(foreign)
        require_corrupt(lambda: session.read(mine), caplog)
    own.rename(foreign)
    assert other.read(theirs) == content
    session.delete(mine)
    assert session.usage().used_bytes == 0
    ledger.require_balanced()


@pytest.mark.case(19)
def test_a_name_that_somebody_foresaw_is_not_written_to(
    session: Session, ledger: Ledger, intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files = session.usage(), ledger.files
    for number, plant in enumerate(PLANTS):
        foreseen = "abcdefghijklmnopqrstuvwxyz"[number] * 32
        path = intruder.room_of(session) / foreseen
        plant(path, intruder.target_for(files[0]))
        with monkeypatch.context() as forced:
            forced.setattr("tenancy.writing.mint_name", partial(str, foreseen))
            with pytest.raises(StorageUnavailable):
                session.write(LARGE_BYTES)
        assert session.usage() == before
        assert intruder.changes() == []
    assert session.read(session.write(LARGE_BYTES)) == LARGE_BYTES
    assert ledger.states() == {"committed": len(files) + 1}
    ledger.require_balanced()


@pytest.mark.case(14, 19)
def test_a_room_that_somebody_foresaw_takes_no_result(
    open_session: Open, manager: SessionManager, ledger: Ledger, intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plants = [plant for plant in PLANTS if plant is not plant_directory]
    files = ledger.files
    for number, plant in enumerate(plants):
        foreseen = "abcdefghijklmnopqrstuvwxyz"[number] * 32
        with monkeypatch.context() as forced:
            forced.setattr("tenancy.opening.mint_name", partial(str, foreseen))
            new = open_session(f"new {number}")
        plant(intruder.room_of(new), intruder.target_for(files[0]))
        with pytest.raises(StorageUnavailable):
            new.write(LARGE_BYTES)
        assert list(new.results()) == []
        assert intruder.changes() == []
        manager.delete_session(tenant="acme", user="ann", session=f"new {number}")
    assert ledger.files == files
    manager.cleanup()
    ledger.require_balanced()


@pytest.mark.case(22, 92)
@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_results_are_private_under_any_umask(make_manager: ManagerFactory, umask: int) -> None:
    before = os.umask(umask)
    try:
        with make_manager(durability="process") as manager:
            for name in ("lives", "ended"):
                session = manager.session(tenant="acme", user="ann", session=name)
                for content in ("small", LARGE_BYTES):
                    session.write(content)
            manager.delete_session(tenant="acme", user="ann", session="ended")
    finally:
        os.umask(before)
    assert modes_below(make_manager.results) == {"directories": {0o700}, "files": {0o600}}
