"""Whoever looked a row up just before the key over it was rotated away and destroyed looks again, and reads on."""

from collections.abc import Callable
from typing import Any

import pytest

from tenancy import KeyDestroyed, KeyUnavailable, ResultNotFound, Session, SessionManager, SessionNotFound
from tenancy.catalogue.results import ResultTable
from tenancy.catalogue.sessions import SessionTable
from tests.conftest import ManagerFactory
from tests.core.key_files import add_primary, change

Rotate = Callable[..., None]
Between = Callable[..., list[str]]
READS = [lambda session, of: session.read(of), lambda session, of: session.read_page(of, max_chars=10**6).text]
TEXT = "text" * 1000


def take_away(make_manager: ManagerFactory, key_id: str, state: str = "destroyed") -> None:
    """Have a key open nothing any more, for good or for a while."""
    change(make_manager.key_file, key_id, state=state, **({"key": None} if state == "destroyed" else {}))


@pytest.fixture
def rotate_away(make_manager: ManagerFactory) -> Rotate:
    """Puts what there is under a new key-encryption key, in another process's place, and takes the old one away."""
    other = make_manager(durability="process")
    made: list[str] = []

    def rotate(*, state: str = "destroyed") -> None:
        made.append(f"made-{len(made)}")
        old = add_primary(make_manager.key_file, made[-1])
        assert other.rotate_keys("root").complete
        take_away(make_manager, old, state)

    return rotate


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Has something happen right after the first looks into a table, before the reader does anything with them."""

    def arm(table: type, method: str, *steps: Callable[[], Any]) -> list[str]:
        real = getattr(table, method)
        left, looks = list(steps), []

        def look(self: Any, *arguments: Any, **named: Any) -> Any:
            answer = real(self, *arguments, **named)
            looks.append(method)
            if left:
                left.pop(0)()
            return answer

        monkeypatch.setattr(table, method, look)
        return looks

    return arm


@pytest.mark.parametrize("state", ["destroyed", "disabled"])
def test_a_listing_that_was_begun_goes_on_when_the_key_under_it_is_rotated_away(
    session: Session, rotate_away: Rotate, state: str
) -> None:
    references = [session.write(TEXT) for _ in range(4)]
    listing = session.results()
    found = [next(listing).reference]
    rotate_away(state=state)
    found += [next(listing).reference, next(listing).reference]
    rotate_away(state=state)
    found += [result.reference for result in listing]
    assert found == references[::-1]


def test_a_listing_leaves_out_what_was_deleted_by_the_second_look(session: Session, rotate_away: Rotate) -> None:
    first, second, third, fourth = (session.write(TEXT) for _ in range(4))
    listing = session.results()
    assert next(listing).reference == fourth
    rotate_away()
    session.delete(third)
    session.delete(first)
    assert [result.reference for result in listing] == [second]


def test_a_listing_of_a_session_that_ended_by_the_second_look_says_so(
    session: Session, manager: SessionManager, rotate_away: Rotate
) -> None:
    session.write(TEXT)
    session.write(TEXT)
    listing = session.results()
    next(listing)
    rotate_away()
    manager.erase_user(tenant="acme", user="ann")
    with pytest.raises(SessionNotFound):
        next(listing)


def test_a_listing_whose_key_is_destroyed_without_a_rotation_says_so_after_one_look_more(
    session: Session, make_manager: ManagerFactory, between: Between
) -> None:
    session.write(TEXT)
    session.write(TEXT)
    looks = between(ResultTable, "list")
    listing = session.results()
    next(listing)
    take_away(make_manager, add_primary(make_manager.key_file, "unused"))
    with pytest.raises(KeyDestroyed):
        next(listing)
    assert len(looks) == 2


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("state", ["destroyed", "disabled"])
def test_a_result_is_read_though_the_key_over_it_is_rotated_away_at_that_moment(
    session: Session, rotate_away: Rotate, between: Between, read: Callable[..., str], state: str
) -> None:
    reference = session.write(TEXT)
    looks = between(ResultTable, "find", *[lambda: rotate_away(state=state)] * 2)
    assert read(session, reference) == TEXT
    assert len(looks) == 3


@pytest.mark.parametrize("read", READS)
def test_a_result_that_is_deleted_by_the_second_look_is_not_found(
    session: Session, rotate_away: Rotate, between: Between, read: Callable[..., str]
) -> None:
    reference = session.write(TEXT)

    def rotate_and_delete() -> None:
        rotate_away()
        session.delete(reference)

    between(ResultTable, "find", rotate_and_delete)
    with pytest.raises(ResultNotFound):
        read(session, reference)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("state", "refusal"), [("destroyed", KeyDestroyed), ("disabled", KeyUnavailable)])
def test_a_result_whose_key_is_gone_without_a_rotation_says_so_after_one_look_more(
    session: Session,
    make_manager: ManagerFactory,
    between: Between,
    read: Callable[..., str],
    state: str,
    refusal: type[Exception],
) -> None:
    reference = session.write(TEXT)
    take_away(make_manager, add_primary(make_manager.key_file, "unused"), state)
    looks = between(ResultTable, "find")
    with pytest.raises(refusal):
        read(session, reference)
    assert len(looks) == 2


def test_a_reader_that_is_overtaken_by_one_rotation_after_the_other_gives_up(
    session: Session, rotate_away: Rotate, between: Between
) -> None:
    reference = session.write(TEXT)
    looks = between(ResultTable, "find", *[rotate_away] * 5)
    with pytest.raises(KeyDestroyed):
        session.read(reference)
    assert len(looks) == 5
    assert session.read(reference) == TEXT


@pytest.mark.parametrize("user", ["ann", "new"])
@pytest.mark.parametrize("state", ["destroyed", "disabled"])
def test_a_session_is_created_though_the_key_over_its_tenants_is_rotated_away_at_that_moment(
    session: Session, manager: SessionManager, rotate_away: Rotate, between: Between, user: str, state: str
) -> None:
    between(SessionTable, "find", *[lambda: rotate_away(state=state)] * 2)
    handle = manager.session(tenant="acme", user=user, session="late")
    assert handle.read(handle.write(TEXT)) == TEXT


def test_a_session_is_created_though_its_tenant_was_erased_after_its_key_was_rotated_away(
    session: Session, manager: SessionManager, rotate_away: Rotate, between: Between
) -> None:
    def rotate_and_erase() -> None:
        rotate_away()
        manager.erase_tenant(tenant="acme")

    between(SessionTable, "find", rotate_and_erase)
    handle = manager.session(tenant="acme", user="ann", session="late")
    assert handle.read(handle.write(TEXT)) == TEXT


@pytest.mark.parametrize(("state", "refusal"), [("destroyed", KeyDestroyed), ("disabled", KeyUnavailable)])
def test_a_session_of_a_tenant_whose_key_is_gone_without_a_rotation_is_refused_after_one_look_more(
    session: Session,
    manager: SessionManager,
    make_manager: ManagerFactory,
    between: Between,
    state: str,
    refusal: type[Exception],
) -> None:
    take_away(make_manager, add_primary(make_manager.key_file, "unused"), state)
    looks = between(SessionTable, "find")
    with pytest.raises(refusal):
        manager.session(tenant="acme", user="ann", session="late")
    assert len(looks) == 2
