"""What a receipt says: which keys went, how far that reaches by now, and what SQLite's log has left."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stores.errors import StoreFull
from stores.sql import Database
from tenancy import Receipt, SessionManager
from tenancy.catalogue.erasure import Erasing, ErasureTable
from tenancy.catalogue.receipts import HungOn
from tenancy.catalogue.reclaim import Removed
from tenancy.cleanup import Cleaner
from tests.conftest import ManagerFactory
from tests.core.interposed import Killed
from tests.core.key_files import add_primary, change, destroy, rotate_root, write
from tests.core.ledger import Ledger
from tests.core.people import LEVELS, People, erase_tenant, erase_user

LOG_IS_LEFT = "SQLite's log still holds old pages: it is being read, or the disk is full. The next cleanup cuts it."


def told(manager: SessionManager, receipt: Receipt) -> Receipt:
    """The receipt of before, as it is by now."""
    found = manager.receipt(receipt.receipt_id or "")
    assert found is not None
    return found


def key_ids(make_manager: ManagerFactory) -> list[str]:
    return [key["id"] for key in json.loads(make_manager.key_file.read_text())["keys"]]


@pytest.mark.case(137)
@pytest.mark.parametrize("level", LEVELS)
def test_a_receipt_is_told_again_as_it_was(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger, level: str
) -> None:
    (key_id,) = key_ids(make_manager)
    receipt = LEVELS[level](manager)
    assert receipt.key_ids == (f"file:{key_id}",)
    assert receipt.reached == "removed"
    assert "remain readable to whoever has them and the key-encryption key." in receipt.statement
    assert ("VACUUM" in receipt.statement) == (not ledger._database.is_sqlite)
    assert LOG_IS_LEFT not in receipt.statement
    for each in (manager, make_manager()):
        assert told(each, receipt) == receipt
    # It needs no key, and does not know then what has become of it.
    assert "whose state could not be asked" in told(make_manager(keys="none:"), receipt).statement


def test_of_a_deleted_session_the_keys_are_told_at_once(
    make_manager: ManagerFactory, manager: SessionManager, people: People
) -> None:
    receipt = manager.delete_session(tenant="acme", user="ann", session="one")
    assert receipt.key_ids == (f"file:{key_ids(make_manager)[0]}",)
    assert (receipt.reached, receipt.receipt_id) == ("removed", None)
    nothing = manager.delete_session(tenant="acme", user="ann", session="one")
    assert (nothing.key_ids, nothing.reached) == ((), None)


@pytest.mark.parametrize("receipt_id", ["a" * 32, "", "\0", "' OR 1 = 1", None, 7])
def test_a_receipt_that_is_none_is_none(manager: SessionManager, people: People, receipt_id: Any) -> None:
    erase_user(manager)
    assert manager.receipt(receipt_id) is None


def test_a_receipt_names_what_each_key_hung_on(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger
) -> None:
    old = rotate_root(make_manager)
    later = make_manager(durability="process")
    later.session(tenant="initech", user="ann").write("x")
    # A second version of a tenant's key, under another key-encryption key, and one of its sessions under that.
    ledger.run(
        "INSERT INTO tenancy_tenant_keys (tenant_id, version, provider, key_id, wrapped, created_at_us)"
        " SELECT tenant_id, 2, 'file', 'third', wrapped, 0 FROM tenancy_tenant_keys"
    )
    ledger.run(
        "UPDATE tenancy_session_keys SET tenant_key_version = 2 WHERE session_id IN (SELECT session_id FROM"
        " tenancy_sessions s JOIN tenancy_users u ON u.user_id = s.user_id WHERE u.name = 'bob' OR s.name = 'two')"
    )
    assert later.delete_session(tenant="acme", user="ann", session="one").key_ids == ("file:second",)
    assert later.delete_session(tenant="acme", user="ann", session="two").key_ids == ("file:third",)
    assert later.erase_user(tenant="acme", user="ann").key_ids == ("file:second",)
    assert later.erase_user(tenant="acme", user="bob").key_ids == ("file:third",)
    # A tenant's keys go with it, also those that nothing hangs on.
    assert later.erase_tenant(tenant="initech").key_ids == ("file:second", "file:third")
    assert old not in str(ledger.all("SELECT key_ids FROM tenancy_receipts"))


def test_keys_that_were_destroyed_later_are_added(manager: SessionManager, people: People, ledger: Ledger) -> None:
    receipt = erase_user(manager)
    catalogue = manager._backend.catalogue
    tenant_id = ledger.one("SELECT tenant_id FROM tenancy_receipts")
    with catalogue.access.writing(tenant_id) as transaction:
        for version in (9, 9, 8):
            hung = [HungOn("file", "0", version)]
            catalogue.receipts.count_keys(transaction, tenant_id, receipt.receipt_id or "", keys=1, hung=hung)
    later = told(manager, receipt)
    assert later.keys_destroyed == receipt.keys_destroyed + 3
    assert later.key_ids == ("file:0", *receipt.key_ids)
    assert len(json.loads(ledger.one("SELECT key_ids FROM tenancy_receipts"))) == 3


@pytest.mark.case(39)
def test_a_receipt_reaches_as_far_as_the_keys_have_gone(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger
) -> None:
    of_user, of_tenant = erase_user(manager), manager.erase_tenant(tenant="globex")
    old = rotate_root(make_manager)

    def now() -> list[tuple[str | None, str]]:
        later = make_manager(durability="process")
        return [(each.reached, each.statement) for each in (told(later, of_user), told(later, of_tenant))]

    def require(*reached: str, says: str = "") -> None:
        found = now()
        assert tuple(each for each, _ in found) == reached
        assert all(says in statement for _, statement in found)

    require("removed", "removed", says="taken before remain readable to whoever has them and the key-encryption key.")
    change(make_manager.key_file, old, state="disabled")
    require("removed", "removed", says="key-encryption key.")
    destroy(make_manager.key_file, old)
    require("key_destroyed", "unreadable", says="The key-encryption key they hung on is destroyed")
    assert "until the tenant's key is rotated and that other key destroyed as well" in now()[0][1]
    assert "can no longer be read by anybody, unless a copy of that key was kept" in now()[1][1]
    # One of two keys is not enough.
    both = json.dumps([["file", old, 1], ["file", "second", 1]])
    before = ledger.all("SELECT receipt_id, key_ids FROM tenancy_receipts")
    ledger.run("UPDATE tenancy_receipts SET key_ids = :both", both=both)
    require("removed", "removed", says="key-encryption key.")
    for receipt_id, key_ids in before:
        ledger.run("UPDATE tenancy_receipts SET key_ids = :k WHERE receipt_id = :r", k=key_ids, r=receipt_id)
    assert make_manager(durability="process").rotate_keys("tenant").complete
    # A copy of between the two rotations has the tenant's old key under the second key-encryption key.
    require("key_destroyed", "unreadable")
    add_primary(make_manager.key_file, "third")
    assert make_manager(durability="process").rotate_keys("root").complete
    destroy(make_manager.key_file, "second")
    require("unreadable", "unreadable")
    write(make_manager.key_file, [key for key in json.loads(make_manager.key_file.read_text())["keys"] if key["key"]])
    # A key that is in no file any more may be anywhere.
    require("removed", "removed", says="whose state could not be asked")


def test_of_a_receipt_that_knows_no_key_nothing_more_is_said(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger
) -> None:
    receipt = erase_user(manager)
    ledger.run("UPDATE tenancy_receipts SET key_ids = NULL")
    destroy(make_manager.key_file, rotate_root(make_manager))
    later = told(make_manager(durability="process"), receipt)
    assert (later.key_ids, later.reached) == ((), "removed")
    assert "whose state could not be asked" in later.statement


def test_while_bytes_are_left_a_receipt_reaches_nothing(manager: SessionManager, people: People) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenancy.catalogue.erasure.ErasureTable.finish", lambda *_: None)
        receipt = erase_user(manager)
    for each in (receipt, told(manager, receipt)):
        assert (each.reached, each.finished_at) == (None, None)
        assert "still being removed" in each.statement
    manager.cleanup()
    assert told(manager, receipt).reached == "removed"


@pytest.fixture
def impatient(make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch) -> SessionManager:
    """A manager that waits for nobody."""
    monkeypatch.setattr("tenancy.startup.Database", partial(Database, lock_wait_seconds=0.05))
    return make_manager(durability="process")


@contextmanager
def being_read(path: Path) -> Iterator[None]:
    """Somebody reads, and what he reads stays in the log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tenancy_sessions").fetchone()
        yield


ERASURES: dict[str, Callable[[SessionManager], Receipt]] = {
    **LEVELS,
    "session": lambda manager: manager.delete_session(tenant="acme", user="ann", session="one"),
}


def wrapped_keys(ledger: Ledger) -> set[bytes]:
    return {row[0] for row in ledger.all("SELECT wrapped FROM tenancy_session_keys")}


def at_rest(path: Path) -> bytes:
    return path.read_bytes() + path.with_name(f"{path.name}-wal").read_bytes()


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("level", ERASURES)
def test_a_log_that_is_being_read_is_said_to_hold_old_pages_until_a_cleanup_has_cut_it(
    impatient: SessionManager, ledger: Ledger, sqlite_url: str, level: str
) -> None:
    people, path = People(impatient), Path(sqlite_url.removeprefix("sqlite:///"))
    before = wrapped_keys(ledger)
    with being_read(path):
        receipt = ERASURES[level](impatient)
        assert LOG_IS_LEFT in receipt.statement
        assert receipt.finished_at is not None
        gone = before - wrapped_keys(ledger)
        assert gone
        # It says so of every receipt: whose pages they are, nobody knows.
        assert level == "session" or LOG_IS_LEFT in told(impatient, receipt).statement
        assert any(key in at_rest(path) for key in gone)
        impatient.cleanup()
        assert any(key in at_rest(path) for key in gone)
    impatient.cleanup()
    assert not any(key in at_rest(path) for key in gone)
    assert level == "session" or LOG_IS_LEFT not in told(impatient, receipt).statement
    people.require_intact(people.stranger)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("level", ERASURES)
def test_whoever_dies_before_the_log_is_cut_leaves_that_to_the_next_cleanup(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger, sqlite_url: str, level: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    path = Path(sqlite_url.removeprefix("sqlite:///"))
    before = wrapped_keys(ledger)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenancy.cleanup.Cleaner.cut_log", die)
        with pytest.raises(Killed):
            ERASURES[level](manager)
    gone = before - wrapped_keys(ledger)
    assert any(key in at_rest(path) for key in gone)
    make_manager(keys="none:", durability="process").cleanup()
    assert not any(key in at_rest(path) for key in gone)
    people.require_intact(people.stranger)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("level", "transactions"), [("session", 2), ("user", 3), ("tenant", 3)])
def test_every_transaction_that_overwrites_pages_leaves_a_mark_of_its_own(
    manager: SessionManager,
    people: People,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    transactions: int,
) -> None:
    real, marks = Database.writing, []

    @contextmanager
    def writing(self: Database, *, shred: bool = False, **settings: Any) -> Iterator[Any]:
        with real(self, shred=shred, **settings) as transaction:
            yield transaction
        if shred:
            marks.append(ledger.one("SELECT shredding_id FROM tenancy_catalogue"))

    monkeypatch.setattr(Database, "writing", writing)
    ERASURES[level](manager)
    # Keys, the rows of all sessions, and those of the owner.
    assert len(set(marks) - {None}) == transactions


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_session_that_came_while_an_erasure_began_is_in_its_receipt_and_its_key_overwritten(
    manager: SessionManager, people: People, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = ledger.all(
        "SELECT k.* FROM tenancy_session_keys k JOIN tenancy_sessions s ON s.session_id = k.session_id"
        " WHERE s.name = 'two'"
    )
    real, marks = Cleaner.carry_out, []

    def carry_out(self: Cleaner, erasing: Erasing) -> Removed:
        # One that was not seen yet, under a key of the tenant's that was not either.
        values = dict(zip("abcdef", key, strict=True))
        ledger.run("INSERT INTO tenancy_session_keys VALUES (:a, :b, :c, :d, :e, :f)", **values)
        ledger.run("UPDATE tenancy_sessions SET state = 'live' WHERE session_id = :b", b=key[1])
        ledger.run("UPDATE tenancy_tenant_keys SET key_id = 'late'")
        self._catalogue.erasure.end_rest(erasing)
        marks.append(ledger.one("SELECT shredding_id FROM tenancy_catalogue"))
        return real(self, erasing)

    monkeypatch.setattr(Cleaner, "carry_out", carry_out)
    begun = ErasureTable.begin_user

    def begin_user(self: ErasureTable, **who: str) -> list[Erasing]:
        found = begun(self, **who)
        marks.append(ledger.one("SELECT shredding_id FROM tenancy_catalogue"))
        return found

    monkeypatch.setattr(ErasureTable, "begin_user", begin_user)
    receipt = erase_user(manager)
    assert receipt.keys_destroyed == 4
    assert len(receipt.key_ids) == 2
    assert "file:late" in receipt.key_ids
    assert len(set(marks)) == 2


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_cleanup_that_no_erasure_left_anything_to_cuts_no_log(
    manager: SessionManager, people: People, sqlite_url: str
) -> None:
    log = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal")
    erase_user(manager)
    people.colleague[0].write("x")
    size = log.stat().st_size
    assert size > 0
    manager.cleanup()
    assert log.stat().st_size >= size


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_mark_that_came_while_the_log_was_cut_stays(
    make_manager: ManagerFactory, manager: SessionManager, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, real = make_manager(durability="process"), Database.checkpoint
    marks = []

    def checkpoint(self: Database, *, truncate: bool = False) -> bool:
        is_cut = real(self, truncate=truncate)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "checkpoint", lambda *_, **__: False)
            other.delete_session(tenant="acme", user="bob", session="one")
        marks.append(other._backend.catalogue.access.shredding_id())
        return is_cut

    with monkeypatch.context() as patch:
        patch.setattr(Database, "checkpoint", checkpoint)
        erase_user(manager)
    assert [manager._backend.catalogue.access.shredding_id()] == marks != [None]
    manager.cleanup()
    assert manager._backend.catalogue.access.shredding_id() is None


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_disk_too_full_to_cut_the_log_keeps_no_erasure_from_its_receipt(
    manager: SessionManager, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise StoreFull("The disk of the database is full.")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "checkpoint", refuse)
        receipt = erase_tenant(manager)
    assert receipt.finished_at is not None
    assert LOG_IS_LEFT in receipt.statement
    assert manager.cleanup().complete
    assert LOG_IS_LEFT not in told(manager, receipt).statement
