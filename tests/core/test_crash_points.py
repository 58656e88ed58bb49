"""Crashes and failures at every step of a write and a delete: whole or not at all, and never charged for nothing."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stores.errors import BlobExists, StoreDenied, StoreError, StoreFull, StoreUnavailable
from stores.sql import Database
from tenancy import (
    Lifetime,
    Session,
    SessionManager,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    TenancyError,
)
from tenancy.catalogue.results import ResultTable
from tests.conftest import ManagerFactory
from tests.core.interposed import Killed, Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]
LEASE = timedelta(minutes=2, seconds=5)
#: One that goes inline where that is on, and one that never does.
CONTENTS = {"small": b"x" * 10, "large": b"x" * 50_000}


def on(operation: str, failure: BaseException) -> Callable[[str, str], None]:
    """Fail at one operation of the store."""

    def fail(called: str, name: str) -> None:
        if called == operation:
            raise failure

    return fail


def unhook(store: Store) -> None:
    store.before = store.after = lambda operation, name: None


def require_undone(session: Session, ledger: Ledger) -> None:
    assert list(session.results()) == []
    assert session.usage().used_bytes == session.usage().results == 0
    assert ledger.where() == (0, 0)
    assert ledger.states() == {}
    ledger.require_balanced()


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (StoreUnavailable("away"), StorageUnavailable),
        (StoreDenied("denied"), StorageUnavailable),
        (StoreFull("full"), StorageFull),
        (BlobExists("exists"), StorageUnavailable),
    ],
    ids=["away", "denied", "full", "exists"],
)
def test_a_write_that_the_store_refuses_is_undone_at_once(
    session: Session,
    store: Store,
    ledger: Ledger,
    content: bytes,
    moment: str,
    failure: StoreError,
    answer: type[TenancyError],
) -> None:
    setattr(store, moment, on("put", failure))
    with pytest.raises(answer) as refusal:
        session.write(content)
    assert type(refusal.value) is answer
    assert refusal.value.__cause__ is None
    unhook(store)
    require_undone(session, ledger)
    assert session.read(session.write(content)) == content


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), MemoryError(), SystemExit(1)])
def test_an_interrupted_write_is_undone_and_the_interruption_goes_on(
    session: Session, store: Store, ledger: Ledger, content: bytes, failure: BaseException
) -> None:
    store.after = on("put", failure)
    with pytest.raises(type(failure)):
        session.write(content)
    unhook(store)
    require_undone(session, ledger)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_writer_killed_around_the_store_leaves_nothing_readable_and_its_charge_comes_back(
    make_manager: ManagerFactory, manager: SessionManager, store: Store, ledger: Ledger, content: bytes, moment: str
) -> None:
    session = manager.session(tenant="acme", user="ann")
    setattr(store, moment, on("put", Killed()))
    with pytest.MonkeyPatch.context() as patch:
        # Whoever is dead gives nothing up.
        patch.setattr(ResultTable, "abandon", lambda *_: on("put", Killed())("put", ""))
        with pytest.raises(Killed):
            session.write(content)
    other = make_manager(durability="process")
    reader = other.session(tenant="acme", user="ann")
    assert list(reader.results()) == []
    goes_inline = make_manager.inline_bytes >= len(content) + 100
    # One transaction or two: only the second way leaves anything at all.
    assert ledger.states() == ({} if goes_inline else {"pending": 1})
    assert reader.usage().used_bytes == (0 if goes_inline else len(content))
    assert len(ledger.files) == (0 if goes_inline or moment == "before" else 1)
    other.clock.advance(LEASE)
    report = other.cleanup()
    assert (report.results, report.reclaimed_bytes) == ((0, 0) if goes_inline else (1, len(content)))
    require_undone(reader, ledger)


class LostAnswers:
    """The server commits, and the connection dies before it says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        #: Which commit from now on is not answered; 0 for none.
        self.lose = 0
        command = Database._command

        def losing(database: Database, connection: Any, text: str) -> None:
            command(database, connection, text)
            if text == "COMMIT" and self.lose:
                self.lose -= 1
                if self.lose == 0:
                    raise StoreUnavailable("The connection was lost.")

        patch.setattr(Database, "_command", losing)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> LostAnswers:
    return LostAnswers(monkeypatch)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("which", [1, 2])
def test_a_result_whose_commit_was_not_answered_stays_stored_under_the_reference_that_is_returned(
    session: Session, ledger: Ledger, answers: LostAnswers, content: bytes, which: int
) -> None:
    answers.lose = which
    reference = session.write(content)
    answers.lose = 0
    assert session.read(reference) == content
    assert [result.reference for result in session.results()] == [reference]
    large = len(content) > 1000
    assert ledger.where() == ledger.ways(small=not large, large=large)
    ledger.require_balanced()


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("which", [1, 2])
def test_a_write_whose_transaction_never_committed_is_refused(
    session: Session, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, content: bytes, which: int,
    manager: SessionManager,
) -> None:  # fmt: skip
    command, left = Database._command, [which]

    def failing(database: Database, connection: Any, text: str) -> None:
        if text == "COMMIT" and left[0] > 0:
            left[0] -= 1
            if left[0] == 0:
                raise StoreUnavailable("The connection was lost.")
        command(database, connection, text)

    monkeypatch.setattr(Database, "_command", failing)
    if which == 2 and ledger.ways(small=1) == (1, 0) and len(content) < 1000:
        # There is no second transaction.
        assert session.read(session.write(content)) == content
        return
    with pytest.raises(StorageUnavailable):
        session.write(content)
    left[0] = 0
    require_undone(session, ledger)


def test_an_interruption_just_after_the_commit_goes_on_and_the_result_stays(
    session: Session, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ResultTable.commit

    def interrupted(*arguments: Any) -> None:
        commit(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ResultTable, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.write(b"x" * 50_000)
    (result,) = session.results()
    assert session.read(result.reference) == b"x" * 50_000
    assert ledger.where() == (0, 1)
    ledger.require_balanced()


def test_a_session_that_expires_between_the_two_transactions_of_a_write_gets_nothing(
    manager: SessionManager, open_session: Open, store: Store, ledger: Ledger
) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(minutes=1)))

    def expire(operation: str, name: str) -> None:
        if operation == "put":
            store.after = lambda operation, name: None
            manager.clock.advance(timedelta(minutes=1))

    store.after = expire
    with pytest.raises(SessionNotFound):
        session.write(b"x" * 50_000)
    assert ledger.states() == {}
    assert ledger.where() == (0, 0)
    ledger.require_balanced()
    assert manager.cleanup().results == 0
    ledger.require_empty()


@pytest.mark.parametrize("reclaimed", [False, True])
def test_a_session_deleted_between_the_two_transactions_of_a_write_gets_nothing(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger, reclaimed: bool
) -> None:
    def delete(operation: str, name: str) -> None:
        if operation == "put":
            unhook(store)
            if reclaimed:
                manager.delete_session(tenant="acme", user="ann", session="chat")
            else:
                manager._backend.catalogue.administration.end(session.scope)

    store.after = delete
    with pytest.raises(SessionNotFound):
        session.write(b"x" * 50_000)
    assert ledger.where() == (0, 0)
    ledger.require_balanced()
    assert manager.cleanup().complete
    ledger.require_empty()


def test_a_write_that_outlives_its_lease_is_refused_and_takes_its_bytes_back(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    def dawdle(operation: str, name: str) -> None:
        if operation == "put":
            unhook(store)
            manager.clock.advance(LEASE)

    store.after = dawdle
    with pytest.raises(SessionNotFound):
        session.write(b"x" * 50_000)
    require_undone(session, ledger)


def test_a_write_that_cleanup_has_given_up_meanwhile_is_refused_and_refunded_once(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    def dawdle(operation: str, name: str) -> None:
        if operation == "put":
            unhook(store)
            manager.clock.advance(LEASE)
            assert manager.cleanup().results == 1

    store.after = dawdle
    with pytest.raises(SessionNotFound):
        session.write(b"x" * 50_000)
    require_undone(session, ledger)


def test_a_large_write_renews_its_lease_while_the_store_is_at_work(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.writing._RENEW_SECONDS", 0.01)
    renewed = threading.Event()
    renew = ResultTable.renew

    def noticed(*arguments: Any) -> None:
        renew(*arguments)
        renewed.set()

    monkeypatch.setattr(ResultTable, "renew", noticed)

    def dawdle(operation: str, name: str) -> None:
        if operation == "put":
            unhook(store)
            for _ in range(3):
                manager.clock.advance(timedelta(seconds=100))
                renewed.clear()
                assert renewed.wait(10)

    store.before = dawdle
    content = b"x" * (16 * 2**20)
    reference = session.write(content)
    assert len(session.read(reference)) == len(content)
    assert ledger.where() == (0, 1)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_delete_that_the_store_refuses_makes_the_result_unreadable_and_cleanup_finishes(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger, moment: str
) -> None:
    reference = session.write(b"x" * 50_000)
    setattr(store, moment, on("delete", StoreUnavailable("away")))
    with pytest.raises(StorageUnavailable):
        session.delete(reference)
    unhook(store)
    assert list(session.results()) == []
    assert ledger.states() == {"deleting": 1}
    # Still charged: its bytes may still be there.
    assert session.usage().used_bytes == 50_000
    assert [row for row in ledger.all("SELECT header, card FROM tenancy_results") if any(row)] == []
    manager.clock.advance(LEASE)
    assert manager.cleanup().reclaimed_bytes == 50_000
    require_undone(session, ledger)


def test_an_inline_delete_is_one_transaction(session: Session, store: Store, ledger: Ledger) -> None:
    reference = session.write("x")
    store.after = on("delete", StoreUnavailable("away"))
    if ledger.ways(small=1) == (0, 1):
        with pytest.raises(StorageUnavailable):
            session.delete(reference)
        return
    with pytest.raises(StorageUnavailable):
        session.delete(reference)
    unhook(store)
    # Nothing of it happened.
    assert session.read(reference) == "x"
    assert ledger.states() == {"committed": 1}
    ledger.require_balanced()


def test_a_reader_sees_a_result_whole_or_not_at_all(
    make_manager: ManagerFactory, manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    reader = make_manager(durability="process").session(tenant="acme", user="ann", session="chat")
    seen: list[list[Any]] = []

    def look(operation: str, name: str) -> None:
        seen.append(list(reader.results()))

    store.before = store.after = look
    session.write(b"x" * 50_000)
    session.write("small")
    unhook(store)
    assert [len(results) for results in seen] == [0, 0, 1, 1]
    assert len(list(reader.results())) == 2


WRITER = """
import sys
from tenancy import SessionManager
from tenancy.settings import Settings
database_url, store_url, keys, inline_bytes = sys.argv[1:]
settings = Settings(database_url=database_url, store_url=store_url, keys=keys, inline_bytes=int(inline_bytes),
                    durability="process")
with SessionManager.from_settings(settings) as manager:
    session = manager.session(tenant="acme", user="ann")
    number = 0
    while True:
        content = str(number).encode() * (10_000 if number % 3 == 0 else 1)
        reference = session.write(content)
        print(reference, len(content), flush=True)
        if number % 4 == 0:
            session.delete(reference)
            print("-", reference, flush=True)
        number += 1
"""


@pytest.mark.slow
def test_what_was_acknowledged_before_a_kill_is_there_and_what_was_deleted_stays_deleted(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    manager = make_manager(durability="process")
    session = manager.session(tenant="acme", user="ann")
    places = (f"file://{make_manager.results}", f"file:{make_manager.key_file}", str(make_manager.inline_bytes))
    kept: dict[str, int] = {}
    deleted: set[str] = set()
    for turn in range(4):
        command = [sys.executable, "-c", WRITER, make_manager.database_url, *places]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(30 + 7 * turn)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.read().splitlines()
        for line in filter(None, map(str.split, lines)):
            if line[0] == "-":
                kept.pop(line[1], None)
                deleted.add(line[1])
            elif len(line) == 2:
                kept[line[0]] = int(line[1])
    manager.clock.advance(LEASE)
    assert manager.cleanup().complete
    found = {result.reference: result.size_bytes for result in session.results()}
    for reference, size in kept.items():
        # The very last one may have been deleted without our hearing of it.
        if reference in found:
            assert len(session.read(reference)) == size == found[reference]
    assert len(set(kept) - set(found)) <= 4
    assert not deleted & set(found)
    # One more per kill at most: written, and killed before it said so.
    assert len(set(found) - set(kept)) <= 4
    assert manager.verify().ok
    ledger.require_balanced()
