"""Changes that two make at once: limits beside an erasure, and the first key of a new catalogue."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from pathlib import Path
from typing import Any

import pytest

from tenancy import ConfigurationError, Limits, Receipt, Session, SessionManager
from tenancy.catalogue.counters import write_limits
from tenancy.catalogue.identity import IdentityTable
from tenancy.keys.providers import create_key_file
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

#: How long somebody who ought to be kept waiting is given to show that nobody keeps him.
PATIENCE_SECONDS = 0.3


@pytest.mark.parametrize("level", ["tenant", "user", "session"])
def test_limits_set_beside_an_erasure_do_not_outlive_their_owner(
    make_manager: ManagerFactory,
    manager: SessionManager,
    session: Session,
    ledger: Ledger,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = make_manager(durability="process")
    erasures: list[Future[Receipt]] = []

    def erase() -> Receipt:
        if level == "tenant":
            return other.erase_tenant(tenant="acme")
        return other.erase_user(tenant="acme", user="ann")

    def write_late(*arguments: Any) -> None:
        # The owner was found; before anything is written to it, another process erases it.
        erasures.append(pool.submit(erase))
        with pytest.raises(NotDone):
            erasures[0].result(PATIENCE_SECONDS)
        write_limits(*arguments)

    names = {"tenant": "acme", "user": "ann", "session": "chat"}
    levels = list(names)[: list(names).index(level) + 1]
    monkeypatch.setattr("tenancy.catalogue.administration.write_limits", write_late)
    with ThreadPoolExecutor(1) as pool:
        manager.set_limits(Limits(session_bytes=5), **{name: names[name] for name in levels})
    assert erasures[0].result().sessions == 1
    assert ledger.count("tenancy_limits") == 0
    ledger.require_empty()


def test_a_tenant_takes_limits_of_owners_it_no_longer_has_along(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    manager.set_limits(Limits(session_bytes=5), tenant="acme")
    ledger.run("UPDATE tenancy_limits SET owner_id = :gone", gone="a" * 32)
    manager.erase_tenant(tenant="acme")
    assert ledger.count("tenancy_limits") == 0
    assert ledger.count("tenancy_tenants") == 0


def test_limits_that_several_set_at_once_are_those_of_one_of_them(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    gate = threading.Barrier(4)

    def set_limits(number: int) -> None:
        gate.wait()
        for _ in range(10):
            manager.set_limits(Limits(user_bytes=1000 + number, user_results=10 + number), tenant="acme", user="ann")

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(set_limits, number) for number in range(4)]:
            done.result()
    found = manager.limits(tenant="acme", user="ann")
    assert found in [Limits(user_bytes=1000 + number, user_results=10 + number) for number in range(4)]
    assert ledger.count("tenancy_limits") == 1


def test_of_two_first_starts_with_different_keys_one_is_refused(
    make_manager: ManagerFactory, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_key_file(tmp_path / "other.json")
    locations = [f"file:{make_manager.key_file}", f"file:{tmp_path / 'other.json'}"]
    add_root_key = IdentityTable.add_root_key
    gate = threading.Barrier(2)

    def add_together(self: IdentityTable, *arguments: Any) -> None:
        # Each has seen a catalogue without a key.
        gate.wait()
        add_root_key(self, *arguments)

    def refusal_of(location: str) -> str | None:
        try:
            make_manager(keys=location)
        except ConfigurationError as refusal:
            return str(refusal)
        return None

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(IdentityTable, "add_root_key", add_together)
        refusals = list(pool.map(refusal_of, locations))
    assert refusals.count(None) == 1
    assert "not the one this catalogue was made with" in "".join(filter(None, refusals))
    assert ledger.count("tenancy_root_keys") == 1
    # And so it stays.
    assert [refusal_of(location) for location in locations] == refusals


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 100_001},
        {"batch_size": 2**31},
        {"batch_size": 2**70},
        {"batch_size": True},
        {"batch_size": 1.5},
        {"batch_size": "1"},
        {"max_seconds": "1"},
    ],
    ids=str,
)
def test_a_cleanup_within_bounds_no_database_counts_is_refused(
    manager: SessionManager, session: Session, ledger: Ledger, wrong: dict[str, Any]
) -> None:
    manager.delete_session(tenant="acme", user="ann", session="chat")
    before = ledger.snapshot()
    with pytest.raises(ConfigurationError) as refusal:
        manager.cleanup(**wrong)
    assert next(iter(wrong)) in str(refusal.value)
    assert ledger.snapshot() == before


def test_the_largest_batch_is_one_that_works(manager: SessionManager, session: Session) -> None:
    session.write("x")
    assert manager.cleanup(batch_size=100_000).complete
