"""The consistency check beside others at work: what is on its way out is no finding, what is left is not repaired."""

from datetime import timedelta

import pytest

from stores.errors import StoreUnavailable
from tenancy import Session, SessionManager, StorageUnavailable
from tenancy.verify import Finding
from tests.core.interposed import Killed, Store
from tests.core.ledger import Ledger

#: Always a file, and its bytes go before its row does.
LARGE = b"x" * 50_000


def test_a_result_that_is_half_deleted_while_it_is_checked_is_no_finding(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    reference = session.write(LARGE)

    def die(operation: str, _name: str) -> None:
        if operation == "delete":
            raise Killed

    def delete(operation: str, _name: str) -> None:
        # The check has read the row, and now wants the bytes.
        if operation == "get" and ledger.states() == {"committed": 1}:
            with pytest.raises(Killed):
                session.delete(reference)

    store.before, store.after = delete, die
    assert manager.verify().findings == ()
    # Nothing but the row was left, and it was still there.
    assert (ledger.states(), ledger.files) == ({"deleting": 1}, [])


def test_the_results_of_a_session_that_ends_while_they_are_checked_are_no_finding(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    session.write(LARGE)

    def die(operation: str, _name: str) -> None:
        if operation == "destroy":
            raise Killed

    def end(operation: str, _name: str) -> None:
        if operation == "get" and ledger.one("SELECT state FROM tenancy_sessions") == "live":
            with pytest.raises(Killed):
                manager.delete_session(tenant="acme", user="ann", session="chat")

    store.before, store.after = end, die
    assert manager.verify().findings == ()
    assert (ledger.states(), ledger.files) == ({"committed": 1}, [])


def test_what_repair_could_not_remove_is_not_called_repaired(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    reference = session.write(LARGE)

    def refuse(operation: str, _name: str) -> None:
        if operation == "delete":
            raise StoreUnavailable("away")

    store.before = refuse
    with pytest.raises(StorageUnavailable):
        session.delete(reference)
    manager.clock.advance(timedelta(minutes=5))
    report = manager.verify(repair=True)
    assert (report.ok, report.findings) == (False, (Finding("interrupted", 1, repaired=False),))
    assert len(ledger.files) == 1
    store.before = lambda operation, name: None
    report = manager.verify(repair=True)
    assert (report.ok, report.findings) == (True, (Finding("interrupted", 1, repaired=True),))
    assert ledger.where() == (0, 0)
    ledger.require_balanced()
