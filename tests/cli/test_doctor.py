"""`tenancy doctor` sees what is wrong, says what to do, and changes nothing."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenancy.cli import checks
from tenancy.cli.checks import Status
from tenancy.manager import SessionManager
from tenancy.schema import VERSION_TABLE
from tests.cli.conftest import Run


@pytest.fixture
def made(data: Path) -> Path:
    """A data directory that was cleaned up just now."""
    with SessionManager.local(data) as manager:
        manager.cleanup()
    return data


def _examine(run: Run, data: Path) -> tuple[int, dict[str, Any]]:
    ran = run("doctor", "--data", data, "--output", "json")
    assert ran.json["ok"] == (ran.code == 0)
    return ran.code, {each["name"]: each for each in ran.json["checks"]}


def test_a_healthy_installation_passes(run: Run, made: Path) -> None:
    code, found = _examine(run, made)
    assert code == 0
    assert set(found) == {
        "settings",
        "environment",
        "key",
        "database",
        "store",
        "catalogue",
        "cleanup",
        "tracing",
        "disk",
        "sqlite",
    }
    assert all(found[name]["status"] == "ok" for name in found if name not in ("disk", "sqlite", "tracing"))
    table = run("doctor", "--data", made)
    assert (table.code, table.err) == (0, "")
    assert "what to do" in table.out


def test_it_makes_nothing(run: Run, data: Path) -> None:
    code, found = _examine(run, data)
    assert code == 1
    assert {found[name]["status"] for name in ("key", "database", "store")} == {"fail"}
    assert "tenancy init" in found["store"]["advice"]
    assert not data.exists()


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (lambda data: (data / "keys.json").unlink(), "key"),
        (lambda data: (data / "keys.json").chmod(0o644), "key"),
        (lambda data: (data / "keys.json").write_text("{}"), "key"),
        (lambda data: (data / "results").chmod(0o750), "store"),
        (lambda data: (data / "results").rmdir(), "store"),
        (lambda data: (data / "catalogue.sqlite3").write_bytes(b"not a database" * 100), "database"),
        (lambda data: (data / "catalogue.sqlite3").unlink(), "database"),
    ],
)
def test_harm_is_seen_where_it_was_done(harm: Any, name: str, run: Run, made: Path) -> None:
    harm(made)
    code, found = _examine(run, made)
    assert code == 1
    assert [each for each in found if found[each]["status"] == "fail"] == [name]
    assert found[name]["advice"]


def test_the_key_of_another_catalogue_is_seen(run: Run, made: Path, tmp_path: Path) -> None:
    SessionManager.local(tmp_path / "other").close()
    (made / "keys.json").write_bytes((tmp_path / "other" / "keys.json").read_bytes())
    code, found = _examine(run, made)
    assert (code, found["key"]["status"], found["catalogue"]["status"]) == (1, "ok", "fail")


def test_another_schema_is_seen(run: Run, made: Path) -> None:
    with closing(sqlite3.connect(made / "catalogue.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    code, found = _examine(run, made)
    assert (code, found["database"]["status"]) == (1, "fail")
    assert "newer" in found["database"]["detail"]


def test_a_cleanup_that_never_ran_is_a_warning(run: Run, data: Path) -> None:
    SessionManager.local(data).close()
    code, found = _examine(run, data)
    assert (code, found["cleanup"]["status"]) == (0, "warn")


def test_unusable_settings_are_a_finding(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text('store_url = "database:"\n')
    ran = run("doctor", "--config", config, "--output", "json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert "database_url is missing" in ran.json["checks"][0]["detail"]


def test_a_misspelt_variable_is_named(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_DURABILTY", "process")
    code, found = _examine(run, made)
    assert (code, found["environment"]["status"]) == (0, "warn")
    assert "HAYSTACK_TENANCY_DURABILTY" in found["environment"]["detail"]


def test_content_in_traces_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from haystack.tracing.tracer import tracer

    monkeypatch.setattr(tracer, "is_content_tracing_enabled", True)
    assert checks.tracing().status is Status.WARN
    monkeypatch.setattr(tracer, "is_content_tracing_enabled", False)
    assert checks.tracing().status is Status.OK


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ((3, 51, 2), "warn"),
        ((3, 51, 3), "ok"),
        ((3, 53, 0), "ok"),
        ((3, 50, 6), "warn"),
        ((3, 50, 7), "ok"),
        ((3, 44, 6), "ok"),
        ((3, 45, 9), "warn"),
    ],
)
def test_the_wal_reset_bug_is_known(version: tuple[int, int, int], status: str) -> None:
    assert checks.sqlite(version).status == status


@pytest.mark.parametrize(("free", "status"), [(2**31, "ok"), (2**29, "warn"), (2**25, "fail")])
def test_a_full_disk_is_seen(free: int, status: str, run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: os.terminal_size((0, 0)) and _Disk(free))
    _, found = _examine(run, made)
    assert found["disk"]["status"] == status


class _Disk:
    def __init__(self, free: int) -> None:
        self.free = free
