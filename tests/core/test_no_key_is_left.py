"""Whatever came before an erasure: no wrapped key that stands in no row any more stands in SQLite's file or its log."""

import random
from datetime import timedelta
from pathlib import Path

import pytest

from tenancy import Lifetime, SessionManager
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

_STEPS = 50
_BRIEF = Lifetime(idle=timedelta(hours=1))
_LASTING = Lifetime(idle=timedelta(days=30), maximum=timedelta(days=90))


def _step(manager: SessionManager, chance: random.Random) -> None:
    where = {"tenant": chance.choice(["acme", "globex"]), "user": f"u{chance.randrange(4)}"}
    session = f"s{chance.randrange(12)}"
    action = chance.random()
    if action < 0.7:
        opened = manager.session(**where, session=session, lifetime=chance.choice([_BRIEF, _LASTING]))
        opened.write("x" * chance.choice([10, 20_000]))
    elif action < 0.85:
        manager.delete_session(**where, session=session)
    elif action < 0.92:
        manager.clock.advance(timedelta(hours=2))
        manager.cleanup()
    elif action < 0.95:
        manager.clock.advance(timedelta(hours=2))
    elif action < 0.97:
        manager.rotate_keys(chance.choice(["tenant", "session"]))
    else:
        manager.erase_user(**where)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_no_key_of_an_erased_user_is_left_in_the_database_file_or_its_log(
    make_manager: ManagerFactory, manager: SessionManager, ledger: Ledger, seed: int
) -> None:
    chance = random.Random(seed)
    path = make_manager.database_url.removeprefix("sqlite:///")

    def standing() -> set[bytes]:
        tables = ("tenancy_session_keys", "tenancy_tenant_keys")
        return {row[0] for table in tables for row in ledger.all(f"SELECT wrapped FROM {table}")}

    for index in range(60):
        # More than one page of keys, which their end empties and merges.
        manager.session(tenant="acme", user=f"u{index % 4}", session=f"first{index}", lifetime=_BRIEF)
    seen = standing()
    for _ in range(_STEPS):
        _step(manager, chance)
        seen |= standing()
    manager.session(tenant="acme", user="u0", session="last")
    for tenant in ("acme", "globex"):
        seen |= standing()
        manager.erase_user(tenant=tenant, user="u0")
    left = standing()
    stored = b"".join(Path(path + suffix).read_bytes() for suffix in ("", "-wal"))
    assert left
    assert all(key in stored for key in left)
    assert [key for key in seen - left if key in stored] == []
