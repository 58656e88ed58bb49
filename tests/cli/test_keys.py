"""`tenancy keys`: list, rotate, rewrap, move, disable, enable, destroy."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenancy import KeyUnavailable, SessionManager, Settings
from tests.cli.conftest import Run

WHO = {"tenant": "acme", "user": "anna", "session": "chat"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two tenants, three sessions and a result in each."""
    folder = tmp_path / "data"
    with SessionManager.local(folder) as manager:
        for tenant, session in (("acme", "chat"), ("acme", "mail"), ("globex", "chat")):
            with manager.session(tenant=tenant, user="anna", session=session) as opened:
                opened.write(f"{tenant} {session}")
    return folder


def keys_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "keys.json").read_text())["keys"]
    return found


def readable(folder: Path) -> int:
    """How many results there are, all of which open."""
    with SessionManager.local(folder) as manager:
        return sum(
            bool(session.read(result.reference))
            for info in list(manager.sessions())
            for session in [manager.session(tenant=info.tenant, user=info.user, session=info.session)]
            for result in session.results()
        )


def add_primary(folder: Path) -> None:
    """As an operator may who edits the file by hand."""
    old = keys_of(folder)
    new = {**old[0], "id": "by-hand", "state": "primary", "key": "A" * 43 + "="}
    path = folder / "keys.json"
    path.write_text(json.dumps({"version": 1, "keys": [{**key, "state": "enabled"} for key in old] + [new]}))


def test_the_list_says_who_hangs_on_which_key(run: Run, data: Path) -> None:
    listed = run("keys", "list", "--data", data, "--output", "json").json
    ((key,), (held,)) = (keys_of(data), listed["keys"])
    assert held == {
        "provider": "file",
        "key_id": key["id"],
        "state": "primary",
        "created_at": held["created_at"],
        "tenants": 2,
    }
    assert held["created_at"][:19] == key["created_at"][:19]
    assert (listed["tenant_keys"], listed["session_keys"]) == (2, 3)
    assert listed["due"] == {"root": 0, "tenant": 0, "session": 0}
    table = run("keys", "list", "--data", data).out
    assert key["id"] in table
    assert key["key"] not in table + json.dumps(listed)


def test_a_new_primary_key_is_made_and_all_tenants_go_under_it(run: Run, data: Path) -> None:
    (old,) = keys_of(data)
    ran = run("keys", "rotate", "root", "--data", data, "--output", "json")
    assert ran.code == 0
    first, second = keys_of(data)
    assert first == {**old, "state": "enabled"}
    assert ran.json == {
        "new_key_id": second["id"],
        "level": "root",
        "changed": 2,
        "resumed": False,
        "failed": 0,
        "left": 0,
        "complete": True,
    }
    listed = run("keys", "list", "--data", data, "--output", "json").json["keys"]
    assert {key["key_id"]: (key["state"], key["tenants"]) for key in listed} == {
        first["id"]: ("enabled", 0),
        second["id"]: ("primary", 2),
    }
    assert readable(data) == 3


def test_no_other_key_is_made_while_something_has_still_to_go_under_the_last_one(run: Run, data: Path) -> None:
    add_primary(data)
    ran = run("keys", "rotate", "root", "--data", data, "--output", "json")
    assert (ran.code, ran.json["new_key_id"], ran.json["changed"]) == (0, None, 2)
    assert len(keys_of(data)) == 2
    assert "no new key was made" in ran.err
    assert run("keys", "rotate", "root", "--data", data, "--output", "json").json["new_key_id"] is not None
    assert readable(data) == 3


@pytest.mark.parametrize(
    ("level", "tenant", "changed"), [("tenant", None, 3), ("tenant", "acme", 2), ("session", "acme", 2)]
)
def test_keys_below_are_rotated_for_all_or_for_one(
    run: Run, data: Path, level: str, tenant: str | None, changed: int
) -> None:
    options = [] if tenant is None else ["--tenant", tenant]
    ran = run("keys", "rotate", level, *options, "--data", data, "--output", "json")
    assert (ran.code, ran.json["changed"], ran.json["complete"]) == (0, changed, True)
    assert len(keys_of(data)) == 1
    assert readable(data) == 3


def test_rewrap_finishes_what_was_begun_and_begins_nothing(run: Run, data: Path) -> None:
    nothing = run("keys", "rewrap", "--data", data, "--output", "json")
    assert (nothing.code, nothing.json["complete"]) == (0, True)
    assert [level["changed"] for level in nothing.json["levels"]] == [0, 0, 0]
    add_primary(data)
    ran = run("keys", "rewrap", "--data", data, "--output", "json").json
    assert [(level["level"], level["changed"]) for level in ran["levels"]] == [
        ("root", 2),
        ("tenant", 0),
        ("session", 0),
    ]
    assert readable(data) == 3


def test_what_a_damaged_key_leaves_undone_is_exit_3(run: Run, data: Path) -> None:
    with closing(sqlite3.connect(data / "catalogue.sqlite3")) as file, file:
        file.execute(
            "UPDATE tenancy_session_keys SET wrapped = zeroblob(100) WHERE session_id ="
            " (SELECT max(session_id) FROM tenancy_sessions)"
        )
    ran = run("keys", "rotate", "tenant", "--data", data, "--output", "json")
    assert (ran.code, ran.json["changed"], ran.json["failed"], ran.json["left"]) == (3, 2, 1, 1)
    assert "tenancy keys rewrap" in ran.err


def test_an_old_key_is_disabled_enabled_and_destroyed(run: Run, data: Path) -> None:
    add_primary(data)
    old = keys_of(data)[0]["id"]
    # While tenants hang on it, to disable it is to take their data away for a while; to destroy it is refused.
    refused = run("keys", "destroy", old, "--yes", "--data", data)
    assert (refused.code, keys_of(data)[0]["state"]) == (1, "enabled")
    assert "rewrap" in refused.err
    assert run("keys", "disable", old, "--yes", "--data", data, "--output", "json").json == {
        "key_id": old,
        "state": "disabled",
        "tenants": 2,
        "dry_run": False,
    }
    with pytest.raises(KeyUnavailable):
        readable(data)
    assert run("doctor", "--data", data, "--output", "json").json["checks"] != []
    assert run("keys", "enable", old, "--data", data).code == 0
    assert readable(data) == 3
    assert run("keys", "rewrap", "--data", data).code == 0
    assert run("keys", "destroy", old, "--yes", "--data", data).code == 0
    assert (keys_of(data)[0]["state"], keys_of(data)[0]["key"]) == ("destroyed", None)
    assert readable(data) == 3


@pytest.mark.parametrize("what", ["disable", "destroy"])
def test_the_primary_key_and_keys_that_are_not_there_are_refused(run: Run, data: Path, what: str) -> None:
    before = (data / "keys.json").read_bytes()
    (primary,) = keys_of(data)
    assert run("keys", what, primary["id"], "--yes", "--data", data).code != 0
    assert run("keys", what, "nobody", "--yes", "--data", data).code == 4
    # Nobody was asked.
    assert run("keys", what, primary["id"], "--data", data).code == 2
    assert (data / "keys.json").read_bytes() == before


def test_a_dry_run_changes_nothing(run: Run, data: Path) -> None:
    add_primary(data)
    before = {path: path.read_bytes() for path in (data / "keys.json", data / "catalogue.sqlite3")}
    for level, due in (("root", 2), ("tenant", 0), ("session", 0)):
        ran = run("keys", "rotate", level, "--dry-run", "--data", data, "--output", "json")
        assert (ran.code, ran.json["dry_run"], ran.json["due"]) == (0, True, {level: due})
    assert run("keys", "rewrap", "--dry-run", "--data", data).code == 0
    old = keys_of(data)[0]["id"]
    assert run("keys", "disable", old, "--dry-run", "--data", data).code == 0
    assert {path: path.read_bytes() for path in before} == before


def test_what_is_misspelt_or_belongs_to_nobody_is_refused(run: Run, data: Path) -> None:
    wrong = run("keys", "rotate", "roots", "--data", data)
    assert (wrong.code, "root, tenant, session" in wrong.err) == (2, True)
    for level in ("root", "tenant", "session"):
        assert run("keys", "rotate", level, "--tenant", "nobody", "--data", data).code == 4
    assert run("keys", "rewrap", "--tenant", "nobody", "--data", data).code == 4


def test_keys_that_are_kept_elsewhere_are_changed_there(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", (data / "keys.json").read_text())
    for name, value in {
        "DATABASE_URL": f"sqlite:///{data / 'other.sqlite3'}",
        "STORE_URL": "database:",
        "KEYS": "env:THE_KEY",
    }.items():
        monkeypatch.setenv(f"HAYSTACK_TENANCY_{name}", value)
    assert run("init").code == 0
    (key,) = run("keys", "list", "--output", "json").json["keys"]
    assert (key["provider"], key["state"]) == ("env", "primary")
    for what in ("disable", "enable", "destroy"):
        ran = run("keys", what, key["key_id"], *(["--yes"] if what != "enable" else []))
        assert (ran.code, "not in a key file" in ran.err) == (2, True)
    nothing = run("keys", "rotate", "root")
    assert (nothing.code, "nothing was changed" in nothing.err) == (1, True)


def doctor(run: Run, data: Path) -> dict[str, Any]:
    checks = run("doctor", "--data", data, "--output", "json").json["checks"]
    (found,) = (check for check in checks if check["name"] == "keys")
    return dict(found)


def test_the_doctor_says_how_old_the_key_is_and_what_hangs_on_an_old_one(run: Run, data: Path) -> None:
    assert (doctor(run, data)["status"], doctor(run, data)["detail"]) == (
        "ok",
        "The primary key is 0 days old, and nothing hangs on an older one.",
    )
    add_primary(data)
    found = doctor(run, data)
    assert (found["status"], found["detail"]) == ("warn", "Keys that wait for a rotation that was begun: 2.")
    assert "tenancy keys rewrap" in found["advice"]
    assert run("keys", "rotate", "root", "--tenant", "acme", "--data", data).code == 0
    document = json.loads((data / "keys.json").read_text())
    document["keys"][0]["state"] = "disabled"
    (data / "keys.json").write_text(json.dumps(document))
    assert (
        doctor(run, data)["detail"]
        == "Tenants whose key is under one that is disabled, destroyed or not configured: 1."
    )
    document["keys"][0]["state"] = "enabled"
    document["keys"][1]["created_at"] = "2020-01-31T12:00:00Z"
    (data / "keys.json").write_text(json.dumps(document))
    assert run("keys", "rewrap", "--data", data).code == 0
    found = doctor(run, data)
    assert (found["status"], "tenancy keys rotate root" in found["advice"]) == ("warn", True)


def test_a_key_that_came_into_use_after_the_question_is_not_destroyed(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("keys", "rotate", "root", "--data", data).code == 0
    old, new = keys_of(data)

    def use_meanwhile(*_: object, **__: object) -> None:
        # As a process does that took its key before the rotation and commits only now.
        with closing(sqlite3.connect(data / "catalogue.sqlite3")) as file, file:
            file.execute("UPDATE tenancy_tenant_keys SET key_id = ?", (old["id"],))

    monkeypatch.setattr("tenancy.cli.key_files.ask", use_meanwhile)
    refused = run("keys", "destroy", old["id"], "--yes", "--data", data)
    assert (refused.code, "2 tenants" in refused.err) == (1, True)
    assert keys_of(data) == [old, new]


def test_a_key_that_does_not_open_keeps_no_new_one_from_being_made(run: Run, data: Path) -> None:
    with closing(sqlite3.connect(data / "catalogue.sqlite3")) as file, file:
        file.execute(
            "UPDATE tenancy_tenant_keys SET wrapped = zeroblob(100) WHERE tenant_id ="
            " (SELECT tenant_id FROM tenancy_tenants WHERE name = 'globex')"
        )
    for keys in (2, 3):
        ran = run("keys", "rotate", "root", "--data", data, "--output", "json")
        assert (ran.code, ran.json["changed"], ran.json["failed"], ran.json["left"]) == (3, 1, 1, 1)
        assert len(keys_of(data)) == keys
    for level in ("session", "session", "tenant", "tenant"):
        ran = run("keys", "rotate", level, "--data", data, "--output", "json")
        assert (ran.code, ran.json["failed"], ran.json["resumed"]) == (3, 1, False)
    # Two sessions, each with three keys by now.
    assert ran.json["changed"] == 6


def test_the_primary_key_is_known_to_the_catalogue_before_the_one_before_it_is_ended(run: Run, data: Path) -> None:
    folder = data.parent / "empty"
    SessionManager.local(folder).close()
    (old,) = keys_of(folder)
    add_primary(folder)
    with SessionManager.local(folder) as manager:
        manager.session(tenant="new", user="anna").write("under the new key, of which the catalogue does not know")
    assert run("keys", "destroy", old["id"], "--yes", "--data", folder).code == 0
    assert readable(folder) == 1


@pytest.fixture
def config(data: Path, tmp_path: Path) -> Path:
    """The settings of the same installation, with a key of acme's own, which `init` makes."""
    path = tmp_path / "tenancy.toml"
    path.write_text(
        f'database_url = "sqlite:///{data}/catalogue.sqlite3"\nstore_url = "file://{data}/results"\n'
        f'keys = "file:{data}/keys.json"\n[other_keys]\nacme = "file:{tmp_path}/acme.json"\n'
    )
    return path


def test_a_tenant_is_moved_to_a_key_of_its_own_which_is_rotated_and_ended_by_its_name(
    run: Run, data: Path, config: Path, tmp_path: Path
) -> None:
    ran = run("init", "--config", config, "--output", "json")
    assert (ran.code, ran.json["created"]) == (0, ["key file acme"])
    (own,) = json.loads((tmp_path / "acme.json").read_text())["keys"]
    ran = run("keys", "move", "--tenant", "acme", "--to", "acme", "--config", config, "--output", "json")
    assert (ran.code, ran.json["changed"], ran.json["complete"]) == (0, 1, True)
    ran = run("keys", "rotate", "root", "--provider", "acme", "--config", config, "--output", "json")
    assert (ran.code, ran.json["changed"], len(keys_of(data))) == (0, 1, 1)
    listed = run("keys", "list", "--config", config, "--output", "json").json["keys"]
    assert {(key["provider"], key["key_id"]): (key["state"], key["tenants"]) for key in listed} == {
        ("file", keys_of(data)[0]["id"]): ("primary", 1),
        ("acme", own["id"]): ("enabled", 0),
        ("acme", ran.json["new_key_id"]): ("primary", 1),
    }
    for what, options in (("disable", ["--yes"]), ("enable", []), ("destroy", ["--yes"])):
        # Without the name it is looked for in the other file.
        assert run("keys", what, own["id"], *options, "--config", config).code == 4
        assert run("keys", what, own["id"], *options, "--provider", "acme", "--config", config).code == 0
    states = [key["state"] for key in json.loads((tmp_path / "acme.json").read_text())["keys"]]
    assert states == ["destroyed", "primary"]
    assert run("doctor", "--config", config, "--output", "json").json["ok"]
    with SessionManager.from_settings(Settings.load(config)) as manager:
        session = manager.session(**WHO)
        assert [session.read(result.reference) for result in session.results()] == ["acme chat"]
    assert run("keys", "move", "--from", "acme", "--to", "file", "--config", config).code == 0
    assert readable(data) == 3


def test_what_is_to_be_moved_and_where_to_has_to_be_said_and_to_be_there(
    run: Run, data: Path, config: Path, tmp_path: Path
) -> None:
    assert run("init", "--config", config).code == 0
    before = (data / "catalogue.sqlite3").read_bytes()
    for wrong in (
        ["move", "--to", "acme"],
        ["move", "--tenant", "acme"],
        ["move", "--to", "acme", "--tenant", "acme", "--from", "file"],
        ["move", "--to", "acne", "--tenant", "acme"],
        ["rotate", "root", "--provider", "acne"],
        ["rotate", "root", "--provider", "acme", "--tenant", "acme"],
        ["rotate", "tenant", "--provider", "acme"],
        ["disable", "x", "--provider", "acne", "--yes"],
    ):
        assert run("keys", *wrong, "--config", config).code == 2, wrong
    assert run("keys", "move", "--to", "acme", "--tenant", "nobody", "--config", config).code == 4
    assert (data / "catalogue.sqlite3").read_bytes() == before
    assert len(json.loads((tmp_path / "acme.json").read_text())["keys"]) == 1


def test_a_lost_key_of_a_tenants_own_is_not_replaced_by_a_new_one(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("init", "--config", config).code == 0
    assert run("keys", "move", "--tenant", "acme", "--to", "acme", "--config", config).code == 0
    (tmp_path / "acme.json").unlink()
    refused = run("init", "--config", config)
    assert (refused.code, "Restore it" in refused.err, (tmp_path / "acme.json").exists()) == (2, True, False)
    found = run("doctor", "--config", config, "--output", "json").json["checks"]
    assert {check["name"]: check["status"] for check in found}["key"] == "fail"


def test_the_doctor_names_a_key_of_a_tenants_own_that_does_not_open(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("init", "--config", config).code == 0
    assert run("keys", "move", "--tenant", "acme", "--to", "acme", "--config", config).code == 0
    document = json.loads((tmp_path / "acme.json").read_text())
    (tmp_path / "acme.json").write_text(json.dumps(document).replace(document["keys"][0]["key"], "A" * 43 + "="))
    ran = run("doctor", "--config", config, "--output", "json")
    (found,) = (check for check in ran.json["checks"] if check["name"] == "other keys")
    assert (found["status"], found["detail"].startswith("acme: ")) == ("warn", True)


def test_a_key_that_somebody_hangs_on_is_not_destroyed_under_another_name(
    run: Run, data: Path, config: Path, tmp_path: Path
) -> None:
    text = config.read_text()
    # One file under two names, and a name that was changed.
    config.write_text(text.replace(f"{tmp_path}/acme.json", f"{data}/keys.json"))
    add_primary(data)
    old = keys_of(data)[0]["id"]
    for options in ([], ["--provider", "acme"]):
        refused = run("keys", "destroy", old, "--yes", *options, "--config", config)
        assert (refused.code, "2 tenants" in refused.err) == (1, True)
    config.write_text(text)
    assert run("init", "--config", config).code == 0
    assert run("keys", "rewrap", "--config", config).code == 0
    assert run("keys", "move", "--tenant", "acme", "--to", "acme", "--config", config).code == 0
    config.write_text(text.replace("acme =", "renamed ="))
    (own,) = json.loads((tmp_path / "acme.json").read_text())["keys"]
    assert run("keys", "rotate", "root", "--provider", "renamed", "--config", config).code == 3
    refused = run("keys", "destroy", own["id"], "--yes", "--provider", "renamed", "--config", config)
    assert (refused.code, "tenancy keys move" in " ".join(refused.err.split())) == (1, True)
    config.write_text(text + f'renamed = "file:{tmp_path}/acme.json"\n')
    assert run("keys", "move", "--from", "acme", "--to", "renamed", "--config", config).code == 0
    config.write_text(text.replace("acme =", "renamed ="))
    assert run("keys", "rewrap", "--config", config).code == 0
    assert run("keys", "destroy", own["id"], "--yes", "--provider", "renamed", "--config", config).code == 0


def test_names_that_collide_are_refused_before_anything_is_made(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'database_url = "sqlite:///{tmp_path}/catalogue.sqlite3"\nstore_url = "database:"\n'
        f'keys = "file:{tmp_path}/keys.json"\n[other_keys]\nfile = "file:{tmp_path}/own.json"\n'
    )
    refused = run("init", "--config", config)
    assert (refused.code, "other_keys.file" in refused.err) == (2, True)
    assert list(tmp_path.iterdir()) == [config]
    config.write_text(
        config.read_text().replace("file = ", "own = ").replace(f"file:{tmp_path}/own.json", "aws-kms:alias/x")
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        refused = run("init", "--config", config)
    assert (refused.code, "setting other_keys.own" in refused.err) == (2, True)


def test_a_move_that_is_not_done_says_what_to_run_again(run: Run, data: Path, config: Path, tmp_path: Path) -> None:
    assert run("init", "--config", config).code == 0
    with closing(sqlite3.connect(data / "catalogue.sqlite3")) as file, file:
        file.execute("UPDATE tenancy_tenant_keys SET wrapped = zeroblob(100)")
    ran = run("keys", "move", "--from", "file", "--to", "acme", "--config", config)
    assert (ran.code, "run this command" in ran.err) == (3, True)
    # A key file is called so in the list, and may be here.
    assert run("keys", "rotate", "root", "--provider", "file", "--config", config).code == 3
