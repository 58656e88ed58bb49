"""Rotation: keys go under new keys, results stay as they are, and everybody reads on."""

import base64
import json
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from stores.sql import Statement
from tenancy import (
    ConfigurationError,
    KeyDestroyed,
    KeyUnavailable,
    ResultCorrupt,
    ScopeError,
    SessionManager,
    SessionNotFound,
)
from tenancy.catalogue.rotation import RotationTable, WrappedSessionKey
from tenancy.catalogue.sessions import Ids, SessionTable
from tenancy.keys.keyset_editing import destroy_key, disable_key, enable_key
from tests.conftest import ManagerFactory
from tests.postgres import as_admin

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

    with manager._backend.across.database.reading() as transaction:
        return transaction.all(Statement(sa.text(text)))


def files(make_manager: ManagerFactory) -> dict[Path, tuple[bytes, int]]:
    found = [path for path in make_manager.results.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


@pytest.mark.case(131)
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


def test_sessions_and_tenants_that_come_after_need_no_rotation(make_manager: ManagerFactory) -> None:
    manager = make_manager()
    People(manager)
    for level in ("tenant", "session"):
        assert manager.rotate_keys(level).left == 0
    for tenant in ("acme", "new"):
        handle = manager.session(tenant=tenant, user="bert")
        assert handle.read(handle.write("text")) == "text"
    assert [manager.rewrap_keys(level).changed for level in LEVELS] == [0, 0, 0]
    assert manager.key_report().due == {"root": 0, "tenant": 0, "session": 0}


@pytest.mark.parametrize("level", ["tenant", "session"])
def test_a_tenant_that_does_not_exist_and_a_level_that_is_none_are_refused(
    make_manager: ManagerFactory, level: str
) -> None:
    manager = make_manager()
    with pytest.raises(SessionNotFound):
        manager.rotate_keys(level, tenant="nobody")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        manager.rotate_keys("keys", tenant="nobody")  # type: ignore[arg-type]


class Dies(BaseException):
    """The process is gone at this moment."""


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have the rotation die before its so-manyth transaction."""

    def arm(number: int) -> None:
        count = iter(range(number))
        for name in ("mark", "add_tenant_key", "rewrap_session_keys", "retire", "add_session_keys"):
            real = getattr(RotationTable, name)

            def step(self: RotationTable, *arguments: Any, _real: Any = real, **named: Any) -> Any:
                if next(count, None) is None:
                    raise Dies
                return _real(self, *arguments, **named)

            monkeypatch.setattr(RotationTable, name, step)

    return arm


@pytest.mark.case(131)
@pytest.mark.parametrize("level", ["tenant", "session"])
@pytest.mark.parametrize("number", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 3, 4, 5, 6))])
def test_whoever_comes_next_carries_on_a_rotation_that_died_before_any_step(
    make_manager: ManagerFactory,
    monkeypatch: pytest.MonkeyPatch,
    die_at: Callable[[int], None],
    level: Any,
    number: int,
) -> None:
    monkeypatch.setattr("tenancy.catalogue.rotation._PAGE", 1)
    people = People(make_manager())
    with monkeypatch.context():
        die_at(number)
        try:
            make_manager().rotate_keys(level)
        except Dies:
            died = True
        else:
            died = False
    # Two tenants with two sessions each: a mark, and for each tenant four or two steps more.
    assert died == (number < {"tenant": 9, "session": 5}[level])
    monkeypatch.undo()
    people.require_all(make_manager())
    people.write()
    again = make_manager().rotate_keys(level)
    assert (again.resumed, again.left) == (died, 0)
    people.require_all(make_manager())
    versions = rows(make_manager(), "SELECT DISTINCT max(version) FROM tenancy_tenant_keys GROUP BY tenant_id")
    assert versions == [(3 if level == "tenant" and not died else 2,)] if level == "tenant" else [(1,)]
    assert make_manager().key_report().due == {"root": 0, "tenant": 0, "session": 0}


def test_what_an_erasure_ends_meanwhile_gets_no_key(
    make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, other = make_manager(), make_manager()
    People(manager)
    for name in ("add_session_keys", "rewrap_session_keys"):
        real = getattr(RotationTable, name)

        def erase_first(self: RotationTable, tenant_id: str, keys: Any, _real: Any = real) -> int:
            other.erase_user(tenant="acme", user="anna")
            return int(_real(self, tenant_id, keys))

        monkeypatch.setattr(RotationTable, name, erase_first)
    # The one for whom there was nothing to be done is not counted.
    assert manager.rotate_keys("session", tenant="acme").changed == 0
    assert manager.rotate_keys("tenant", tenant="acme").left == 0
    assert rows(manager, "SELECT count(*) FROM tenancy_session_keys") == [(2,)]
    assert manager.verify().ok


def test_a_session_that_is_created_under_a_key_that_is_just_retired_is_created_again(
    make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, other = make_manager(), make_manager()
    people = People(manager)
    real = SessionTable.create
    asked = []

    def rotate_first(self: SessionTable, *arguments: Any, **named: Any) -> None:
        if not asked:
            other.rotate_keys("tenant", tenant="acme")
        asked.append(named["owners"].tenant_key.version)
        real(self, *arguments, **named)

    monkeypatch.setattr(SessionTable, "create", rotate_first)
    handle = manager.session(tenant="acme", user="anna", session="late")
    assert asked == [1, 2]
    assert handle.read(handle.write("text")) == "text"
    people.require_all(make_manager())


@pytest.mark.case(40)
@pytest.mark.parametrize("where", ["open", "read"])
def test_keys_from_before_a_rotation_that_are_put_back_are_refused(
    make_manager: ManagerFactory, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager()
    handle = manager.session(tenant="acme", user="anna")
    reference = handle.write("text")
    columns = "tenant_id, version, provider, key_id, wrapped, created_at_us"
    ((tenant_key,), (session_key,)) = behind(
        make_manager,
        (f"SELECT {columns} FROM tenancy_tenant_keys", ()),
        ("SELECT tenant_key_version, wrapped FROM tenancy_session_keys", ()),
    )
    manager.rotate_keys("tenant", tenant="acme")
    behind(
        make_manager,
        (f"INSERT INTO tenancy_tenant_keys ({columns}) VALUES (?, ?, ?, ?, ?, ?)", tenant_key),
        ("UPDATE tenancy_session_keys SET tenant_key_version = ?, wrapped = ?", session_key),
    )
    # Somebody who remembers nothing, and somebody who remembers the old key.
    for asked in (make_manager(), manager):
        if where == "open":
            fresh = asked.session(tenant="acme", user="anna")
            with pytest.raises(ResultCorrupt):
                fresh.write("more")
        elif asked is not manager:
            fresh = asked.session(tenant="acme", user="anna")
            with pytest.raises(ResultCorrupt):
                fresh.read(reference)
        else:
            with pytest.raises(ResultCorrupt):
                handle.read(reference)


def behind(make_manager: ManagerFactory, *texts: tuple[str, tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Look into the database and change it behind the library's back, as somebody may who has an old copy of it."""
    url = make_manager.database_url
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            return [file.execute(text, values).fetchall() for text, values in texts]
    with psycopg.connect(as_admin(url).replace("+psycopg", "")) as server:
        asked = [server.execute(text.replace("?", "%s"), values) for text, values in texts]
        return [each.fetchall() if each.description else [] for each in asked]


def test_a_key_that_does_not_open_is_left_as_it_is_and_counted(
    make_manager: ManagerFactory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.rotation.rotator._PAUSE_SECONDS", 0)
    manager = make_manager()
    people = People(manager)
    (row,) = rows(
        manager,
        "SELECT session_id FROM tenancy_sessions s JOIN tenancy_tenants t USING (tenant_id)"
        " WHERE t.name = 'acme' AND s.name = 'chat'",
    )
    behind(make_manager, ("UPDATE tenancy_session_keys SET wrapped = ? WHERE session_id = ?", (b"x" * 100, row[0])))
    report = make_manager().rotate_keys("tenant")
    assert (report.changed, report.failed, report.left, report.complete) == (3, 1, 1, False)
    assert [record.event for record in caplog.records if hasattr(record, "event")] == ["not_rotated"]
    # What is whole reads on, and the old key is still there for whoever mends the other one.
    del people.written["acme", "chat"]
    people.require_all(make_manager())
    versions = (
        "SELECT version FROM tenancy_tenant_keys k JOIN tenancy_tenants t USING (tenant_id) WHERE t.name = 'acme'"
    )
    assert sorted(rows(manager, versions)) == [(1,), (2,)]
    assert make_manager().rewrap_keys("tenant").failed == 1


@pytest.mark.parametrize("level", ["tenant", "session"])
def test_several_at_once_share_the_work_and_make_one_key_each(make_manager: ManagerFactory, level: Any) -> None:
    people = People(make_manager())
    managers = [make_manager() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda manager: manager.rotate_keys(level), managers))
    # Whoever comes when all is done begins another one. No rotation is done twice, none by halves.
    table = {"tenant": "tenancy_tenant_keys", "session": "tenancy_session_keys"}[level]
    versions = {row[0] for row in rows(managers[0], f"SELECT max(version) FROM {table} GROUP BY tenant_id")}
    assert versions == {1 + sum(report.changed for report in reports) // 4}
    assert {report.left for report in reports} == {0}
    people.require_all(make_manager())
    assert make_manager().key_report().due[level] == 0


@pytest.mark.case(128, 131)
def test_a_key_that_is_missing_is_listed_as_that_and_only_what_hangs_on_it_is_away(
    make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.rotation.rotator._PAUSE_SECONDS", 0)
    manager = make_manager()
    people = People(manager)
    add_primary(make_manager.key_file)
    assert manager.rotate_keys("root", tenant="acme").changed == 1
    document = json.loads(make_manager.key_file.read_text())
    old, new = document["keys"]
    make_manager.key_file.write_text(json.dumps({**document, "keys": [new]}))
    states = {key.key_id: (key.state, key.tenants) for key in manager.key_report().root_keys}
    assert states == {old["id"]: ("missing", 1), new["id"]: ("primary", 1)}
    assert len(list(manager.sessions())) == 4
    for (tenant, name), written in people.written.items():
        for reference, text in written.items():
            if tenant == "acme":
                assert people.handles[tenant, name].read(reference) == text
            else:
                with pytest.raises(KeyUnavailable):
                    people.handles[tenant, name].read(reference)
    # Nothing that cannot be opened is removed or counted as done.
    report = manager.rotate_keys("root")
    assert (report.changed, report.failed, report.left) == (0, 1, 1)
    assert manager.cleanup().complete
    make_manager.key_file.write_text(json.dumps(document))
    assert manager.rewrap_keys("root").changed == 1
    people.require_all(make_manager())


def test_without_the_role_that_works_across_tenants_only_one_tenants_keys_are_rotated(
    make_manager: ManagerFactory, database_kind: str
) -> None:
    people = People(make_manager())
    manager = make_manager(maintenance_url=None)
    for level in LEVELS:
        if database_kind == "postgresql":
            with pytest.raises(ConfigurationError, match="maintenance_url"):
                manager.rotate_keys(level)  # type: ignore[arg-type]
        assert manager.rotate_keys(level, tenant="acme").left == 0  # type: ignore[arg-type]
    people.require_all(manager)


@pytest.mark.parametrize("level", ["tenant", "session"])
def test_keys_from_a_clock_that_was_ahead_are_rotated_all_the_same(make_manager: ManagerFactory, level: Any) -> None:
    ahead = make_manager()
    ahead.clock.advance(timedelta(hours=2))
    people = People(ahead)
    manager = make_manager()
    assert [manager.rotate_keys(level).changed for _ in range(2)] == [4, 4]
    people.require_all(make_manager())


def test_a_tenants_key_that_was_committed_under_a_destroyed_one_is_replaced(make_manager: ManagerFactory) -> None:
    manager = make_manager()
    people = People(manager)
    add_primary(make_manager.key_file)
    assert manager.rotate_keys("root").left == 0
    old = json.loads(make_manager.key_file.read_text())["keys"][0]["id"]
    destroy_key(make_manager.key_file, old)
    # A rotation that took the old key and commits only now.
    columns = "tenant_id, version, provider, key_id, wrapped, created_at_us"
    behind(
        make_manager,
        ("UPDATE tenancy_tenants SET tenant_key_from_us = 1", ()),
        (
            f"INSERT INTO tenancy_tenant_keys ({columns}) SELECT tenant_id, 2, provider, ?, wrapped, created_at_us + 1"
            " FROM tenancy_tenant_keys",
            (old,),
        ),
    )
    with pytest.raises(KeyDestroyed):
        manager.session(tenant="acme", user="anna", session="new")
    assert manager.rotate_keys("tenant").left == 0
    people.require_all(make_manager())
    manager.session(tenant="acme", user="anna", session="new").write("text")
    versions = rows(manager, "SELECT DISTINCT version FROM tenancy_tenant_keys")
    assert versions == [(3,)]


def test_a_disabled_key_keeps_only_what_hangs_on_it_from_being_rotated(
    make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.rotation.rotator._PAUSE_SECONDS", 0)
    manager = make_manager()
    people = People(manager)
    add_primary(make_manager.key_file)
    assert manager.rotate_keys("root", tenant="acme").changed == 1
    old = json.loads(make_manager.key_file.read_text())["keys"][0]["id"]
    disable_key(make_manager.key_file, old)
    for level, failed in (("root", 1), ("session", 2), ("tenant", 2)):
        report = manager.rotate_keys(level)  # type: ignore[arg-type]
        assert (report.failed, report.left) == (failed, failed)
    enable_key(make_manager.key_file, old)
    for level in LEVELS:
        assert manager.rewrap_keys(level).left == 0  # type: ignore[arg-type]
    people.require_all(make_manager())


def test_a_session_of_another_tenants_gets_no_key_of_this_one(make_manager: ManagerFactory) -> None:
    manager = make_manager()
    people = People(manager)
    table = manager._backend.catalogue.rotation
    acme = table.tenant_id("acme")
    assert acme is not None
    keys = table.tenant_keys(acme)
    assert keys is not None
    theirs = people.handles["globex", "chat"]._opened.ids
    asked = Ids(acme, theirs.user_id, theirs.session_id)
    key = manager._backend.keyring.new_session_key(
        keys.newest, tenant_id=acme, user_id=theirs.user_id, session_id=theirs.session_id, version=2
    )
    assert table.add_session_keys(acme, [WrappedSessionKey(asked, key)]) == 0
    assert rows(manager, "SELECT DISTINCT version FROM tenancy_session_keys") == [(1,)]
    people.require_all(make_manager())


@pytest.mark.parametrize("tenant", ["", "a" * 256, "a\nb", "\ud800"])
def test_what_is_no_name_of_a_tenants_is_refused_as_that(make_manager: ManagerFactory, tenant: str) -> None:
    manager = make_manager()
    for call in (
        lambda: manager.rotate_keys("root", tenant=tenant),
        lambda: manager.rewrap_keys("tenant", tenant=tenant),
        lambda: manager.move_keys(tenant=tenant, to="file"),
    ):
        with pytest.raises(ScopeError):
            call()
