"""Crashes and failures at every step of a write and a delete: whole or not at all, and never charged for nothing."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stores.errors import BlobExists, StoreDenied, StoreError, StoreFull, StoreUnavailable
from stores.sql import Database, Transaction
from tenancy import (
    Session,
    SessionManager,
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


@pytest.mark.case(49, 111)
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


def test_bytes_whose_name_is_taken_are_refused_and_charged_to_nobody(
    session: Session, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if ledger.ways(small=1) != (1, 0):
        # A store of its own writes after the row is there.
        return
    reference = session.write(b"first")
    before = session.usage()
    ((taken,),) = ledger.all("SELECT result_id FROM tenancy_results")
    with monkeypatch.context() as patch:
        patch.setattr("tenancy.writing.mint_name", lambda: taken)
        with pytest.raises(StorageUnavailable):
            session.write(b"second")
    assert caplog.records == []
    assert session.usage() == before
    assert [result.reference for result in session.results()] == [reference]
    assert session.read(reference) == b"first"
    assert session.read(session.write(b"third")) == b"third"
    ledger.require_balanced()


class LostAnswers:
    """The server commits, and the connection dies before it says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        #: Which commit from now on is not answered; 0 for none.
        self.lose = 0
        command, finish = Database._command, Transaction.finish

        def losing(database: Database, connection: Any, text: str) -> None:
            command(database, connection, text)
            if text == "COMMIT":
                self._committed()

        def losing_with_the_last(transaction: Transaction, *last: Any) -> bool:
            done = finish(transaction, *last)
            if transaction.is_committed:
                self._committed()
            return done

        patch.setattr(Database, "_command", losing)
        patch.setattr(Transaction, "finish", losing_with_the_last)

    def _committed(self) -> None:
        if self.lose:
            self.lose -= 1
            if self.lose == 0:
                raise StoreUnavailable("The connection was lost.")


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
    command, finish, left = Database._command, Transaction.finish, [which]

    def lose_one() -> None:
        if left[0] > 0:
            left[0] -= 1
            if left[0] == 0:
                raise StoreUnavailable("The connection was lost.")

    def failing(database: Database, connection: Any, text: str) -> None:
        if text == "COMMIT":
            lose_one()
        command(database, connection, text)

    def failing_with_the_last(transaction: Transaction, *last: Any) -> bool:
        if transaction._dialect.name == "postgresql":
            lose_one()
        return finish(transaction, *last)

    monkeypatch.setattr(Database, "_command", failing)
    monkeypatch.setattr(Transaction, "finish", failing_with_the_last)
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


@pytest.mark.case(138)
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
