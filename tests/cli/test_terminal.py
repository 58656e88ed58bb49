"""On a real terminal: questions, answers, tables."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tenancy.manager import SessionManager
from tests.cli.conftest import PROGRAM, ROOT

DELETE = ("sessions", "delete", "--tenant", "t", "--user", "u", "--session", "s")


@pytest.fixture
def made(data: Path) -> Path:
    """A data directory with one session."""
    with SessionManager.local(data) as manager, manager.session(tenant="t", user="u", session="s") as session:
        session.write("x" * 2048)
    return data


def _at_a_terminal(typed: bytes, *arguments: object) -> tuple[int, str]:
    """Run a command whose three streams are a terminal and type something into it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        # Linux says so when the other side of a terminal is closed.
        pass
    os.close(ours)
    return process.wait(timeout=60), seen.decode()


def _sessions(data: Path) -> list[str | None]:
    with SessionManager.local(data) as manager:
        return [found.session for found in manager.sessions()]


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"])
def test_a_cancelled_question_exits_1_and_changes_nothing(typed: bytes, made: Path) -> None:
    code, seen = _at_a_terminal(typed, "--data", made, *DELETE)
    assert code == 1
    assert "Delete session 's' of user 'u' of tenant 't' (1 sessions, 1 results, 2.0 KiB)?" in seen
    assert "Cancelled; nothing was changed." in seen
    assert _sessions(made) == ["s"]


def test_the_own_room_is_called_that_in_the_question(data: Path) -> None:
    with SessionManager.local(data) as manager:
        manager.session(tenant="t", user="u").close()
    _, seen = _at_a_terminal(b"n\n", "--data", data, *DELETE[:-2], "--own-room")
    assert "Delete the own room of user 'u' of tenant 't' (" in seen


def test_a_yes_deletes(made: Path) -> None:
    code, seen = _at_a_terminal(b"y\n", "--data", made, *DELETE)
    assert code == 0
    assert "Traceback" not in seen
    assert _sessions(made) == []


def test_a_terminal_gets_a_table(made: Path) -> None:
    code, seen = _at_a_terminal(b"", "--data", made, "sessions", "list")
    assert code == 0
    assert "used bytes" in seen
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" in seen or "---" in seen
