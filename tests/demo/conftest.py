"""A small folder of input, and the demo as a command."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenancy.cli.app import app
from tests.cli.conftest import Ran

Run = Callable[..., Ran]

_SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sa", "to", "ve", "zu", "pha", "dri", "sto")


def prose(seed: int, *, chars: int) -> str:
    """A text that no other seed makes."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(chars // 4)]
    lines = [" ".join(words[at : at + 9]) for at in range(0, len(words), 9)]
    return "\n".join(lines)[:chars]


def image(seed: int, *, size_bytes: int) -> bytes:
    """What passes for a PNG: the demo never draws it."""
    return b"\x89PNG\r\n\x1a\n" + random.Random(seed).randbytes(size_bytes)


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HAYSTACK_TENANCY_", "OPENAI_")):
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts for everybody, one of them of several pages, and a table, JSON and two pictures for some."""
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(6):
        (folder / f"text-{number}.txt").write_text(prose(number, chars=80_000 if number == 0 else 2_500))
    rows = "\r\n".join(f"{number},{prose(number, chars=20)},{number**3}" for number in range(100))
    (folder / "table.csv").write_bytes(rows.encode())
    (folder / "data.json").write_text(json.dumps({prose(number, chars=12): number for number in range(900, 1000)}))
    # The first is too large for the catalogue, so it becomes a file.
    (folder / "a.png").write_bytes(image(1, size_bytes=100_000))
    (folder / "b.png").write_bytes(image(2, size_bytes=2_000))
    return folder


@pytest.fixture
def run() -> Run:
    """Run `tenancy demo` in this process."""

    def invoke(*arguments: object) -> Ran:
        result = CliRunner().invoke(app, ["demo", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(code=result.exit_code, out=result.stdout, err=result.stderr)

    return invoke


@pytest.fixture
def judged(run: Run, folder: Path) -> Callable[[], dict[str, Any]]:
    """Run the demo on the small folder and return its JSON with the exit code added."""

    def invoke() -> dict[str, Any]:
        ran = run("--input", folder, "--output", "json")
        return {**ran.json, "code": ran.code, "notes": ran.err.splitlines()}

    return invoke
