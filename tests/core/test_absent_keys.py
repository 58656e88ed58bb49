"""A manager without its key: what needs one waits for it, what removes goes on, and no other key gets in meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from tenancy import ConfigurationError, KeyUnavailable, Session, SessionManager
from tenancy.keys.keyset import KeysetEntry, KeyState
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import KeyProvider, KeysetProvider, WrappedKey, open_key_provider
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.core.people import USER, People, erase_user, numbers

Open = Callable[..., Session]


class Away:
    """A provider that does not answer until it is back."""

    def __init__(self, inner: KeyProvider) -> None:
        self.inner = inner
        self.name = inner.name
        self.primary_key_id = inner.primary_key_id
        self.is_back = False
        self.asked = 0

    def wrap(self, key: SecretKey, *, context: bytes) -> WrappedKey:
        self._require_back()
        return self.inner.wrap(key, context=context)

    def unwrap(self, wrapped: WrappedKey, *, context: bytes) -> SecretKey:
        self._require_back()
        return self.inner.unwrap(wrapped, context=context)

    def close(self) -> None:
        self.inner.close()

    def _require_back(self) -> None:
        self.asked += 1
        if not self.is_back:
            raise KeyUnavailable("The keys are away.")


@pytest.fixture
def start_without(make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Starts a manager whose provider is away, of the key it should have or of another."""

    def start(inner: KeyProvider | None = None) -> tuple[SessionManager, Away]:
        away = Away(inner or open_key_provider(f"file:{make_manager.key_file}"))
        with monkeypatch.context() as patch:
            patch.setattr("tenancy.keys.opening.open_key_provider", lambda location: away)
            return make_manager(durability="process"), away

    return start


def needing_a_key(manager: SessionManager, reference: str) -> list[Callable[[], Any]]:
    known = {"tenant": "acme", "user": "ann", "session": "one"}
    return [
        lambda: manager.session(**known).read(reference),
        lambda: manager.session(**known).write("x"),
        lambda: manager.session(**known).write(b"x" * 50_000),
        lambda: list(manager.session(**known).results()),
        lambda: manager.session(tenant="acme", user="ann", session="new"),
        lambda: manager.session(tenant="new", user="new"),
        manager.require_key,
    ]


@pytest.mark.case(37)
def test_a_manager_starts_while_its_key_is_away_and_serves_when_it_is_back(
    people: People, ledger: Ledger, start_without: Callable[..., Any]
) -> None:
    reference = next(iter(people.victims[0][1]))
    before = ledger.snapshot()
    manager, provider = start_without()
    for call in needing_a_key(manager, reference):
        with pytest.raises(KeyUnavailable):
            call()
    assert ledger.snapshot() == before
    provider.is_back = True
    for call in needing_a_key(manager, reference):
        call()
    # The check was made once, and a tenant's key opened once.
    provider.asked = 0
    needing_a_key(manager, reference)[0]()
    assert provider.asked == 0
    ledger.require_balanced()


@pytest.mark.case(132)
@pytest.mark.parametrize("key_id", ["its own", "the same"])
def test_a_key_that_was_away_at_the_start_and_comes_back_as_another_one_wraps_and_opens_nothing(
    people: People, ledger: Ledger, start_without: Callable[..., Any], make_manager: ManagerFactory, key_id: str
) -> None:
    reference = next(iter(people.victims[0][1]))
    right = open_key_provider(f"file:{make_manager.key_file}").primary_key_id
    other = KeysetEntry("b" if key_id == "its own" else right, KeyState.PRIMARY, None, SecretKey.generate())
    manager, provider = start_without(KeysetProvider("file", [other]))
    before = ledger.snapshot()
    provider.is_back = True
    for call in needing_a_key(manager, reference):
        with pytest.raises(ConfigurationError, match="not the one this catalogue was made with"):
            call()
    assert ledger.snapshot() == before
    # Nothing of it was kept, and what removes goes on.
    assert numbers(erase_user(manager)) == USER
    people.require_intact(people.colleague, people.stranger)


@pytest.mark.case(39)
def test_a_job_without_a_key_removes_and_neither_reads_nor_writes(
    make_manager: ManagerFactory, people: People, ledger: Ledger
) -> None:
    reference = next(iter(people.victims[0][1]))
    before = ledger.snapshot()
    job = make_manager(keys="none:", durability="process")
    for call in needing_a_key(job, reference):
        with pytest.raises(KeyUnavailable, match="the setting keys is none:"):
            call()
    assert job.usage(tenant="acme").results == 8
    assert len(list(job.sessions())) == 5
    assert [(each.kind, each.count) for each in job.verify(repair=True).findings] == [("no_key", 10)]
    assert ledger.snapshot() == before
    session, contents = people.victims[0]
    session.delete(reference)
    job.session(tenant="acme", user="ann", session="one").delete(list(contents)[1])
    assert job.delete_session(tenant="acme", user="ann", session="two").results == 2
    assert job.cleanup().complete
    assert erase_user(job).results == 2
    people.require_intact(people.colleague, people.stranger)
    assert job.erase_tenant(tenant="acme").users == 1
    ledger.require_balanced()


@pytest.mark.parametrize("setting", ["none:", "away"])
def test_a_new_catalogue_is_not_made_without_its_key(
    make_manager: ManagerFactory, ledger: Ledger, start_without: Callable[..., Any], setting: str
) -> None:
    expected = ConfigurationError if setting == "none:" else KeyUnavailable
    with pytest.raises(expected):
        make_manager(keys=setting) if setting == "none:" else start_without()
    assert ledger.count("tenancy_root_keys") == 0
    make_manager().session(tenant="acme", user="ann").write("x")


def test_a_check_without_the_key_still_finds_what_is_missing_or_cut(
    make_manager: ManagerFactory, manager: SessionManager, ledger: Ledger
) -> None:
    session = manager.session(tenant="acme", user="ann")
    for _ in range(3):
        session.write(b"x" * 50_000)
    first, second, _ = sorted(ledger.files)
    first.unlink()
    second.write_bytes(b"short")
    found = {each.kind: each.count for each in make_manager(keys="none:").verify().findings}
    assert found == {"missing_bytes": 1, "damaged": 1, "no_key": 1}
