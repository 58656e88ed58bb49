"""A manager whose keys are in AWS KMS: everything works, and everything that has to goes on without it."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

from tenancy import KeyDestroyed, KeyUnavailable, Session, SessionManager
from tenancy.errors import TenancyError
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.crypto.kms import Service, running
from tests.leaks import everything_logged

CONTENT: Final = "a result of some customer's " * 2000
WHO: Final = [
    {"tenant": "acme", "user": user, "session": name} for user, name in (("ann", "a"), ("ann", "b"), ("bob", "a"))
]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch, running(patch) as service:
        yield service


@pytest.fixture
def kms(service: Service) -> Iterator[Service]:
    yield service
    service.fault = None


@pytest.fixture
def location(kms: Service) -> str:
    """The setting, with a key of this test's own."""
    return f"aws-kms:{kms.create_key()}"


@pytest.fixture
def manager(make_manager: ManagerFactory, location: str) -> SessionManager:
    return make_manager(keys=location, durability="process")


def forget_opened_keys(manager: SessionManager) -> None:
    """As some minutes do, and every start."""
    manager._backend.keyring._cache.close()


def disabled(kms: Service, key_id: str) -> None:
    kms.admin.disable_key(KeyId=key_id)


def about_to_be_deleted(kms: Service, key_id: str) -> None:
    kms.admin.schedule_key_deletion(KeyId=key_id, PendingWindowInDays=7)


def faulty(fault: str | Exception) -> Callable[[Service, str], None]:
    def fail(kms: Service, _: str) -> None:
        kms.fault = fault

    return fail


URL: Final = "https://kms.eu-central-1.amazonaws.com/"
OUTAGES: Final[dict[str, tuple[Callable[[Service, str], None], type[TenancyError]]]] = {
    "disabled": (disabled, KeyUnavailable),
    "about to be deleted": (about_to_be_deleted, KeyUnavailable),
    "throttled": (faulty("ThrottlingException"), KeyUnavailable),
    "denied": (faulty("AccessDeniedException"), KeyUnavailable),
    "unreachable": (faulty(EndpointConnectionError(endpoint_url=URL)), KeyUnavailable),
    "silent": (faulty(ConnectTimeoutError(endpoint_url=URL)), KeyUnavailable),
    "deleted": (faulty("NotFoundException"), KeyDestroyed),
}


#: What the service answers is looked at call by call in `tests/crypto/test_aws_kms.py`; these few stand for all.
_IN_EVERY_RUN: Final = ("disabled", "unreachable", "deleted")


@pytest.mark.parametrize(
    "outage", [name if name in _IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow) for name in OUTAGES]
)
@pytest.mark.case(37, 38, 133)
def test_an_outage_of_the_key_service_loses_nothing_and_keeps_nothing_from_being_deleted(
    manager: SessionManager, make_manager: ManagerFactory, ledger: Ledger, kms: Service, location: str, outage: str
) -> None:
    break_it, expected = OUTAGES[outage]
    sessions = [manager.session(**who) for who in WHO]
    references = [session.write(CONTENT) for session in sessions]
    short = sessions[0].write(b"short")
    before = ledger.snapshot()
    break_it(kms, location[-36:])
    forget_opened_keys(manager)
    later = make_manager(keys=location, durability="process")
    refused: list[Callable[[], Any]] = [
        lambda: sessions[0].read(references[0]),
        lambda: sessions[0].read_page(references[0], max_chars=10),
        lambda: list(sessions[0].results()),
        lambda: sessions[0].write(CONTENT),
        lambda: sessions[0].write(b"short"),
        lambda: manager.session(tenant="acme", user="new"),
        lambda: later.session(**WHO[0]).read(references[0]),
        lambda: later.session(**WHO[0]).write(CONTENT),
        lambda: later.session(tenant="acme", user="new"),
        lambda: later.session(tenant="globex", user="new"),
        later.require_key,
    ]
    with everything_logged() as log:
        for call in refused:
            with pytest.raises(expected) as refusal:
                call()
            assert refusal.value.retryable is (expected is KeyUnavailable)
            assert "arn:" not in str(refusal.value)
        # A tenant's first key is made, not opened: there the service may not know a key that is misspelt.
        with pytest.raises(KeyUnavailable):
            manager.session(tenant="globex", user="new")
    assert "arn:" not in "".join(log.texts())
    assert ledger.snapshot() == before
    # What needs no key goes on, also for those who were started without it.
    assert later.usage(tenant="acme").results == len(list(later.sessions())) + 1 == 4
    assert [(each.kind, each.count) for each in later.verify().findings] == [("no_key", 4)]
    sessions[0].delete(short)
    assert later.delete_session(**WHO[1]).results == 1
    assert later.erase_user(tenant="acme", user="bob").results == 1
    assert later.cleanup().complete
    ledger.require_balanced()
    # And when the service is back, so is what was kept.
    kms.fault = None
    kms.admin.cancel_key_deletion(KeyId=location[-36:])
    kms.admin.enable_key(KeyId=location[-36:])
    for each in (manager, later, make_manager(keys=location)):
        assert each.session(**WHO[0]).read(references[0]) == CONTENT
    assert read_back(manager.session(tenant="globex", user="new")) == CONTENT
    assert manager.verify().findings == ()
    ledger.require_balanced()


def read_back(session: Session) -> str | bytes:
    return session.read(session.write(CONTENT))


def test_a_whole_tenant_is_erased_while_its_key_is_away(
    manager: SessionManager, ledger: Ledger, kms: Service, location: str
) -> None:
    for who in WHO:
        manager.session(**who).write(CONTENT)
    disabled(kms, location[-36:])
    forget_opened_keys(manager)
    assert manager.erase_tenant(tenant="acme").users == 2
    ledger.require_empty()
    assert ledger.count("tenancy_tenant_keys") == 0


def test_the_service_is_asked_once_per_tenant_and_learns_of_nobody(
    manager: SessionManager, ledger: Ledger, kms: Service, location: str
) -> None:
    kms.requests.clear()
    for who in WHO:
        read_back(manager.session(**who))
    forget_opened_keys(manager)
    for who in WHO:
        list(manager.session(**who).results())
    assert [operation for operation, _ in kms.requests] == ["Encrypt", "Decrypt"]
    ids = [
        str(value) for row in ledger.all("SELECT tenant_id, user_id, session_id FROM tenancy_sessions") for value in row
    ]
    for known in (*ids, "acme", "ann", "bob"):
        assert known not in str(kms.requests)
    assert ledger.all("SELECT provider, key_id FROM tenancy_tenant_keys") == [
        ("aws-kms", location.removeprefix("aws-kms:"))
    ]


@pytest.mark.slow
def test_an_alias_may_be_moved_under_a_running_service(
    make_manager: ManagerFactory, kms: Service, ledger: Ledger
) -> None:
    old, new = kms.create_key(), kms.create_key()
    alias = f"alias/tenants-{old[-12:]}"
    kms.admin.create_alias(AliasName=alias, TargetKeyId=old)
    manager = make_manager(keys=f"aws-kms:{alias}", durability="process")
    session = manager.session(tenant="acme", user="ann")
    reference = session.write(CONTENT)
    kms.admin.update_alias(AliasName=alias, TargetKeyId=new)
    later = make_manager(keys=f"aws-kms:{alias}", durability="process")
    assert read_back(later.session(tenant="globex", user="ann")) == CONTENT
    for each in (manager, later):
        forget_opened_keys(each)
        assert each.session(tenant="acme", user="ann").read(reference) == CONTENT
    assert {row[0] for row in ledger.all("SELECT key_id FROM tenancy_tenant_keys")} == {old, new}
