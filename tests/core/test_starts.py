"""Starting from settings: what is missing, wrong, older or newer is one clear sentence, and nothing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stores.sql import Database
from tenancy import ConfigurationError, SchemaOutdated, Session, SessionManager
from tenancy.keys.providers import create_key_file
from tenancy.settings import Settings
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]


def require_sentence(refusal: pytest.ExceptionInfo[Any], *words: str, never: str = "") -> None:
    message = str(refusal.value)
    assert "\n" not in message
    assert len(message) < 300
    assert refusal.value.__cause__ is None
    for word in words:
        assert word in message
    assert not never or never not in message


@pytest.mark.case(140)
def test_an_empty_database_is_refused_with_what_to_run(empty_database_url: str, tmp_path: Path) -> None:
    create_key_file(tmp_path / "keys.json")
    (tmp_path / "results").mkdir(mode=0o700)
    settings = Settings(
        database_url=empty_database_url,
        store_url=f"file://{tmp_path / 'results'}",
        keys=f"file:{tmp_path / 'keys.json'}",
    )
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        with pytest.raises((SchemaOutdated, ConfigurationError)) as refusal:
            SessionManager.from_settings(settings)
        require_sentence(refusal, "tenancy init")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.case(140)
@pytest.mark.parametrize(("revision", "word"), [("0000", "tenancy db upgrade"), ("9999", "Upgrade the code")])
def test_an_older_or_newer_schema_is_refused_with_what_to_do(
    make_manager: ManagerFactory, ledger: Ledger, revision: str, word: str
) -> None:
    head = ledger.one("SELECT version_num FROM tenancy_alembic_version")
    ledger.run("UPDATE tenancy_alembic_version SET version_num = :revision", revision=revision)
    before = ledger.snapshot()
    try:
        with pytest.raises(SchemaOutdated) as refusal:
            make_manager()
        require_sentence(refusal, word)
        assert ledger.snapshot() == before
    finally:
        ledger.run("UPDATE tenancy_alembic_version SET version_num = :revision", revision=head)
    make_manager()


@pytest.mark.case(132)
@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [
        ("database_url", "mysql://canary-host/x", "database"),
        ("database_url", "sqlite://", "database"),
        ("database_url", "canary", "database"),
        ("store_url", "s3://canary-bucket", "store"),
        ("store_url", "file://relative/canary", "store"),
        ("store_url", "canary", "store"),
        ("keys", "file:/nowhere/keys.json", "key"),
        ("keys", "env:TENANCY_TEST_UNSET", "key"),
        ("keys", "vault:canary", "key"),
        ("keys", "", "key"),
    ],
)
def test_a_setting_that_names_nothing_usable_is_refused_and_nothing_is_changed(
    make_manager: ManagerFactory, ledger: Ledger, setting: str, value: str, word: str
) -> None:
    before = ledger.snapshot()
    with pytest.raises(ConfigurationError) as refusal:
        make_manager(**{setting: value})
    message = str(refusal.value)
    assert word in message.lower()
    assert "canary" not in message
    assert ledger.snapshot() == before


@pytest.mark.case(132)
def test_a_key_of_another_catalogue_is_refused_and_nothing_is_changed(
    make_manager: ManagerFactory, tmp_path: Path, ledger: Ledger
) -> None:
    with make_manager(durability="process") as manager:
        manager.session(tenant="acme", user="ann").write("x")
    create_key_file(tmp_path / "other.json")
    before = ledger.snapshot()
    with pytest.raises(ConfigurationError) as refusal:
        make_manager(keys=f"file:{tmp_path / 'other.json'}")
    require_sentence(refusal, "not the one this catalogue was made with")
    assert ledger.snapshot() == before
    assert ledger.count("tenancy_root_keys") == 1


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660])
def test_a_key_file_that_others_can_read_is_refused(make_manager: ManagerFactory, mode: int) -> None:
    make_manager.key_file.chmod(mode)
    with pytest.raises(ConfigurationError) as refusal:
        make_manager()
    require_sentence(refusal, "key file")
    assert make_manager.key_file.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": {"user_bytes": -1}},
        {"limits": {"tenant_results": 1.5}},
        {"inline_bytes": -1},
        {"durability": "forever"},
        {"lifetime": {"idle": -5}},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_by_name(make_manager: ManagerFactory, ledger: Ledger, wrong: dict[str, Any]) -> None:
    before = ledger.snapshot()
    with pytest.raises(ConfigurationError) as refusal:
        make_manager(**wrong)
    assert next(iter(wrong)) in str(refusal.value)
    assert ledger.snapshot() == before


def test_with_the_database_as_store_every_result_is_a_row_there(make_manager: ManagerFactory, ledger: Ledger) -> None:
    manager = make_manager(store_url="database:", durability="process")
    session = manager.session(tenant="acme", user="ann")
    small, large = session.write("small"), session.write(b"x" * 200_000)
    assert ledger.where() == (2, 0)
    assert (session.read(small), session.read(large)) == ("small", b"x" * 200_000)
    session.delete(large)
    assert ledger.where() == (1, 0)
    assert manager.verify().ok
    ledger.require_balanced()
    manager.erase_tenant(tenant="acme")
    ledger.require_empty()


def test_a_refused_start_closes_what_it_had_opened(
    make_manager: ManagerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = Database.close

    def noticed(self: Database) -> None:
        closed.append("database")
        close(self)

    monkeypatch.setattr(Database, "close", noticed)
    with pytest.raises(ConfigurationError):
        make_manager(store_url="file:///nowhere/at/all")
    assert "database" in closed
