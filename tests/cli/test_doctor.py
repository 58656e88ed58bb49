"""`tenancy doctor` sees what is wrong, says what to do, and changes nothing."""

import base64
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenancy.cli import checks
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
        "keys",
        "cleanup",
        "tracing",
        "disk",
        "sqlite",
    }
    assert all(found[name]["status"] == "ok" for name in found if name not in ("disk", "sqlite", "tracing"))
    table = run("doctor", "--data", made)
    assert (table.code, table.err) == (0, "")
    assert "what to do" in table.out


@pytest.mark.parametrize("there", [False, True])
def test_where_nothing_is_init_is_advised_and_nothing_made(there: bool, run: Run, data: Path) -> None:
    if there:
        data.mkdir(mode=0o700)
    code, found = _examine(run, data)
    assert code == 1
    failed = {name: found[name]["advice"] for name in found if found[name]["status"] == "fail"}
    assert failed == dict.fromkeys(("key", "database", "store"), "Run `tenancy init`.")
    assert data.exists() == there
    assert not there or list(data.iterdir()) == []


def test_settings_for_a_new_place_get_the_same_advice(run: Run, empty_database_url: str, tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'database_url = "{empty_database_url}"\nstore_url = "file://{tmp_path}/results"\n'
        f'keys = "file:{tmp_path}/keys.json"\n'
    )
    found = {each["name"]: each for each in run("doctor", "--config", config, "--output", "json").json["checks"]}
    assert {found[name]["advice"] for name in ("key", "database", "store")} == {"Run `tenancy init`."}


def test_a_key_that_should_be_in_the_environment_is_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'database_url = "sqlite:///{tmp_path}/catalogue.sqlite3"\nstore_url = "database:"\nkeys = "env:A_KEY"\n'
    )
    monkeypatch.delenv("A_KEY", raising=False)
    found = {each["name"]: each for each in run("doctor", "--config", config, "--output", "json").json["checks"]}
    assert "A_KEY" in found["key"]["detail"]
    assert "`openssl rand -base64 32`" in found["key"]["advice"]
    refused = run("init", "--config", config)
    assert (refused.code, refused.out) == (2, "")
    assert "A_KEY should hold the key and is not set; make one for a new installation with `openssl" in refused.err
    assert list(tmp_path.iterdir()) == [config]

    # What that command prints does.
    monkeypatch.setenv("A_KEY", base64.b64encode(os.urandom(32)).decode() + "\n")
    assert run("init", "--config", config).code == 0
    assert run("doctor", "--config", config, "--output", "json").json["ok"] is True


def test_a_place_without_a_key_says_so_makes_nothing_and_cleans_up(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"

    def with_keys(keys: str) -> None:
        config.write_text(
            f'database_url = "sqlite:///{tmp_path}/catalogue.sqlite3"\nstore_url = "database:"\nkeys = "{keys}"\n'
        )

    with_keys("none:")
    refused = run("init", "--config", config)
    assert (refused.code, refused.out) == (2, "")
    assert "The setting keys is none:, and a new installation needs a key." in refused.err
    assert list(tmp_path.iterdir()) == [config]
    with_keys(f"file:{tmp_path}/keys.json")
    assert run("init", "--config", config).code == 0
    with_keys("none:")
    assert run("init", "--config", config).code == 0
    assert run("cleanup", "--config", config).code == 0
    found = run("doctor", "--config", config, "--output", "json").json
    assert found["ok"] is True
    told = {each["name"]: (each["status"], each["detail"]) for each in found["checks"]}
    assert told["key"][0] == "warn"
    assert "Nothing can be read or written" in told["key"][1]
    assert told["catalogue"] == ("ok", "It opens, without a key.")


@pytest.mark.parametrize(
    ("harm", "name", "advice"),
    [
        (lambda data: (data / "keys.json").unlink(), "key", "Restore it from a backup"),
        (lambda data: (data / "keys.json").chmod(0o644), "key", "chmod 600 "),
        (lambda data: (data / "keys.json").write_text("{}"), "key", "Restore it from a backup"),
        (lambda data: (data / "results").chmod(0o750), "store", "chmod 700 "),
        (lambda data: (data / "results").rmdir(), "store", "Run `tenancy init`."),
        (lambda data: (data / "catalogue.sqlite3").write_bytes(b"not a database" * 100), "database", "Restore "),
        (lambda data: (data / "catalogue.sqlite3").unlink(), "database", "Run `tenancy init`."),
        (lambda data: ((data / "results/x").touch(), (data / "catalogue.sqlite3").unlink()), "database", "Restore "),
    ],
)
def test_harm_is_seen_where_it_was_done(harm: Any, name: str, advice: str, run: Run, made: Path) -> None:
    harm(made)
    code, found = _examine(run, made)
    assert code == 1
    assert [each for each in found if found[each]["status"] == "fail"] == [name]
    assert found[name]["advice"].startswith(advice)


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
    assert found["database"]["advice"] == "Upgrade the code."


@pytest.mark.case(126)
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


@pytest.mark.case(142)
@pytest.mark.parametrize(("value", "status"), [("true", "warn"), ("false", "ok")])
def test_content_in_traces_is_a_warning(value: str, status: str, spawn: Run, made: Path) -> None:
    # As a process of its own: Haystack reads the variable when it is imported.
    environment = {"HAYSTACK_CONTENT_TRACING_ENABLED": value}
    ran = spawn("doctor", "--data", made, "--output", "json", environment=environment)
    found = {each["name"]: each for each in ran.json["checks"]}
    assert (ran.code, found["tracing"]["status"]) == (0, status)
    assert ("HAYSTACK_CONTENT_TRACING_ENABLED" in found["tracing"]["advice"]) == (status == "warn")


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


@pytest.mark.parametrize(
    ("free", "inodes", "status"),
    [
        (2**31, (9, 100), "ok"),
        (2**29, (9, 100), "warn"),
        (2**25, (9, 100), "fail"),
        (2**31, (0, 100), "fail"),
        # Some file systems count none.
        (2**31, (0, 0), "ok"),
    ],
)
def test_a_full_disk_is_seen(
    free: int, inodes: tuple[int, int], status: str, run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=free // 512, f_frsize=512, f_favail=inodes[0], f_files=inodes[1])
    monkeypatch.setattr(checks.os, "statvfs", lambda _: disk)
    _, found = _examine(run, made)
    assert found["disk"]["status"] == status


@pytest.mark.parametrize("is_link", [True, False])
def test_something_else_in_place_of_the_reserve_is_named_and_writes_go_on(
    is_link: bool, run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=2**40, f_frsize=512, f_favail=1000, f_files=1000)
    monkeypatch.setattr(checks.os, "statvfs", lambda _: disk)
    taken = made / "catalogue.sqlite3-reserve1"
    taken.unlink(missing_ok=True)
    if is_link:
        taken.symlink_to(made / "keys.json")
    else:
        taken.mkdir()
    with SessionManager.local(made) as manager:
        manager.session(tenant="acme", user="ann").write("kept")
    code, found = _examine(run, made)
    assert (code, found["disk"]["status"]) == (0, "warn")
    assert found["disk"]["advice"] == f"Take away {taken}."
    assert os.path.lexists(taken)
