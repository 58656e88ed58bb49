"""Each command on a real data directory."""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tenancy.errors import QuotaExceeded
from tenancy.manager import SessionManager
from tenancy.quotas import Lifetime, Limits
from tests.cli.conftest import Run
from tests.postgres import as_maintenance, as_runtime

#: Ended before anybody can look.
EXPIRED = Lifetime(idle=timedelta(microseconds=1))
ACME = ("--tenant", "acme", "--user", "ann")


@pytest.fixture
def filled(data: Path) -> Path:
    """Two tenants; acme's ann has two live sessions, one of them her own room, and one that has expired."""
    with SessionManager.local(data) as manager:
        for tenant, user, session in (
            ("acme", "ann", "chat"),
            ("acme", "ann", None),
            ("acme", "bob", "chat"),
            ("[b]globex[/b]", "ann", "chat"),
        ):
            with manager.session(tenant=tenant, user=user, session=session) as opened:
                opened.write("x" * 1000)
                opened.write(b"y" * 50_000)
        with manager.session(tenant="acme", user="ann", session="brief", limits=Limits(session_bytes=10)) as opened:
            opened.write("z")
        expired = manager.session(tenant="acme", user="cid", session="old", lifetime=EXPIRED)
        expired.close()
    return data


def _names(run: Run, data: Path, *options: object) -> list[tuple[str, str, str | None]]:
    listed = run("sessions", "list", "--data", data, "--output", "json", *options).json["sessions"]
    return sorted((each["tenant"], each["user"], each["session"] or "") for each in listed)


def test_init_makes_a_data_directory_once(run: Run, data: Path) -> None:
    first = run("init", "--data", data, "--output", "json")
    assert (first.code, first.json["created"]) == (0, ["schema", "key file", "store"])
    key = (data / "keys.json").read_bytes()
    second = run("init", "--data", data, "--output", "json")
    assert (second.code, second.json["created"]) == (0, [])
    assert (data / "keys.json").read_bytes() == key
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / "keys.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["a?b", "c#d", "100%25", "with space", "mode=ro&x"])
def test_a_data_directory_may_be_called_anything(name: str, run: Run, tmp_path: Path) -> None:
    data = tmp_path / name
    assert run("init", "--data", data).code == 0
    assert run("db", "check", "--data", data).code == 0
    assert run("doctor", "--data", data).code == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_schema_can_be_checked_and_upgraded(run: Run, data: Path) -> None:
    assert run("init", "--data", data).code == 0
    after = run("db", "check", "--data", data, "--output", "json")
    assert (after.code, after.json["current"]) == (0, True)
    assert run("db", "upgrade", "--data", data).code == 0


def test_shared_options_stand_before_or_after_the_command(run: Run, filled: Path) -> None:
    before = run("--data", filled, "--output", "json", "sessions", "list")
    after = run("sessions", "list", "--data", filled, "--output", "json")
    assert before.json == after.json
    assert run("--data", "/nowhere", "--output", "table", "sessions", "list", "--data", filled, "--output", "json").json


def test_the_environment_names_the_data_directory(run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_DATA", str(filled))
    assert len(run("sessions", "list", "--output", "json").json["sessions"]) == 5


def test_live_sessions_are_listed_and_filtered(run: Run, filled: Path) -> None:
    assert _names(run, filled) == [
        ("[b]globex[/b]", "ann", "chat"),
        ("acme", "ann", ""),
        ("acme", "ann", "brief"),
        ("acme", "ann", "chat"),
        ("acme", "bob", "chat"),
    ]
    assert len(_names(run, filled, "--tenant", "acme")) == 4
    assert len(_names(run, filled, *ACME)) == 3
    assert _names(run, filled, "--tenant", "nobody") == []
    table = run("sessions", "list", "--data", filled).out.splitlines()
    assert len(table) == 6
    assert table[0].split()[:3] == ["tenant", "user", "session"]
    assert any(line.startswith("[b]globex[/b]") for line in table)
    assert [line.split()[1] for line in table if "(own room)" in line] == ["ann"]
    nobody = run("sessions", "list", "--data", filled, "--tenant", "nobody")
    assert (nobody.code, nobody.out, nobody.err) == (0, "", "No live sessions.\n")


def test_a_log_event_can_be_traced_to_its_session(run: Run, filled: Path, caplog: pytest.LogCaptureFixture) -> None:
    listed = run("sessions", "list", "--data", filled, "--output", "json").json["sessions"]
    hashes = {
        each["log_hash"]: each["session"] for each in listed if each["user"] == "ann" and each["tenant"] == "acme"
    }
    assert len({each["log_hash"] for each in listed}) == 5
    caplog.clear()
    with SessionManager.local(filled) as manager, pytest.raises(QuotaExceeded):
        manager.session(tenant="acme", user="ann", session="brief").store.write(key="k", content="too much for it")
    (named,) = [each for each in hashes if each in caplog.text]
    assert hashes[named] == "brief"
    for form in ("json", "table"):
        shown = run("sessions", "show", "--data", filled, *ACME, "--session", "brief", "--output", form)
        assert named in shown.out


@pytest.mark.parametrize(
    "command",
    [("sessions", "show", *ACME, "--own-room"), ("limits", "show", *ACME), ("usage", *ACME), ("cleanup",), ("verify",)],
)
def test_the_labels_of_tables_are_words(command: tuple[str, ...], run: Run, filled: Path) -> None:
    ran = run(*command, "--data", filled)
    assert ran.code == 0
    assert "_" not in ran.out


def test_a_session_is_shown_without_being_used(run: Run, filled: Path) -> None:
    first = run("sessions", "show", "--data", filled, *ACME, "--session", "chat", "--output", "json")
    assert (first.code, first.json["results"], first.json["used_bytes"]) == (0, 2, 51_000)
    assert datetime.fromisoformat(first.json["expires_at"]) > datetime.fromisoformat(first.json["created_at"])
    assert run("sessions", "show", "--data", filled, *ACME, "--session", "chat", "--output", "json").json == first.json
    own = run("sessions", "show", "--data", filled, *ACME, "--own-room", "--output", "json")
    assert (own.code, own.json["session"]) == (0, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "show", "--tenant", "acme", "--user", "ann", "--session", "nope"),
        ("sessions", "show", "--tenant", "acme", "--user", "cid", "--session", "old"),
        ("sessions", "show", "--tenant", "nope", "--user", "ann", "--own-room"),
        ("sessions", "delete", "--tenant", "acme", "--user", "ann", "--session", "nope", "--yes"),
        ("sessions", "delete", "--tenant", "acme", "--user", "ann", "--session", "nope", "--dry-run"),
        ("erase", "user", "--tenant", "acme", "--user", "nope", "--yes"),
        ("erase", "tenant", "--tenant", "nope", "--yes"),
        ("erase", "user", "--tenant", "acme", "--user", "nope", "--dry-run"),
        ("erase", "tenant", "--tenant", "nope", "--dry-run"),
        ("limits", "show", "--tenant", "nope"),
        ("limits", "set", "--tenant", "acme", "--user", "nope", "--user-bytes", "5"),
    ],
)
def test_what_is_not_there_is_not_found(arguments: tuple[str, ...], run: Run, filled: Path) -> None:
    before = _names(run, filled)
    ran = run("--data", filled, *arguments)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("Error: There is no such")
    assert _names(run, filled) == before


def test_a_session_is_deleted_with_its_results(run: Run, filled: Path) -> None:
    options = ("sessions", "delete", "--data", filled, *ACME, "--session", "chat", "--output", "json")
    dry = run(*options, "--dry-run")
    assert (dry.code, dry.json) == (
        0,
        {"dry_run": True, "level": "session", "sessions": 1, "results": 2, "used_bytes": 51_000},
    )
    assert len(_names(run, filled, *ACME)) == 3
    done = run(*options, "--yes")
    assert (done.code, done.json["sessions"], done.json["results"], done.json["used_bytes"]) == (0, 1, 2, 51_000)
    assert _names(run, filled, *ACME) == [("acme", "ann", ""), ("acme", "ann", "brief")]
    assert run(*options, "--yes").code == 4


def test_a_forgotten_session_name_does_not_delete_the_own_room(run: Run, filled: Path) -> None:
    assert run("sessions", "delete", "--data", filled, *ACME, "--yes").code == 2
    assert ("acme", "ann", "") in _names(run, filled)
    assert run("sessions", "delete", "--data", filled, *ACME, "--own-room", "--yes").code == 0
    assert ("acme", "ann", "") not in _names(run, filled)


def test_usage_is_told_at_each_level(run: Run, filled: Path) -> None:
    def used(*options: str) -> dict[str, int]:
        ran = run("usage", "--data", filled, "--output", "json", *options)
        assert ran.code == 0
        return dict(ran.json)

    assert used(*ACME, "--session", "chat")["used_bytes"] == 51_000
    assert used(*ACME)["used_bytes"] == 2 * 51_000 + 1
    assert used(*ACME)["limit_bytes"] == 2**30
    acme = used("--tenant", "acme")
    assert (acme["used_bytes"], acme["results"], acme["limit_bytes"]) == (3 * 51_000 + 1, 7, None)
    table = run("usage", "--data", filled, *ACME).out
    assert "1.0 GiB" in table
    assert "unlimited" in table


def test_limits_are_set_shown_and_inherited(run: Run, filled: Path) -> None:
    where = ("--data", filled, "--output", "json")
    tenant = run("limits", "set", *where, "--tenant", "acme", "--user-bytes", "2MiB", "--tenant-sessions", "unlimited")
    assert (tenant.code, tenant.json["set"]) == (0, {"user_bytes": 2 * 2**20, "tenant_sessions": None})
    user = run("limits", "set", *where, *ACME, "--user-results", "9").json
    assert user["set"] == {"user_results": 9}
    assert (user["effective"]["user_bytes"], user["effective"]["user_results"]) == (2 * 2**20, 9)
    session = run("limits", "show", *where, *ACME, "--session", "brief").json
    assert session["set"] == {"session_bytes": 10}
    assert session["effective"] == {"max_result_bytes": 64 * 2**20, "session_bytes": 10, "session_results": None}

    kept = run("limits", "set", *where, "--tenant", "acme", "--user-bytes", "inherit").json
    assert kept["set"] == {"tenant_sessions": None}
    assert kept["effective"]["user_bytes"] == 2**30
    assert "inherit" in run("limits", "show", "--data", filled, "--tenant", "acme").out


@pytest.mark.parametrize(
    "whose", [("--tenant", "new"), ("--tenant", "new", "--user", "u"), ("--tenant", "acme", "--user", "new")]
)
def test_limits_of_somebody_who_is_yet_to_come_are_refused_with_the_reason(
    whose: tuple[str, ...], run: Run, filled: Path
) -> None:
    ran = run("limits", "set", "--data", filled, *whose, "--max-result-bytes", "5")
    assert (ran.code, ran.out) == (4, "")
    assert f"no such {'user' if '--user' in whose else 'tenant'}: it exists from its first session on" in ran.err


def test_cleanup_reclaims_what_has_expired_and_nothing_else(run: Run, filled: Path) -> None:
    before = _names(run, filled)
    dry = run("cleanup", "--data", filled, "--output", "json", "--dry-run")
    assert (dry.code, dry.json["sessions"], dry.json["dry_run"]) == (0, 1, True)
    assert run("cleanup", "--data", filled, "--output", "json", "--dry-run").json == dry.json
    done = run("cleanup", "--data", filled, "--output", "json")
    assert (done.code, done.json) == (
        0,
        {"sessions": 1, "results": 0, "reclaimed_bytes": 0, "dry_run": False, "complete": True},
    )
    assert run("cleanup", "--data", filled, "--output", "json", "--yes").json["sessions"] == 0
    assert _names(run, filled) == before


def test_a_cleanup_that_was_stopped_by_its_bounds_exits_3(run: Run, data: Path) -> None:
    with SessionManager.local(data) as manager:
        for number in range(5):
            manager.session(tenant="t", user="u", session=f"s{number}", lifetime=EXPIRED).close()
    bounded = run("cleanup", "--data", data, "--output", "json", "--batch-size", "1", "--max-seconds", "1e-9")
    assert (bounded.code, bounded.json["complete"]) == (3, False)
    assert "run it again" in bounded.err
    rest = run("cleanup", "--data", data, "--output", "json")
    assert (rest.code, rest.json["complete"]) == (0, True)


def test_verify_is_content_with_what_is_whole(run: Run, filled: Path) -> None:
    ran = run("verify", "--data", filled, "--output", "json")
    assert (ran.code, ran.json["ok"], ran.json["findings"]) == (0, True, [])
    assert ran.json["checked_results"] == 9


def test_verify_exits_1_while_a_finding_is_left(run: Run, filled: Path) -> None:
    stored = [path for path in (filled / "results").rglob("*") if path.is_file() and path.stat().st_size > 40_000]
    assert stored
    stored[0].write_bytes(b"\0" * stored[0].stat().st_size)
    ran = run("verify", "--data", filled, "--output", "json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert [each["count"] for each in ran.json["findings"]] == [1]
    dry = run("verify", "--data", filled, "--output", "json", "--repair", "--dry-run")
    assert (dry.code, dry.json["findings"], dry.json["dry_run"]) == (1, ran.json["findings"], True)


def test_verify_stops_with_an_alarm_when_many_files_are_unknown(run: Run, filled: Path) -> None:
    stored = next(path for path in (filled / "results").glob("*/*/*") if path.is_file())
    unknown = stored.with_name("a" * 32)
    unknown.write_bytes(b"nobody's")
    os.utime(unknown, (0, 0))
    options = ("verify", "--data", filled, "--output", "json", "--repair", "--yes")
    ran = run(*options)
    assert (ran.code, ran.json["ok"], ran.json["alarm"]) == (1, False, True)
    assert "Nothing was repaired" in ran.err
    assert unknown.exists()
    accepted = run(*options, "--accept-unknown")
    assert (accepted.code, accepted.json["ok"], accepted.json["alarm"]) == (0, True, False)
    assert accepted.json["findings"] == [{"kind": "unknown_bytes", "count": 1, "repaired": True}]
    assert not unknown.exists()


def test_a_user_is_erased_with_a_receipt(run: Run, filled: Path) -> None:
    options = ("erase", "user", "--data", filled, *ACME, "--output", "json")
    dry = run(*options, "--dry-run")
    assert (dry.code, dry.json["sessions"], dry.json["used_bytes"]) == (0, 3, 2 * 51_000 + 1)
    assert len(_names(run, filled, *ACME)) == 3
    done = run(*options, "--yes")
    assert done.code == 0
    assert (done.json["level"], done.json["users"], done.json["sessions"], done.json["results"]) == ("user", 1, 3, 5)
    assert done.json["receipt_id"]
    assert done.json["keys_destroyed"] == 3
    assert done.json["finished_at"].endswith("Z")
    assert "ann" not in json.dumps(done.json)
    assert _names(run, filled, *ACME) == []
    assert run(*options, "--yes").code == 4
    (key,) = json.loads((filled / "keys.json").read_text())["keys"]
    assert (done.json["key_ids"], done.json["reached"]) == ([f"file:{key['id']}"], "removed")
    again = run("erase", "receipt", "--data", filled, done.json["receipt_id"], "--output", "json")
    assert (again.code, again.json) == (0, done.json)
    shown = run("erase", "receipt", "--data", filled, done.json["receipt_id"])
    assert f"file:{key['id']}" in shown.out
    unknown = run("erase", "receipt", "--data", filled, "a" * 32)
    assert (unknown.code, unknown.out, unknown.err) == (4, "", "Error: There is no such receipt.\n")


def test_a_tenant_is_erased_and_others_stay(run: Run, filled: Path) -> None:
    done = run("erase", "tenant", "--data", filled, "--tenant", "acme", "--yes", "--output", "json")
    assert (done.code, done.json["level"], done.json["users"]) == (0, "tenant", 3)
    assert _names(run, filled) == [("[b]globex[/b]", "ann", "chat")]
    assert run("usage", "--data", filled, "--tenant", "acme", "--output", "json").json["used_bytes"] == 0


def test_data_is_alone_on_stdout(spawn: Run, filled: Path) -> None:
    for command in (
        ("db", "upgrade"),
        ("limits", "set", "--tenant", "acme", "--user-bytes", "5GiB"),
        ("cleanup",),
        ("doctor",),
        ("erase", "tenant", "--tenant", "acme", "--yes"),
    ):
        ran = spawn("--data", filled, "--output", "json", "--log-level", "debug", *command)
        assert ran.code == 0, ran.err
        assert isinstance(ran.json, dict)
        assert "Traceback" not in ran.err


def test_a_name_a_terminal_cannot_print_does_not_end_a_command(spawn: Run, data: Path) -> None:
    with SessionManager.local(data) as manager:
        manager.session(tenant="t\N{SNOWMAN}", user="u", session="s").close()
    ran = spawn("sessions", "list", "--data", data, environment={"PYTHONIOENCODING": "ascii"})
    assert ran.code == 0
    assert "\\u2603" in ran.out


def test_a_closed_pipe_is_no_traceback(filled: Path) -> None:
    import subprocess

    from tests.cli.conftest import PROGRAM, ROOT

    with subprocess.Popen(
        [*PROGRAM, "sessions", "list", "--data", str(filled)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 1


def test_a_schema_that_is_missing_exits_6(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'database_url = "sqlite:///{tmp_path}/catalogue.sqlite3"\nstore_url = "database:"\n'
        f'keys = "file:{tmp_path}/keys.json"\n'
    )
    ran = run("db", "check", "--config", config)
    assert (ran.code, ran.out) == (6, "")
    assert "tenancy init" in ran.err
    assert list(tmp_path.iterdir()) == [config]


def test_commands_work_with_settings_on_each_database(
    run: Run, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'store_url = "file://{tmp_path}/results"\nkeys = "file:{tmp_path}/keys.json"\n'
        '[limits]\ntenant_bytes = "1MiB"\n'
    )
    monkeypatch.setenv("HAYSTACK_TENANCY_DATABASE_URL", as_runtime(empty_database_url))
    if not empty_database_url.startswith("sqlite"):
        monkeypatch.setenv("HAYSTACK_TENANCY_OWNER_URL", empty_database_url)
        monkeypatch.setenv("HAYSTACK_TENANCY_MAINTENANCE_URL", as_maintenance(empty_database_url))
    first = run("init", "--config", config, "--output", "json")
    assert (first.code, first.json["created"]) == (0, ["schema", "key file", "store"])
    assert empty_database_url not in first.out + first.err
    key = (tmp_path / "keys.json").read_bytes()
    assert run("init", "--config", config, "--output", "json").json["created"] == []
    assert (tmp_path / "keys.json").read_bytes() == key
    shown = run("usage", "--config", config, "--tenant", "t", "--output", "json")
    assert (shown.code, shown.json["limit_bytes"]) == (0, 2**20)
    assert run("doctor", "--config", config, "--output", "json").json["ok"] is True
