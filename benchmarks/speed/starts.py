"""How long it takes to start: whole processes, which import something or print a help text and end."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.speed.rows import Row
from benchmarks.speed.timing import Call, interleaved

_CHECKOUT: Final = Path(__file__).parent.parent.parent
_PROGRAMS: Final = {
    "import tenancy": ("import tenancy",),
    # Names are looked up when they are asked for; what an application asks for brings the rest.
    "import its parts": ("from tenancy import SessionManager, SessionToolset, session_hooks",),
    "import haystack.components.agents": ("import haystack.components.agents",),
    # As the installed command does it.
    "tenancy --help": ("import tenancy.cli; tenancy.cli.main()", "--help"),
    "import typer, rich": ("import typer, rich",),
}


def start_rows(rounds: int) -> Iterator[Row]:
    """
    Start each in turns.

    Bytecode is there from the first round on, which does not count: in a folder of its own, whatever the environment
    says about writing any, and none is left in the checkout.
    """
    with tempfile.TemporaryDirectory(prefix="tenancy-benchmark-") as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "HAYSTACK_TELEMETRY_ENABLED": "False"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        calls = {name: _started(program, environment) for name, program in _PROGRAMS.items()}
        times = interleaved(calls, rounds=max(2, rounds // 4), block=1)
    library, parts, agents, command, bare = (times[name] for name in _PROGRAMS)
    yield Row("import tenancy", "import haystack…agents", 1.1, library, agents)
    yield Row("import tenancy's main parts", "import haystack…agents", None, parts, agents)
    more_ms = (command.median_us - bare.median_us) / 1000
    yield Row("tenancy --help", "more than typer, rich", 150, command, bare, figure=more_ms, unit="ms")


def _started(program: tuple[str, ...], environment: dict[str, str]) -> Call:
    command = [sys.executable, "-c", *program]

    def start(_: int) -> None:
        subprocess.run(command, cwd=_CHECKOUT, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ours

    return start
