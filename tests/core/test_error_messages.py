"""What goes wrong is said without content, path, key or identifier."""

import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from stores.errors import BlobCorrupt, BlobExists, BlobNotFound, StoreDenied, StoreError, StoreFull, StoreUnavailable
from tenancy import Lifetime, Limits, Session, SessionManager, StorageFull, StorageUnavailable, TenancyError
from tenancy import errors as tenancy_errors
from tests.conftest import ManagerFactory
from tests.core.interposed import Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]
NAMES = {"tenant": "secret-tenant", "user": "secret-user", "session": "secret-session"}
STORED_NAME = re.compile(r"\b[a-z2-7]{32}\b")


def failures(manager: SessionManager, session: Session, store: Store, ledger: Ledger) -> Iterator[Callable[[], Any]]:
    """Calls that fail, each in its own way; what they need is prepared between them."""
    # In a file: what is in the database comes with its row, and asks the store for nothing.
    reference = session.write(b"secret-content" + os.urandom(60_000), name="secret-name.txt")
    yield lambda: session.read("secret-reference")
    yield lambda: session.read("result-9-aaaaaaaaaa")
    yield lambda: manager.session(tenant="secret\x00tenant", user="u")
    yield lambda: manager.session(**{**NAMES, "session": "secret" * 100})
    yield lambda: manager.limits(tenant="secret-nobody")
    yield lambda: manager.session(**NAMES, limits=Limits(user_bytes=1))
    manager.set_limits(Limits(max_result_bytes=80_000, session_bytes=80_000, user_sessions=1), tenant="secret-tenant")
    yield lambda: session.write("secret-content" * 10_000, name="secret-name")
    yield lambda: session.write("secret-content" * 5000, name="secret-name")
    yield lambda: manager.session(**{**NAMES, "session": "secret-second"})
    manager.set_limits(Limits(), tenant="secret-tenant")
    for error in (StoreUnavailable, StoreDenied, StoreFull, BlobExists):
        store.before = raising("put", error("A store's own words."))
        yield lambda: session.write("secret-content", name="secret-name")
    for error in (StoreUnavailable, StoreDenied, BlobCorrupt, BlobNotFound):
        store.before = raising("get", error("A store's own words."))
        yield lambda: session.read(reference)
    store.before = raising("delete", StoreUnavailable("A store's own words."))
    yield lambda: session.delete(reference)
    store.before = raising("destroy", StoreUnavailable("A store's own words."))
    yield lambda: manager.erase_user(tenant="secret-tenant", user="secret-user")
    store.before = lambda operation, name: None
    yield lambda: session.read(reference)
    yield lambda: session.write("secret-content")
    session.close()
    yield lambda: session.usage()
    ledger.run("ALTER TABLE tenancy_users RENAME TO tenancy_users_away")
    yield lambda: manager.session(**NAMES)
    yield lambda: manager.usage(**NAMES)
    yield lambda: manager.erase_user(tenant="secret-tenant", user="secret-user")
    ledger.run("ALTER TABLE tenancy_users_away RENAME TO tenancy_users")


def raising(operation: str, error: Exception) -> Callable[[str, str], None]:
    def fail(called: str, name: str) -> None:
        if called == operation:
            raise error

    return fail


@pytest.mark.case(142)
def test_no_error_says_what_was_stored_for_whom_or_where(
    manager: SessionManager,
    store: Store,
    ledger: Ledger,
    make_manager: ManagerFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = manager.session(**NAMES)
    seen: set[type] = set()
    for call in failures(manager, session, store, ledger):
        with pytest.raises(TenancyError) as failure:
            call()
        error = failure.value
        seen.add(type(error))
        # Nor does anything that an error tracker would follow it to.
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None or isinstance(error.__context__, TenancyError)
        for text in (str(error), repr(error), repr(vars(error)), repr(error.args)):
            assert "secret" not in text
            assert str(make_manager.folder) not in text
            assert not STORED_NAME.search(text)
            assert "SELECT" not in text.upper().split()
            assert "postgresql" not in text
    assert len(seen) >= 9
    assert "secret" not in caplog.text
    assert not STORED_NAME.search(caplog.text)


def test_no_error_of_a_store_or_a_driver_comes_out(session: Session, store: Store, ledger: Ledger) -> None:
    reference = session.write(b"x" * 50_000)
    translated = {StoreUnavailable: StorageUnavailable, StoreDenied: StorageUnavailable, StoreFull: StorageFull}
    calls: dict[str, Callable[[], Any]] = {
        "put": lambda: session.write("y"),
        "get": lambda: session.read(reference),
        "delete": lambda: session.delete(session.write(b"y" * 50_000)),
    }
    for error, answer in translated.items():
        for operation, call in calls.items():
            store.before = raising(operation, error("words"))
            with pytest.raises(answer) as failure:
                call()
            assert type(failure.value) is answer
    store.before = lambda operation, name: None
    assert session.read(reference) == b"x" * 50_000


def test_a_database_that_is_away_is_retryable_and_nothing_is_lost(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    reference = session.write("x")

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("The database is away.")

    who = {"tenant": "acme", "user": "ann"}
    calls: list[Callable[[], Any]] = [
        lambda: session.read(reference),
        lambda: session.write("y"),
        lambda: session.delete(reference),
        lambda: list(session.results()),
        session.usage,
        lambda: manager.session(**who),
        lambda: manager.usage(**who),
        lambda: manager.erase_user(**who),
        lambda: list(manager.sessions()),
        manager.cleanup,
        manager.verify,
        manager.cleaned_at,
    ]
    with monkeypatch.context() as patch:
        patch.setattr("stores.lending.Lender.take", away)
        for call in calls:
            with pytest.raises(StorageUnavailable) as failure:
                call()
            assert failure.value.retryable
    assert session.read(reference) == "x"
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def test_reading_goes_on_when_the_idle_expiry_cannot_be_moved(
    manager: SessionManager, open_session: Open, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(hours=16)))
    reference = session.write("x")
    manager.clock.advance(timedelta(hours=2))

    def locked(*_: object, **__: object) -> None:
        raise StoreUnavailable("locked")

    monkeypatch.setattr("tenancy.catalogue.sessions.SessionTable.touch", locked)
    assert session.read(reference) == "x"
    assert session.read_page(reference, max_chars=1).text == "x"
    assert len(list(session.results())) == 1
    session.write("y")
    open_session()
    assert ledger.where() == ledger.ways(small=2)


def test_every_error_is_of_one_family_and_says_whether_to_retry() -> None:
    family = [one for one in vars(tenancy_errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(family) >= 14
    for one in family:
        assert issubclass(one, TenancyError)
        assert not issubclass(one, StoreError)
    retryable = {one.__name__ for one in family if one.retryable}
    assert retryable == {"KeyUnavailable", "StorageUnavailable"}
