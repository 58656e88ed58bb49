"""Rotation: keys go under new keys, results stay as they are, and everybody reads on."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tenancy import SessionManager
from tests.conftest import ManagerFactory

LEVELS = ("root", "tenant", "session")
TENANTS = ("acme", "globex")


def add_primary(path: Path, **old: Any) -> None:
    """Put a new primary key into a key file. The one before is enabled, or what is said."""
    document = json.loads(path.read_text())
    former = [{**key, "state": "enabled", **old} if key["state"] == "primary" else key for key in document["keys"]]
    new = {
        **document["keys"][0],
        "id": f"key-{len(former) + 1}",
        "state": "primary",
        "key": base64.urlsafe_b64encode(os.urandom(32)).decode(),
    }
    path.write_text(json.dumps({**document, "keys": [*former, new]}))


class People:
    """Two tenants with two sessions each, and what they wrote. Handles are opened once and kept."""

    def __init__(self, manager: SessionManager) -> None:
        self.handles = {
            (tenant, name): manager.session(tenant=tenant, user="anna", session=name)
            for tenant in TENANTS
            for name in ("chat", "mail")
        }
        self.written: dict[tuple[str, str], dict[str, str]] = {who: {} for who in self.handles}
        self.write()

    def write(self) -> None:
        for number, (who, handle) in enumerate(self.handles.items()):
            for size in (20, 50_000):
                text = f"{who} {number} " + os.urandom(size).hex()
                self.written[who][handle.write(text)] = text

    def require_all(self, manager: SessionManager) -> None:
        """See that each reads what is theirs, by the old handle and by a new one."""
        for (tenant, name), written in self.written.items():
            fresh = manager.session(tenant=tenant, user="anna", session=name)
            for handle in (self.handles[tenant, name], fresh):
                assert {result.reference for result in handle.results()} == set(written)
                assert {reference: handle.read(reference) for reference in written} == written


def rows(manager: SessionManager, text: str) -> list[tuple[Any, ...]]:
    """What somebody sees who looks at the database as the owner does."""
    import sqlalchemy as sa

    from stores.sql import Statement

    with manager._backend.across.database.reading() as transaction:
        return transaction.all(Statement(sa.text(text)))


def files(make_manager: ManagerFactory) -> dict[Path, tuple[bytes, int]]:
    found = [path for path in make_manager.results.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("level", LEVELS)
def test_everybody_reads_and_writes_on_and_no_result_is_touched(make_manager: ManagerFactory, level: str) -> None:
    manager, other = make_manager(), make_manager()
    people = People(manager)
    before = files(make_manager)
    if level == "root":
        add_primary(make_manager.key_file)
        manager, other = make_manager(), make_manager()
    report = manager.rotate_keys(level)
    assert (report.changed, report.resumed, report.failed, report.left) == (2 if level == "root" else 4, False, 0, 0)
    assert files(make_manager) == before
    people.require_all(other)
    people.write()
    people.require_all(other)
    again = manager.rewrap_keys(level)
    assert (again.changed, again.resumed, again.failed, again.left) == (0, True, 0, 0)


def test_after_a_tenants_rotation_its_old_key_is_gone_and_refused(make_manager: ManagerFactory) -> None:
    manager = make_manager()
    people = People(manager)
    assert manager.rotate_keys("tenant", tenant="acme").changed == 2
    found = rows(
        manager,
        "SELECT name, version, key_floor FROM tenancy_tenants JOIN tenancy_tenant_keys USING (tenant_id) ORDER BY name",
    )
    assert found == [("acme", 2, 2), ("globex", 1, 0)]
    people.require_all(make_manager())


def test_a_session_writes_under_its_new_key_from_the_next_write_on(make_manager: ManagerFactory) -> None:
    manager, other = make_manager(), make_manager()
    people = People(manager)
    other.rotate_keys("session", tenant="acme")
    people.write()
    found = rows(
        manager,
        "SELECT name, key_version, count(*) FROM tenancy_results JOIN tenancy_tenants USING (tenant_id)"
        " GROUP BY name, key_version ORDER BY name, key_version",
    )
    assert found == [("acme", 1, 4), ("acme", 2, 4), ("globex", 1, 8)]
    people.require_all(other)
