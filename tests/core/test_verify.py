"""The consistency check: finds what is wrong, repairs what is safe, deletes nothing."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stores.errors import StoreUnavailable
from tenancy import KeyUnavailable, ResultCorrupt, Session, SessionManager
from tenancy.verify import Finding
from tests.conftest import ManagerFactory
from tests.core.interposed import Killed, Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]


ID = "a" * 32


def findings(manager: SessionManager) -> dict[str, int]:
    """What a check finds that changes nothing."""
    report = manager.verify()
    assert report.ok == (report.findings == ())
    assert not any(finding.repaired for finding in report.findings)
    return {finding.kind: finding.count for finding in report.findings}


@pytest.fixture
def filled(session: Session) -> dict[str, str | bytes]:
    """A small text, and two results that are always files."""
    contents: list[str | bytes] = ["small", b"x" * 50_000, b"y" * 50_000]
    return {session.write(content): content for content in contents}


def file_of(ledger: Ledger, number: int) -> Path:
    """The file of a result, by its number."""
    name = ledger.one("SELECT result_id FROM tenancy_results WHERE number = :number", number=number)
    (path,) = [path for path in ledger.files if path.name == name]
    return path


def test_a_sound_catalogue_is_found_sound(
    manager: SessionManager, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    seen: list[int] = []
    before = ledger.snapshot()
    for repair in (False, True):
        report = manager.verify(repair=repair, on_progress=seen.append)
        assert (report.ok, report.findings, report.checked_results) == (True, (), 3)
    assert seen == [1, 2, 3] * 2
    assert ledger.snapshot() == before
    assert ledger.where() == ledger.ways(small=1, large=2)


@pytest.mark.case(60)
def test_a_missing_file_is_corrupt_and_not_merely_not_found(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    file_of(ledger, 3).unlink()
    assert findings(manager) == {"missing_bytes": 1}
    assert not manager.verify(repair=True).ok
    with pytest.raises(ResultCorrupt):
        session.read(list(filled)[2])
    session.delete(list(filled)[2])
    assert session.usage().used_bytes == 50_005
    assert findings(manager) == {}
    ledger.require_balanced()


@pytest.mark.case(60)
def test_a_missing_blob_in_the_database_is_found_like_a_missing_file(
    manager: SessionManager, session: Session, ledger: Ledger, make_manager: ManagerFactory
) -> None:
    reference = session.write("small")
    if make_manager.inline_bytes:
        ledger.run("DELETE FROM tenancy_blobs")
    else:
        ledger.files[0].unlink()
    assert findings(manager) == {"missing_bytes": 1}
    with pytest.raises(ResultCorrupt):
        session.read(reference)


def test_bytes_that_no_row_knows_are_found_and_left_where_they_are(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    room = file_of(ledger, 2).parent
    (room / ID).write_bytes(b"unknown")
    (room / ID).chmod(0o600)
    ledger.run(
        "INSERT INTO tenancy_blobs (outer_name, inner_name, name, created_at_us, data) VALUES (:a, :a, :a, 0, :data)",
        a=ID,
        data=b"unknown",
    )
    # One in a room that nobody has, one beside what is known.
    ledger.run(
        "INSERT INTO tenancy_blobs (outer_name, inner_name, name, created_at_us, data)"
        " SELECT tenant_id, session_id, :a, 0, :data FROM tenancy_sessions",
        a=ID,
        data=b"unknown",
    )
    assert findings(manager) == {"unknown_bytes": 3}
    report = manager.verify(repair=True)
    assert report.findings == (Finding("unknown_bytes", 3, repaired=False),)
    assert (room / ID).read_bytes() == b"unknown"
    assert ledger.one("SELECT count(*) FROM tenancy_blobs WHERE name = :a", a=ID) == 2
    assert session.usage().used_bytes == 100_005


@pytest.mark.parametrize(
    "drift",
    [
        "used_bytes = used_bytes + 7",
        "used_bytes = 0",
        "results = results + 1",
        "sessions = sessions + 1",
        "results = 0",
    ],
)
def test_counters_that_drifted_are_found_and_set_right(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes], ledger: Ledger, drift: str
) -> None:
    assert ledger.run(f"UPDATE tenancy_usage SET {drift}") == 3
    assert findings(manager) == {"wrong_usage": 3}
    report = manager.verify(repair=True)
    assert (report.ok, report.findings) == (True, (Finding("wrong_usage", 3, repaired=True),))
    ledger.require_balanced()
    assert findings(manager) == {}
    assert session.usage().used_bytes == 100_005


def test_counters_of_owners_without_a_session_are_set_right_too(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    manager.delete_session(tenant="acme", user="ann", session="chat")
    ledger.run("UPDATE tenancy_usage SET used_bytes = 5")
    assert findings(manager) == {"wrong_usage": 2}
    assert manager.verify(repair=True).ok
    ledger.require_empty()


@pytest.mark.case(138)
def test_counters_of_owners_without_a_session_are_set_right_beside_others_of_their_tenant(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    manager.session(tenant="acme", user="bob", session="gone")
    manager.delete_session(tenant="acme", user="bob", session="gone")
    bob = ledger.one("SELECT user_id FROM tenancy_users WHERE name = 'bob'")
    ledger.run("UPDATE tenancy_usage SET used_bytes = 5 WHERE owner_id = :bob", bob=bob)
    assert findings(manager) == {"wrong_usage": 1}
    assert manager.verify(repair=True).ok
    ledger.require_balanced()
    assert findings(manager) == {}


def test_a_write_that_nobody_is_at_any_more_is_found_and_cleared(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    def die(*_: object) -> None:
        raise Killed

    store.after = lambda operation, name: die() if operation == "put" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenancy.catalogue.results.ResultTable.abandon", die)
        with pytest.raises(Killed):
            session.write(b"x" * 50_000)
    store.after = lambda operation, name: None
    assert findings(manager) == {}
    manager.clock.advance(timedelta(minutes=3))
    assert findings(manager) == {"interrupted": 1}
    assert manager.verify(repair=True).ok
    assert session.usage().used_bytes == 0
    assert ledger.where() == (0, 0)
    ledger.require_balanced()


@pytest.mark.case(128)
def test_what_cannot_be_decrypted_is_named_and_never_deleted(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    ledger.run("UPDATE tenancy_session_keys SET wrapped = :wrong", wrong=b"x" * 100)
    before = ledger.snapshot()
    assert findings(manager) == {"damaged": 3}
    assert not manager.verify(repair=True).ok
    assert manager.cleanup().results == 0
    assert ledger.snapshot() == before
    for reference in filled:
        with pytest.raises(ResultCorrupt):
            session.read(reference)


@pytest.mark.case(37, 38, 133)
def test_a_key_that_is_away_is_no_damage(
    make_manager: ManagerFactory,
    manager: SessionManager,
    filled: dict[str, str | bytes],
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = make_manager(durability="process")
    session = other.session(tenant="acme", user="ann", session="chat")

    def away(*_: object, **__: object) -> None:
        raise KeyUnavailable("The key service did not answer.")

    monkeypatch.setattr(type(other._backend.keyring._providers.find("file")), "unwrap", away)
    before = ledger.snapshot()
    assert findings(other) == {"no_key": 3}
    assert not other.verify(repair=True).ok
    for call in (lambda: session.read(next(iter(filled))), lambda: session.write("x")):
        with pytest.raises(KeyUnavailable) as refusal:
            call()
        assert refusal.value.retryable
    assert ledger.snapshot() == before
    # Deleting needs no key.
    for reference in filled:
        session.delete(reference)
    assert other.usage(tenant="acme").used_bytes == 0
    ledger.require_balanced()


def test_a_store_that_does_not_answer_is_said_to_be_unreadable(
    manager: SessionManager, session: Session, store: Store, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    def refuse(operation: str, name: str) -> None:
        if operation == "get":
            raise StoreUnavailable("away")

    store.before = refuse
    assert findings(manager) == {"unreadable": 3}
    store.before = lambda operation, name: None
    assert findings(manager) == {}


def test_a_result_deleted_while_it_is_checked_is_no_finding(
    manager: SessionManager, session: Session, store: Store, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    gone: list[str] = []

    def delete(operation: str, name: str) -> None:
        if operation == "get" and not gone:
            gone.append(name)
            session.delete(next(iter(filled)))

    store.before = delete
    assert findings(manager) == {}
    assert len(gone) == 1


def test_a_file_removed_with_its_row_while_files_are_counted_is_no_finding(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes]
) -> None:
    names = manager._backend.catalogue.audit.names

    def names_after_deletion(tenant_id: str, session_id: str) -> set[str]:
        # Between the look at the files and the look at the rows.
        if len(list(session.results())) == 3:
            session.delete(list(filled)[1])
        return names(tenant_id, session_id)

    manager._backend.catalogue.audit.names = names_after_deletion  # type: ignore[method-assign]
    assert findings(manager) == {}
