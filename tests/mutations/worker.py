"""
Runs pytest again and again in one copy of the checkout. A program of its own: `python worker.py TREE`.

What takes long to import and does not change (pytest, SQLAlchemy, Haystack) is imported once; each run is a fork that
imports the library and its tests anew. One request a line on standard input: arguments for pytest, and how long it may
take. One answer a line: how it ended, how long it took, and what it said.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, NoReturn

#: Nothing of ours is among them: a fork must find the library as it lies in the tree.
_PRELOADED = (
    "pytest",
    "pytest_timeout",
    "hypothesis",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql",
    "psycopg",
    "alembic.command",
    "cryptography.cobblestone",
    "haystack.components.agents",
    "haystack.components.generators.chat",
    "haystack.hooks.compaction",
    "haystack.hooks.tool_result_offloading",
    "haystack.tools",
    "rich",
    "typer.testing",
    "pydantic_settings",
)
_ASKED_BY = os.getppid()


def main(tree: str) -> None:
    """Answer requests until the input ends."""
    os.chdir(tree)
    sys.path[0] = tree
    for name in _PRELOADED:
        importlib.import_module(name)
    ours = [name for name in sys.modules if name.split(".")[0] in ("tenancy", "stores", "tests", "migrations")]
    if ours:
        raise SystemExit(f"These were imported too early to be broken: {', '.join(ours)}")
    _answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _answer(_run(request["arguments"], request["timeout_seconds"]))


def _answer(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _run(arguments: list[str], timeout_seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _test(arguments, output.fileno())
        code, work = _wait(child, until=began + timeout_seconds)
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    return {"code": code, "seconds": time.monotonic() - began, "work_seconds": work, "output": said[-20_000:]}


def _test(arguments: list[str], output: int) -> NoReturn:
    # A group of its own, so that what a test started ends with it.
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 3
    try:
        import pytest

        code = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, *, until: float) -> tuple[int | None, float]:
    """Return the exit code, or `None` if the time was up, and how long processors were at work."""
    pause = 0.002
    while True:
        found, status, used = os.wait4(child, os.WNOHANG if time.monotonic() < until else 0)
        if found:
            break
        signal.sigtimedwait([], pause)
        pause = min(pause * 1.5, 0.05)
        # Whoever asked may be gone: then nobody waits for the answer.
        if time.monotonic() >= until or os.getppid() != _ASKED_BY:
            os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        # What a test started and left behind.
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None
    return code, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1])
