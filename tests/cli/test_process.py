"""What the command does to the process and the machine it runs on, and what it does not."""

import os
import subprocess
from pathlib import Path

import pytest

from tenancy.manager import SessionManager
from tests.cli.conftest import PROGRAM, ROOT, Run

#: Nobody can make anything below it, not even the superuser.
NO_HOME = "/dev/null"


@pytest.fixture
def made(data: Path) -> Path:
    """A data directory with one session."""
    with SessionManager.local(data) as manager, manager.session(tenant="t", user="u", session="s") as session:
        session.write("x" * 1000)
    return data


@pytest.fixture(autouse=True)
def _as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """No word about telemetry, and data in a buffer."""
    monkeypatch.delenv("HAYSTACK_TELEMETRY_ENABLED", raising=False)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


#: `doctor` and `usage` import Haystack, each by a way of its own.
@pytest.mark.parametrize("command", [("doctor",), ("usage", "--tenant", "t"), ("cleanup",)])
def test_nothing_is_written_to_home(command: tuple[str, ...], spawn: Run, made: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ran = spawn(*command, "--data", made, environment={"HOME": str(home)})
    assert ran.code == 0, ran.err
    assert list(home.iterdir()) == []


def test_a_service_user_without_a_home_can_work(spawn: Run, made: Path) -> None:
    ran = spawn("doctor", "--data", made, environment={"HOME": NO_HOME})
    assert (ran.code, ran.err) == (0, "")


def test_who_wants_telemetry_has_it_and_no_traceback(spawn: Run, made: Path) -> None:
    ran = spawn("doctor", "--data", made, environment={"HOME": NO_HOME, "HAYSTACK_TELEMETRY_ENABLED": "true"})
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: The operating system refuses: Not a directory (/dev/null/.haystack).\n"


def _joined(*arguments: object) -> tuple[int, list[str]]:
    """Run a command whose data and messages go to one pipe, in the order in which they are written."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("form", ["table", "json"])
def test_an_error_that_says_see_above_stands_below(form: str, made: Path) -> None:
    (made / "keys.json").chmod(0o644)
    code, lines = _joined("doctor", "--data", made, "--output", form)
    assert (code, lines[-1]) == (1, "Error: Something is wrong; see above.")
    assert len(lines) > 5


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_data_that_cannot_be_written_is_a_sentence(form: str, unbuffered: str, made: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "sessions", "list", "--data", str(made), "--output", form],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: The operating system refuses: No space left on device.\n"
