"""What operators get wrong: one clear sentence, the right exit code, nothing changed."""

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenancy.keys.providers import create_key_file
from tenancy.manager import SessionManager
from tenancy.schema import VERSION_TABLE
from tests.cli.conftest import NOBODY, Ran, Run, unprivileged

SECRET = "correct-horse-battery"


@pytest.fixture
def made(data: Path) -> Path:
    """A data directory with something in it."""
    with SessionManager.local(data) as manager, manager.session(tenant="t", user="u", session="s") as session:
        session.write("x" * 1000)
    return data


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings for a place where nothing has been made yet."""
    path = tmp_path / "tenancy.toml"
    path.write_text(
        f'database_url = "sqlite:///{tmp_path}/catalogue.sqlite3"\n'
        f'store_url = "file://{tmp_path}/results"\nkeys = "file:{tmp_path}/keys.json"\n'
    )
    return path


def _state(directory: Path) -> dict[str, tuple[int, str]]:
    """Every path below a directory with its mode and content. SQLite's shared memory is no content."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(directory.rglob("*"))
        if not path.name.endswith("-shm")
    }


def _refused(ran: Ran, code: int, *sentence: str) -> None:
    assert (ran.code, ran.out) == (code, "")
    lines = ran.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    for part in sentence:
        assert part in lines[0]
    assert "Traceback" not in ran.err
    assert SECRET not in ran.err


@pytest.mark.parametrize("command", [("init",), ("db", "upgrade"), ("db", "check"), ("sessions", "list"), ("cleanup",)])
@pytest.mark.parametrize(
    "url",
    [f"mysql://root:{SECRET}@db/x", f"postgresql://app:{SECRET}@db/x", f"{SECRET}", "sqlite://", "sqlite:///:memory:"],
)
def test_an_unknown_database_url(command: tuple[str, ...], url: str, run: Run, config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("sqlite:///", "@").replace(f"@{tmp_path}/catalogue.sqlite3", url))
    before = _state(tmp_path)
    _refused(run(*command, "--config", config), 2, "database_url must look like sqlite:///PATH")
    assert _state(tmp_path) == before


@pytest.mark.parametrize("command", [("init",), ("sessions", "list"), ("db", "upgrade")])
def test_a_data_directory_whose_place_does_not_exist(command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    _refused(run(*command, "--data", tmp_path / "missing" / "data"), 2)
    assert list(tmp_path.iterdir()) == []


#: Every command but `init`, which makes an installation, and `doctor`, which says what is wrong in a table.
OTHERS = [
    ("db", "upgrade"),
    ("db", "check"),
    ("sessions", "list"),
    ("sessions", "show", "--tenant", "t", "--user", "u", "--own-room"),
    ("sessions", "delete", "--tenant", "t", "--user", "u", "--own-room", "--yes"),
    ("usage", "--tenant", "t"),
    ("limits", "show", "--tenant", "t"),
    ("limits", "set", "--tenant", "t", "--user-bytes", "5"),
    ("cleanup",),
    ("cleanup", "--dry-run"),
    ("verify",),
    ("verify", "--repair", "--yes"),
    ("erase", "user", "--tenant", "t", "--user", "u", "--yes"),
    ("erase", "tenant", "--tenant", "t", "--dry-run"),
]


@pytest.mark.parametrize("command", OTHERS)
@pytest.mark.parametrize("there", [False, True])
def test_only_init_makes_an_installation(
    there: bool, command: tuple[str, ...], run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        data.mkdir(mode=0o700)
    before = _state(tmp_path)
    _refused(run(*command, "--data", data), 2, str(data), "run `tenancy init`")
    monkeypatch.setenv("HAYSTACK_TENANCY_DATA", str(data))
    _refused(run(*command), 2, str(data), "run `tenancy init`")
    assert _state(tmp_path) == before


def test_a_data_directory_of_somebody_else_is_not_called_missing(run: Run, made: Path) -> None:
    ran = None
    if os.geteuid() != 0:
        made.chmod(0o000)
        ran = run("usage", "--data", made, "--tenant", "t")
        made.chmod(0o700)
    else:
        assert run("usage", "--data", made, "--tenant", "t").code == 0
        with unprivileged():
            ran = run("usage", "--data", made, "--tenant", "t")
    _refused(ran, 2, str(made), "cannot be entered by this user")


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A directory of a user without privileges, which not even that user may write."""
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        path = Path(outer) / "data"
        path.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, -1)
        path.chmod(0o500)
        yield path


@pytest.mark.parametrize("command", [("init",), ("sessions", "list"), ("db", "upgrade")])
def test_a_data_directory_that_is_not_writable(
    command: tuple[str, ...], run: Run, unwritable: Path, tmp_path: Path
) -> None:
    # Once where it succeeds, so that everything is imported: somebody else may not be able to read our modules.
    assert run("init", "--data", tmp_path / "other").code == 0
    assert run(*command, "--data", tmp_path / "other").code == 0
    with unprivileged():
        ran = run(*command, "--data", unwritable)
    _refused(ran, 2, str(unwritable), "" if command == ("init",) else "tenancy init")
    assert list(unwritable.iterdir()) == []


@pytest.mark.parametrize("command", [("init",), ("sessions", "list"), ("db", "upgrade")])
def test_a_database_whose_directory_does_not_exist(
    command: tuple[str, ...], run: Run, config: Path, tmp_path: Path
) -> None:
    create_key_file(tmp_path / "keys.json")
    config.write_text(config.read_text().replace("/catalogue.sqlite3", "/missing/catalogue.sqlite3"))
    before = _state(tmp_path)
    _refused(run(*command, "--config", config), 2)
    assert _state(tmp_path) == before


@pytest.mark.parametrize("harm", ["open to others", "a file", "a link", "without a place"])
def test_init_changes_nothing_if_the_store_cannot_be_used(harm: str, run: Run, config: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    if harm == "open to others":
        results.mkdir()
        results.chmod(0o777)
    elif harm == "a file":
        results.write_text("")
    elif harm == "a link":
        results.symlink_to(tmp_path)
    else:
        config.write_text(config.read_text().replace("/results", "/missing/results"))
    before = {path.name for path in tmp_path.iterdir()}
    _refused(run("init", "--config", config), 2, "store")
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("command", [("init",), ("sessions", "list"), ("db", "upgrade")])
def test_a_data_directory_that_is_a_file(command: tuple[str, ...], run: Run, data: Path, tmp_path: Path) -> None:
    data.write_text("not a directory")
    before = _state(tmp_path)
    _refused(run(*command, "--data", data), 2)
    assert _state(tmp_path) == before


@pytest.mark.parametrize("command", [("init",), ("sessions", "list"), ("db", "upgrade")])
def test_a_data_directory_others_may_enter(command: tuple[str, ...], run: Run, made: Path) -> None:
    if command == ("db", "upgrade"):
        # Touches the database only, which is closed to others by its own mode.
        made.chmod(0o755)
        assert run(*command, "--data", made).code == 0
        return
    made.chmod(0o777)
    before = _state(made)
    _refused(run(*command, "--data", made), 2)
    assert _state(made) == before


@pytest.mark.parametrize("command", [("sessions", "list"), ("usage", "--tenant", "t"), ("cleanup",), ("init",)])
def test_a_missing_key_file_is_never_replaced(command: tuple[str, ...], run: Run, made: Path) -> None:
    (made / "keys.json").unlink()
    before = _state(made)
    _refused(run(*command, "--data", made), 2, "key")
    assert _state(made) == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
@pytest.mark.parametrize("command", [("sessions", "list"), ("init",)])
def test_a_key_file_others_may_read_or_write(mode: int, command: tuple[str, ...], run: Run, made: Path) -> None:
    (made / "keys.json").chmod(mode)
    before = _state(made)
    _refused(run(*command, "--data", made), 2, "its mode must be 0600")
    assert _state(made) == before


@pytest.mark.parametrize("command", [("sessions", "list"), ("cleanup",), ("init",)])
def test_the_key_file_of_another_data_directory(command: tuple[str, ...], run: Run, made: Path, tmp_path: Path) -> None:
    SessionManager.local(tmp_path / "other").close()
    shutil.copyfile(tmp_path / "other" / "keys.json", made / "keys.json")
    before = _state(made)
    _refused(run(*command, "--data", made), 2, "key")
    assert _state(made) == before


@pytest.mark.parametrize(
    ("revision", "sentence"), [("0000", "older than this version"), ("9999", "newer than this version")]
)
@pytest.mark.parametrize("command", [("sessions", "list"), ("cleanup",), ("db", "check"), ("init",)])
def test_a_schema_of_another_version(
    revision: str, sentence: str, command: tuple[str, ...], run: Run, made: Path
) -> None:
    with closing(sqlite3.connect(made / "catalogue.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (revision,))
    before = _state(made)
    _refused(run(*command, "--data", made), 6, sentence)
    assert _state(made) == before


def test_a_newer_schema_is_not_upgraded_downwards(run: Run, made: Path) -> None:
    with closing(sqlite3.connect(made / "catalogue.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    before = _state(made)
    _refused(run("db", "upgrade", "--data", made), 6, "newer than this version")
    assert _state(made) == before


def test_negative_limits_in_settings(run: Run, config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text() + "[limits]\nuser_bytes = -1\n")
    before = _state(tmp_path)
    _refused(run("init", "--config", config), 2, "limits.user_bytes must be a whole number from 0")
    assert _state(tmp_path) == before


def test_negative_limits_on_the_command_line(run: Run, made: Path) -> None:
    before = _state(made)
    ran = run("limits", "set", "--data", made, "--tenant", "t", "--user-bytes", "-5")
    assert (ran.code, ran.out) == (2, "")
    assert "--user-bytes must be a whole number from 0" in ran.err
    assert _state(made) == before


@pytest.mark.parametrize("name", ["", " ", "a\x00b", "t" * 256, "\x1b[2J"])
def test_an_identifier_that_is_none(name: str, run: Run, made: Path) -> None:
    for command in (("usage",), ("erase", "tenant", "--yes"), ("sessions", "list"), ("limits", "show")):
        _refused(run(*command, "--data", made, "--tenant", name), 2, "The tenant must")


def test_init_makes_no_new_key_for_an_old_catalogue(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("init", "--config", config).code == 0
    (tmp_path / "keys.json").unlink()
    before = _state(tmp_path)
    _refused(run("init", "--config", config), 2, "keys.json is missing, and the catalogue was made with its key")
    assert _state(tmp_path) == before


def test_init_makes_a_key_for_a_catalogue_that_was_never_used(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("db", "upgrade", "--config", config).code == 0
    made = run("init", "--config", config, "--output", "json")
    assert (made.code, made.json["created"]) == (0, ["key file", "store"])


def test_init_changes_nothing_if_the_key_file_has_no_place(run: Run, config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("/keys.json", "/missing/keys.json"))
    before = _state(tmp_path)
    _refused(run("init", "--config", config), 2, "cannot be made there")
    assert _state(tmp_path) == before


def test_init_changes_nothing_if_the_key_is_not_in_the_environment(run: Run, config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace(f"file:{tmp_path}/keys.json", "env:NO_SUCH_KEY"))
    before = _state(tmp_path)
    _refused(run("init", "--config", config), 2, "NO_SUCH_KEY")
    assert _state(tmp_path) == before


def test_init_changes_nothing_if_the_database_is_away(run: Run, config: Path, tmp_path: Path) -> None:
    away = f"postgresql+psycopg://app:{SECRET}@127.0.0.1:1/tenancy"
    text = config.read_text().replace(f"sqlite:///{tmp_path}/catalogue.sqlite3", away)
    config.write_text(f'owner_url = "{away.replace("app", "owner")}"\n{text}')
    before = _state(tmp_path)
    _refused(run("init", "--config", config), 1)
    _refused(run("sessions", "list", "--config", config), 2)
    assert _state(tmp_path) == before


def test_a_configuration_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    _refused(run("sessions", "list", "--config", tmp_path / "no.toml"), 2, "no.toml does not exist")
