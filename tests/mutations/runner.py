"""Runs mutants: each is written into a copy of the checkout, tested until a test fails, and taken back."""

import itertools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from tests.mutations.groups import Group, Stage
from tests.mutations.sources import CHECKOUT, Mutant

Verdict = Literal["caught", "survived", "broken"]

#: No plug-in that runs tests elsewhere, no seed that differs from one run to the next, and no waiting for long.
_ARGUMENTS: Final = (
    "-x",
    "-q",
    "--tb=short",
    "-rfE",
    "--show-capture=no",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--hypothesis-seed=0",
    # What the worker has imported before pytest could see it.
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "-o",
    "addopts=",
    "-m",
    "not slow or crosswise",
)
#: Whoever takes so many times as long as without a mutant is not going to come back.
_PATIENCE: Final = 8
_LEAST_SECONDS: Final = 60.0
_LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "dist", "build", "*.egg-info")
_PASSED, _FAILED = 0, 1


class BaselineFailed(Exception):
    """The tests fail without any mutant. The message says which."""


@dataclass(frozen=True, slots=True)
class Result:
    """
    What became of one mutant.

    :param by: The first test that failed, or `timeout`; of a broken one, what went wrong.
    :param work_seconds: How long a processor was at work on it.
    """

    mutant: Mutant
    verdict: Verdict
    by: str
    work_seconds: float


@dataclass(slots=True)
class Tree:
    """A copy of the checkout, and the process that runs its tests."""

    path: Path
    process: "subprocess.Popen[str] | None" = field(default=None)

    def __enter__(self) -> Self:
        shutil.copytree(CHECKOUT, self.path, ignore=_LEFT_OUT)
        worker = self.path / "tests" / "mutations" / "worker.py"
        environment = {**os.environ, "PYTHONPATH": str(self.path), "HAYSTACK_TELEMETRY_ENABLED": "False"}
        self.process = subprocess.Popen(
            [sys.executable, str(worker), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, stage: Stage, *, timeout_seconds: float) -> dict[str, Any]:
        """Run the tests of a stage up to the first failure."""
        assert self.process is not None
        assert self.process.stdin is not None
        scratch = f"--basetemp={self.path.parent / (self.path.name + '-scratch')}"
        arguments = [*_ARGUMENTS, scratch, "-k", stage.only, *stage.tests]
        self.process.stdin.write(json.dumps({"arguments": arguments, "timeout_seconds": timeout_seconds}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def write(self, path: str, text: str) -> None:
        """Replace a file of the copy."""
        target = self.path / path
        target.write_text(text, encoding="utf-8")
        # Compiled files are told apart by the second and the size: two edits of one second could be taken for one.
        moment = next(_MOMENTS)
        os.utime(target, (moment, moment))

    def _answer(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("The process that runs the tests has ended.")
        answer: dict[str, Any] = json.loads(line)
        return answer


#: Any moments that nothing else is dated by.
_MOMENTS: Final = itertools.count(1_000_000_000)


class Runner:
    """
    Runs mutants in several copies of the checkout at once.

    :param workers: How many.
    :param least_seconds: Nobody is taken for hanging before.
    """

    def __init__(self, groups: Sequence[Group], *, workers: int, least_seconds: float = _LEAST_SECONDS) -> None:
        self._stages = {group.name: group.stages for group in groups}
        self._workers = workers
        self._least_seconds = least_seconds
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        self._open = ExitStack()
        self._seconds: dict[Stage, float] = {}

    def __enter__(self) -> Self:
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="mutations-")))
        for number in range(self._workers):
            self._trees.put(self._open.enter_context(Tree(folder / f"tree-{number}")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def measure(self, groups: Iterable[str]) -> float:
        """
        Run the tests without any mutant: they must pass, and how long they take decides what is too long.

        :returns: How many seconds all of them took.
        :raises BaselineFailed: If they fail.
        """
        stages = list(dict.fromkeys(stage for group in groups for stage in self._stages[group]))
        with ThreadPoolExecutor(self._workers) as pool:
            for stage, answer in zip(stages, pool.map(self._measured, stages), strict=True):
                if answer["code"] != _PASSED:
                    raise BaselineFailed(f"{' '.join(stage.tests)}\n{answer['output']}")
                self._seconds[stage] = answer["seconds"]
        return sum(self._seconds.values())

    def run(self, mutants: Sequence[Mutant], *, told: Callable[[Result], None]) -> list[Result]:
        """
        Run mutants.

        :param told: Called with each result as it comes, by one thread at a time.
        :returns: The results, in the order of the mutants.
        """
        lock = threading.Lock()

        def run_one(mutant: Mutant) -> Result:
            result = self._run(mutant)
            with lock:
                told(result)
            return result

        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(run_one, mutants))

    def _measured(self, stage: Stage) -> dict[str, Any]:
        tree = self._trees.get()
        try:
            return tree.run(stage, timeout_seconds=3600)
        finally:
            self._trees.put(tree)

    def _run(self, mutant: Mutant) -> Result:
        tree = self._trees.get()
        # The copy's, since somebody may be at work in the checkout meanwhile.
        original = (tree.path / mutant.path).read_text(encoding="utf-8")
        work = 0.0
        try:
            tree.write(mutant.path, mutant.applied(original))
            for stage in self._stages[mutant.group]:
                patience = max(self._least_seconds, _PATIENCE * self._seconds.get(stage, 0.0))
                answer = tree.run(stage, timeout_seconds=patience)
                work += answer["work_seconds"]
                if answer["code"] != _PASSED:
                    verdict: Verdict = "caught" if answer["code"] in (_FAILED, None) else "broken"
                    return Result(mutant, verdict, _reason(answer), work)
            return Result(mutant, "survived", "", work)
        finally:
            tree.write(mutant.path, original)
            self._trees.put(tree)


def _reason(answer: dict[str, Any]) -> str:
    if answer["code"] is None:
        return "timeout"
    found = next(_failures(answer["output"]), "")
    return found or str(answer["output"])[-2000:]


def _failures(output: str) -> Iterator[str]:
    for line in output.splitlines():
        found = re.match(r"(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", line)
        if found:
            yield found[1]
