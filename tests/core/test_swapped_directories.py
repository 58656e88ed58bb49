"""A session's directory, or its tenant's, is swapped for a link while the session is in use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tenancy import ResultCorrupt, Session, SessionManager, StorageUnavailable, TenancyError
from tests.conftest import ManagerFactory
from tests.core.interposed import Store
from tests.core.intruder import LARGE_BYTES, LARGE_TEXT, Intruder
from tests.core.ledger import Ledger

Open = Callable[..., Session]
LEVELS = ("session", "tenant")
LEASE = timedelta(minutes=2, seconds=5)


@pytest.fixture
def contents(session: Session) -> dict[str, str | bytes]:
    return {session.write(content): content for content in (LARGE_TEXT, LARGE_BYTES, LARGE_BYTES)}


@pytest.fixture
def intruder(make_manager: ManagerFactory, ledger: Ledger, contents: object, tmp_path: Path) -> Intruder:
    return Intruder(make_manager, ledger, tmp_path)


@contextmanager
def swapped(intruder: Intruder, session: Session, level: str) -> Iterator[None]:
    """A link to the outside stands in place of a directory."""
    place = intruder.place_of(session, level)
    intruder.swap(place)
    yield
    intruder.swap(place)


@pytest.mark.case(14, 89)
@pytest.mark.parametrize("level", LEVELS)
def test_what_is_open_is_read_where_it_is_and_what_was_let_go_is_refused(
    manager: SessionManager,
    session: Session,
    open_session: Open,
    contents: dict[str, str | bytes],
    intruder: Intruder,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with swapped(intruder, session, level):
        for reference, content in contents.items():
            assert session.read(reference) == content
        # Other sessions push its descriptor out.
        monkeypatch.setattr(manager._backend.store._directories, "_limit", 1)  # type: ignore[attr-defined]
        open_session("other", tenant="globex").write(LARGE_BYTES)
        for reference in contents:
            with pytest.raises(ResultCorrupt):
                session.read(reference)
        assert len(list(session.results())) == len(contents)
        assert intruder.changes() == []
    for reference, content in contents.items():
        assert session.read(reference) == content


@pytest.mark.case(14, 89)
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_written_or_deleted_through_it_and_afterwards_all_is_in_order(
    make_manager: ManagerFactory,
    manager: SessionManager,
    session: Session,
    contents: dict[str, str | bytes],
    intruder: Intruder,
    ledger: Ledger,
    level: str,
) -> None:
    doomed, *kept = contents
    for used in (session, make_manager(durability="process").session(tenant="acme", user="ann", session="chat")):
        with swapped(intruder, session, level):
            with pytest.raises(StorageUnavailable):
                used.write(LARGE_BYTES)
            if doomed in {result.reference for result in used.results()}:
                with pytest.raises(StorageUnavailable):
                    used.delete(doomed)
            assert {result.reference for result in used.results()} == set(kept)
            # What could not be removed is still charged, and cleanup says that it is not done.
            manager.clock.advance(LEASE)
            assert not manager.cleanup().complete
            assert intruder.changes() == []
        manager.clock.advance(LEASE)
        assert manager.cleanup().complete
        assert session.usage().used_bytes == sum(len(contents[reference]) for reference in kept)
        assert len(ledger.files) == len(kept)
        ledger.require_balanced()
    for reference in kept:
        assert session.read(reference) == contents[reference]


@pytest.mark.case(14, 23, 89)
@pytest.mark.parametrize("ending", ["deleted", "erased", "expired"])
@pytest.mark.parametrize("level", LEVELS)
def test_ending_the_session_follows_nothing(
    manager: SessionManager,
    session: Session,
    contents: dict[str, str | bytes],
    intruder: Intruder,
    ledger: Ledger,
    level: str,
    ending: str,
) -> None:
    place = intruder.place_of(session, level)
    intruder.swap(place)
    ends: dict[str, Callable[[], object]] = {
        "deleted": lambda: manager.delete_session(tenant="acme", user="ann", session="chat"),
        "erased": lambda: manager.erase_user(tenant="acme", user="ann"),
        "expired": manager.cleanup,
    }
    if ending == "expired":
        manager.clock.advance(timedelta(days=60))
    with suppress(TenancyError):
        ends[ending]()
    assert intruder.changes() == []
    for use in (lambda: session.read(next(iter(contents))), session.usage, lambda: session.write("x")):
        with pytest.raises(TenancyError):
            use()
    if level == "tenant":
        # Where the tenant's rooms are, nobody knew. Now that they are back they go.
        intruder.swap(place)
        manager.clock.advance(LEASE)
        assert manager.cleanup().complete
        ledger.require_empty()
    assert ledger.count("tenancy_results") == 0
    assert ledger.count("tenancy_session_keys") == 0
    assert intruder.changes() == []


@pytest.mark.case(91)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_swap_between_catalogue_and_store_lets_nothing_out_and_loses_nothing(
    manager: SessionManager,
    session: Session,
    store: Store,
    contents: dict[str, str | bytes],
    intruder: Intruder,
    ledger: Ledger,
    level: str,
    moment: str,
) -> None:
    place, reference = intruder.place_of(session, level), next(iter(contents))
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: session.read(reference),
        "get_ranges": lambda: session.read_page(reference, offset=90_000, max_chars=10).text,
        "put": lambda: session.write(LARGE_BYTES),
        "delete": lambda: session.delete(reference),
    }
    written, seen = set(contents), []

    def swap_once(operation: str, name: str) -> None:
        if operation == wanted and not seen:
            seen.append(operation)
            intruder.swap(place)

    setattr(store, moment, swap_once)
    for wanted, call in calls.items():
        seen.clear()
        answer = None
        with suppress(TenancyError):
            answer = call()
        assert seen == [wanted]
        intruder.swap(place)
        if wanted == "get" and answer is not None:
            assert answer == contents[reference]
        if wanted == "get_ranges" and answer is not None:
            assert answer == LARGE_TEXT[90_000:90_010]
        if wanted == "put" and isinstance(answer, str):
            written.add(answer)
            assert session.read(answer) == LARGE_BYTES
        assert intruder.changes() == []
    manager.clock.advance(LEASE)
    assert manager.cleanup().complete
    assert {result.reference for result in session.results()} == written - {reference}
    assert manager.verify().ok
    ledger.require_balanced()
