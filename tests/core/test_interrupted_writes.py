"""Writes that something overtakes: expiry, deletion, their lease; and the death of the process."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tenancy import (
    Lifetime,
    Session,
    SessionManager,
    SessionNotFound,
)
from tenancy.catalogue.results import ResultTable
from tests.conftest import ManagerFactory
from tests.core.interposed import Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]


LEASE = timedelta(minutes=2, seconds=5)


def unhook(store: Store) -> None:
    store.before = store.after = lambda operation, name: None


def require_undone(session: Session, ledger: Ledger) -> None:
    assert list(session.results()) == []
    assert session.usage().used_bytes == session.usage().results == 0
    assert ledger.where() == (0, 0)
    assert ledger.states() == {}
    ledger.require_balanced()


@pytest.mark.case(54)
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
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_session_deleted_between_the_two_transactions_of_a_write_gets_nothing(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger, reclaimed: bool, moment: str
) -> None:
    def delete(operation: str, name: str) -> None:
        if operation == "put":
            unhook(store)
            if reclaimed:
                manager.delete_session(tenant="acme", user="ann", session="chat")
            else:
                manager._backend.catalogue.administration.end(session.scope)

    setattr(store, moment, delete)
    with pytest.raises(SessionNotFound):
        session.write(b"x" * 50_000)
    assert ledger.where() == (0, 0)
    ledger.require_balanced()
    assert manager.cleanup().complete
    # Not even an empty directory, which nobody would ever look for again.
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
                # The first may have begun before that.
                for _ in range(2):
                    renewed.clear()
                    assert renewed.wait(10)

    store.before = dawdle
    content = b"x" * (16 * 2**20)
    reference = session.write(content)
    assert len(session.read(reference)) == len(content)
    assert ledger.where() == (0, 1)


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


@pytest.mark.case(111)
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
