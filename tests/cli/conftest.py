"""Running the command line: in this process, or as its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tenancy
from tenancy.cli.app import app

ROOT = Path(tenancy.__file__).parent.parent
NOBODY = 65534
PROGRAM = (sys.executable, "-c", "from tenancy.cli import main; main()")


@contextmanager
def unprivileged() -> Iterator[None]:
    """The superuser may write everywhere, so for a moment be somebody else."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if before == 0:
            os.seteuid(before)


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, which must be one JSON document."""
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HAYSTACK_TENANCY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def run() -> Run:
    """Run a command in this process, with neither terminal nor input."""

    def invoke(*arguments: object) -> Ran:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(code=result.exit_code, out=result.stdout, err=result.stderr)

    return invoke


@pytest.fixture
def spawn() -> Run:
    """Run a command as a process of its own."""

    def start(*arguments: object, environment: dict[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    return start


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where a data directory may come to be. It is not there yet."""
    return tmp_path / "data"
