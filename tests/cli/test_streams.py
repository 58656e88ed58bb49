"""Closed streams and empty paths, as cron, init systems and unset variables bring them, change no outcome."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenancy import SessionManager

_PROGRAM = [sys.executable, "-c", "from tenancy.cli import main; main()"]


def tenancy(*arguments: object, closed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command with streams closed the way a shell writes it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAYSTACK_TENANCY_")}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *_PROGRAM, *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one result in it."""
    with SessionManager.local(tmp_path / "data", durability="process") as manager:
        manager.session(tenant="acme", user="u").write("x")
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("command", "code"),
    [("cleanup", 0), ("sessions list --output json", 0), ("erase tenant --tenant acme", 2)],
)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(data: Path, closed: str, command: str, code: int) -> None:
    done = tenancy("--data", data, *command.split(), closed=closed)
    assert "Traceback" not in done.stderr
    assert done.returncode == code


def test_an_erasure_behind_closed_streams_is_done_and_says_so(data: Path) -> None:
    done = tenancy("--data", data, "erase", "tenant", "--tenant", "acme", "--yes", closed="<&- >&- 2>&-")
    assert done.returncode == 0
    with SessionManager.local(data) as manager:
        assert list(manager.sessions()) == []


@pytest.mark.parametrize("option", ["--data", "--config"])
def test_an_empty_path_is_an_unset_variable_and_not_this_directory(option: str) -> None:
    done = tenancy(option, "", "init")
    assert done.returncode == 2
    assert "must not be empty" in done.stderr


def test_a_toml_file_of_brackets_is_refused_like_any_other_that_is_none(tmp_path: Path) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text("x = " + "[" * 100_000)
    done = tenancy("--config", config, "db", "check")
    assert done.returncode == 2
    assert "is not valid TOML" in done.stderr
