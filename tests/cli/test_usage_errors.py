"""What is refused before anything is opened, and that it stays so."""

from pathlib import Path

import pytest

from tenancy import errors
from tenancy.cli.exits import ExitCode, Refusal, reported
from tenancy.cli.place import Place
from tests.cli.conftest import Run


def test_help_imports_nothing_heavy(spawn: Run) -> None:
    for command in ((), ("sessions",), ("limits", "set")):
        ran = spawn(*command, "--help", environment={"PYTHONPROFILEIMPORTTIME": "1"})
        assert ran.code == 0
        assert "Usage: tenancy" in ran.out
        imported = {line.rsplit("|", 1)[-1].strip().partition(".")[0] for line in ran.err.splitlines()}
        assert "typer" in imported
        assert not imported & {"haystack", "sqlalchemy", "alembic", "cryptography", "boto3", "botocore"}


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").out == f"haystack-tenancy {__import__('tenancy.version').version.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("init",),
        ("db", "upgrade"),
        ("db", "check"),
        ("sessions", "list"),
        ("usage", "--tenant", "t"),
        ("limits", "show", "--tenant", "t"),
        ("cleanup",),
        ("verify",),
        ("doctor",),
        ("erase", "tenant", "--tenant", "t", "--yes"),
    ],
)
def test_nothing_configured_is_a_usage_error(command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    ran = run(*command)
    assert (ran.code, ran.out) == (2, "")
    assert "Nothing is configured: pass --data DIR or --config FILE" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--data", "d", "--config", "c", "sessions", "list"),
        ("sessions", "list", "--data", "d", "--config", "c"),
        ("--data", "d", "sessions", "list", "--config", "c"),
    ],
)
def test_a_data_directory_and_a_configuration_exclude_each_other(arguments: tuple[str, ...], run: Run) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "Error: Pass either --data or --config, not both.\n"


def test_an_option_beats_the_environment_and_a_directory_beats_a_file(tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text('database_url = "sqlite:////srv/x"\nstore_url = "database:"\nkeys = "env:KEY"\n')
    around = {"HAYSTACK_TENANCY_DATA": "/around/data", "HAYSTACK_TENANCY_CONFIG": "/around/config"}
    assert Place.find(data=Path("given"), config=None, environment=around).data == Path("given")
    assert Place.find(data=None, config=config, environment=around).settings is not None
    assert Place.find(data=None, config=None, environment=around).data == Path("/around/data")


def test_the_environment_alone_may_configure(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("HAYSTACK_TENANCY_DATABASE_URL", "sqlite:////srv/catalogue.sqlite3")
    ran = run("sessions", "list")
    assert ran.code == 2
    assert "store_url is missing" in ran.err
    assert "database_url" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("sessions", "delete", "--tenant", "t", "--user", "u", "--session", "s"), "This destroys data, "),
        (("sessions", "delete", "--tenant", "t", "--user", "u", "--own-room"), "This destroys data, "),
        (("erase", "user", "--tenant", "t", "--user", "u"), "This destroys data, "),
        (("erase", "tenant", "--tenant", "t"), "This destroys data, "),
        # It deletes no result and no file.
        (("verify", "--repair"), "This sets counters right, removes what interrupted work has left and sets unknown "),
    ],
)
def test_what_changes_much_says_so_and_refuses_without_a_terminal_and_without_yes(
    arguments: tuple[str, ...], what: str, run: Run, data: Path
) -> None:
    ran = run(*arguments, "--data", data)
    assert (ran.code, ran.out) == (2, "")
    assert what in ran.err
    assert "pass --yes" in ran.err
    assert not data.exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--user-bytes", "-5"), "--user-bytes"),
        (("--user-bytes=-5",), "--user-bytes"),
        (("--user-bytes", "-1KiB"), "--user-bytes"),
        (("--user-bytes", "lots"), "--user-bytes"),
        (("--user-bytes", "1.5"), "--user-bytes"),
        (("--user-bytes", ""), "--user-bytes"),
        (("--user-bytes", "9223372036854775808"), "--user-bytes"),
        (("--user-bytes", "9000000TiB"), "--user-bytes"),
        (("--user-results", "5MiB"), "--user-results"),
        (("--user-bytes", "5", "--user-results", "-5"), "--user-results"),
        ((), "at least one limit"),
        (("--session", "s", "--session-bytes", "5"), "--user"),
    ],
)
def test_a_wrong_limit_changes_nothing(options: tuple[str, ...], named: str, run: Run, data: Path) -> None:
    ran = run("limits", "set", "--data", data, "--tenant", "t", *options)
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err
    assert not data.exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--user", "u", "--tenant-bytes", "5"),
        ("--user", "u", "--session", "s", "--user-bytes", "5"),
        ("--user", "u", "--tenant-bytes", "inherit", "--user-sessions", "1", "--tenant-sessions", "1"),
    ],
)
def test_a_limit_of_a_wider_level_is_refused(options: tuple[str, ...], run: Run, data: Path) -> None:
    ran = run("limits", "set", "--data", data, "--tenant", "t", *options)
    assert (ran.code, ran.out) == (2, "")
    assert "set it at a wider level" in ran.err
    assert not data.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "list", "--user", "u"),
        ("usage", "--tenant", "t", "--session", "s"),
        ("limits", "show", "--tenant", "t", "--session", "s"),
        ("sessions", "show", "--tenant", "t", "--user", "u"),
        ("sessions", "show", "--tenant", "t", "--user", "u", "--session", "s", "--own-room"),
        ("sessions", "delete", "--tenant", "t", "--user", "u", "--yes"),
        ("usage",),
        ("cleanup", "--batch-size", "0"),
        ("cleanup", "--max-seconds", "-1"),
        ("sessions", "list", "--output", "xml"),
        ("sessions", "forget"),
        ("nonsense",),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: tuple[str, ...], run: Run, data: Path) -> None:
    ran = run("--data", data, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err
    assert not data.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("cleanup", "--max-seconds", "0"), "'--max-seconds': must be more than 0."),
        (("cleanup", "--max-seconds", "-1"), "'--max-seconds': must be more than 0."),
        (("cleanup", "--max-seconds", "nan"), "'--max-seconds': must be more than 0."),
        (("cleanup", "--output", "xml"), "'--output': must be one of table, json."),
        (("demo", "--output", "xml"), "'--output': must be one of table, json."),
        (("--log-level", "loud", "cleanup"), "'--log-level': must be one of debug, info, warning, error."),
    ],
)
def test_a_wrong_option_is_refused_in_our_words(arguments: tuple[str, ...], sentence: str, run: Run) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == f"Error: Invalid value for {sentence}"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("a sentence"), 2),
        (errors.ScopeError("a sentence"), 2),
        (errors.SchemaOutdated("a sentence"), 6),
        (errors.AlreadyRunning("a sentence"), 5),
        (errors.SessionNotFound("a sentence"), 4),
        (errors.ResultNotFound("a sentence"), 4),
        (errors.StorageUnavailable("a sentence"), 1),
        (errors.StorageFull("a sentence"), 1),
        (errors.KeyUnavailable("a sentence"), 1),
        (errors.KeyDestroyed("a sentence"), 1),
        (errors.ResultCorrupt("a sentence"), 1),
        (errors.TenancyError("a sentence"), 1),
        (Refusal("a sentence", code=ExitCode.PARTLY_DONE), 3),
    ],
)
def test_each_error_is_one_sentence_and_its_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    with pytest.raises(typer.Exit) as caught, reported():
        raise error
    assert caught.value.exit_code == code
    assert capsys.readouterr() == ("", "Error: a sentence\n")


def test_an_interruption_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    with pytest.raises(typer.Exit) as caught, reported():
        raise KeyboardInterrupt
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err == "Error: Interrupted.\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied", "/srv/x"), "Permission denied (/srv/x)."),
        (OSError(24, "Too many open files"), "Too many open files."),
        (OSError("odd"), "OSError."),
    ],
)
def test_what_the_operating_system_refuses_is_a_sentence(
    error: OSError, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    with pytest.raises(typer.Exit) as caught, reported():
        raise error
    assert caught.value.exit_code == 1
    assert capsys.readouterr() == ("", f"Error: The operating system refuses: {sentence}\n")
