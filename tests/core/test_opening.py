"""Opening sessions: who gets which room."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenancy import ResultNotFound, ScopeError, Session, SessionManager, SessionNotFound
from tenancy.catalogue.sessions import SessionTable
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]
WHO = {"tenant": "acme", "user": "ann", "session": "chat"}


def test_a_session_opened_again_holds_what_was_written_before(open_session: Open, ledger: Ledger) -> None:
    with open_session() as first:
        reference = first.write("kept")
    with open_session() as second:
        assert second.read(reference) == "kept"
    assert ledger.count("tenancy_sessions") == 1
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def test_a_session_without_a_name_is_the_users_own_room(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    room, named = open_session(None), open_session("chat")
    reference = room.write("mine")
    assert open_session(None).read(reference) == "mine"
    with pytest.raises(ResultNotFound):
        named.read(reference)
    assert sorted(info.session or "-" for info in manager.sessions(tenant="acme")) == ["-", "chat"]
    assert ledger.where() == ledger.ways(small=1)


@pytest.mark.case(99, 100)
@pytest.mark.parametrize(
    "other",
    [{"user": "bob"}, {"tenant": "globex"}, {"tenant": "globex", "user": "bob"}, {"session": "chat2"}],
    ids=["user", "tenant", "both", "session"],
)
def test_the_same_session_name_is_another_room_for_everybody_else(
    manager: SessionManager, open_session: Open, ledger: Ledger, other: dict[str, str]
) -> None:
    who = {**WHO, **other}
    mine, theirs = open_session(), open_session(**who)
    reference, own = mine.write("mine"), theirs.write("theirs, and longer")
    for stranger, foreign in ((theirs, reference), (mine, own)):
        for use in (stranger.read, stranger.delete, lambda text, who=stranger: who.read_page(text, max_chars=1)):
            with pytest.raises(ResultNotFound):
                use(foreign)
    assert [result.reference for result in mine.results()] == [reference]
    assert [result.reference for result in theirs.results()] == [own]
    assert mine.usage().used_bytes == 4
    assert theirs.usage().used_bytes == 18
    assert manager.usage(**who).used_bytes == 18
    listed = manager.sessions(tenant=who["tenant"], user=who["user"])
    assert [(info.used_bytes, info.results) for info in listed if info.session == who["session"]] == [(18, 1)]
    assert ledger.where() == ledger.ways(small=2)
    ledger.require_balanced()


@pytest.mark.case(95, 99)
def test_a_listing_names_exactly_the_sessions_of_whom_it_was_asked_for(
    manager: SessionManager, open_session: Open
) -> None:
    people = [("acme", "ann", "a"), ("acme", "bob", "b"), ("globex", "ann", "c"), ("acme", "ann", "d")]
    for tenant, user, name in people:
        open_session(name, tenant=tenant, user=user)

    def listed(**who: str) -> list[tuple[str, str, str | None]]:
        return sorted((info.tenant, info.user, info.session) for info in manager.sessions(**who))

    assert listed() == sorted(people)
    assert listed(tenant="acme") == sorted(person for person in people if person[0] == "acme")
    assert listed(tenant="acme", user="ann") == [("acme", "ann", "a"), ("acme", "ann", "d")]
    assert listed(tenant="globex", user="bob") == []


def test_a_listing_of_sessions_goes_on_beyond_a_page(
    manager: SessionManager, open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.catalogue.sessions._PAGE", 3)
    for number in range(8):
        open_session(f"s{number}", user=f"u{number % 2}")
    assert sorted(info.session or "" for info in manager.sessions()) == [f"s{number}" for number in range(8)]


def test_twenty_threads_that_open_one_new_session_get_one_and_the_same(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    ready = threading.Barrier(20)

    def use(number: int) -> tuple[Session, str]:
        ready.wait()
        session = open_session()
        return session, session.write(f"from {number}")

    with ThreadPoolExecutor(20) as pool:
        opened = list(pool.map(use, range(20)))
    for number, (_, reference) in enumerate(opened):
        for reader, _ in (opened[0], opened[number]):
            assert reader.read(reference) == f"from {number}"
    counts = ledger.counts()
    for table in ("tenants", "users", "sessions", "tenant_keys", "session_keys"):
        assert counts[f"tenancy_{table}"] == 1
    assert manager.usage(tenant="acme").sessions == 1
    assert ledger.where() == ledger.ways(small=20)
    ledger.require_balanced()


def test_several_managers_in_one_process_share_what_is_stored_and_nothing_else(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    one, two = make_manager(durability="process"), make_manager(durability="process")
    reference = one.session(**WHO).write("shared")
    other = two.session(**WHO)
    one.close()
    assert other.read(reference) == "shared"
    assert ledger.where() == ledger.ways(small=1)


def test_a_user_erased_while_a_session_opens_is_made_anew(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_session("before")
    create, begun = SessionTable.create, []

    def create_after_erasure(self: SessionTable, *arguments: object, **settings: object) -> None:
        if not begun:
            # Begun and no more: the user's rows are still there, and refuse.
            begun.extend(manager._backend.catalogue.erasure.begin_user(tenant="acme", user="ann"))
        create(self, *arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionTable, "create", create_after_erasure)
    new = open_session("after")
    assert new.read(new.write("here")) == "here"
    with pytest.raises(SessionNotFound):
        old.write("gone")
    assert manager.cleanup().complete
    assert [info.session for info in manager.sessions(tenant="acme", user="ann")] == ["after"]
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def test_a_session_can_be_awaited_and_used_in_async_with(manager: SessionManager, ledger: Ledger) -> None:
    async def use() -> None:
        awaited = await manager.session_async(**WHO)
        reference = await awaited.write_async("one\ntwo", name="notes.txt")
        assert reference.endswith(".txt")
        assert await awaited.read_async(reference) == "one\ntwo"
        page = await awaited.read_page_async(reference, offset=4, max_chars=2)
        assert (page.text, page.next_offset) == ("tw", 6)
        async with manager.session_async(**WHO) as same:
            assert [result.reference for result in await same.results_async()] == [reference]
            assert (await same.usage_async()).used_bytes == 7
            assert ledger.where() == ledger.ways(small=1)
            await same.delete_async(reference)
            assert await same.results_async() == []
        with pytest.raises(SessionNotFound):
            await same.write_async("closed on the way out")
        async with awaited:
            pass
        with pytest.raises(SessionNotFound):
            await awaited.usage_async()
        again = await manager.session_async(**WHO)
        await again.close_async()
        with pytest.raises(SessionNotFound):
            await again.results_async()

    asyncio.run(use())
    assert ledger.where() == (0, 0)
    ledger.require_balanced()


def test_what_a_coroutine_asks_for_wrongly_is_refused_as_elsewhere(manager: SessionManager) -> None:
    async def use() -> None:
        with pytest.raises(ScopeError):
            await manager.session_async(tenant="", user="ann")

    asyncio.run(use())
