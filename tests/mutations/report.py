"""What a run of mutants says: while it runs, at its end, and as JSON."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.mutations.equivalents import Key, as_entry
from tests.mutations.groups import Group
from tests.mutations.runner import Result

#: Where there is no terminal for a bar, one line for so many mutants.
_LINES_EVERY: Final = 20


@dataclass(frozen=True, slots=True)
class Report:
    """
    What became of all mutants of a run.

    :param listed: The reasons of those that are known to change nothing.
    :param gone: What is listed and does not exist.
    """

    results: Sequence[Result]
    listed: Mapping[Key, str]
    gone: Sequence[Key]

    @property
    def survivors(self) -> list[Result]:
        """Mutants that no test noticed and nobody has explained."""
        return [result for result in self.results if result.verdict == "survived" and not self._is_listed(result)]

    @property
    def excused(self) -> list[Result]:
        """Mutants that no test noticed, and why none can."""
        return [result for result in self.results if result.verdict == "survived" and self._is_listed(result)]

    @property
    def noticed_after_all(self) -> list[Result]:
        """Mutants that are listed as changing nothing, and were caught."""
        return [result for result in self.results if result.verdict == "caught" and self._is_listed(result)]

    @property
    def broken(self) -> list[Result]:
        """Mutants with which no test could be run at all: they say nothing about the tests."""
        return [result for result in self.results if result.verdict == "broken"]

    @property
    def is_good(self) -> bool:
        """Whether every mutant was caught or is explained, and every explanation holds."""
        return not (self.survivors or self.noticed_after_all or self.broken or self.gone)

    def lines(self, groups: Sequence[Group]) -> Iterator[str]:
        """Say it in words."""
        for result in self.survivors:
            yield f"SURVIVED  {result.mutant}"
            yield f"{as_entry(result.mutant)}\n"
        for result in self.broken:
            yield f"BROKEN    {result.mutant}\n{result.by}\n"
        for result in self.noticed_after_all:
            yield f"CAUGHT, though listed as changing nothing:  {result.mutant}\n          by {result.by}\n"
        for key in self.gone:
            yield f"LISTED, but no such mutant can be made:  {' | '.join(map(str, key))}\n"
        for group in groups:
            counts = self._counts(group.name)
            if counts["total"]:
                yield _line(group.name, counts, group.what)
        minutes = sum(result.work_seconds for result in self.results) / 60
        yield _line("all", self._counts(None), f"{minutes:.1f} minutes of a processor")

    def as_json(self, groups: Sequence[Group]) -> str:
        """Say it for a program."""
        mutants = [
            {
                "group": result.mutant.group,
                "file": result.mutant.path,
                "line": result.mutant.line,
                "owner": result.mutant.owner,
                "taken": result.mutant.taken,
                "given": result.mutant.given,
                "verdict": result.verdict,
                "by": result.by,
                "reason": self.listed.get(result.mutant.key),
                "work_seconds": round(result.work_seconds, 2),
            }
            for result in self.results
        ]
        totals = {group.name: self._counts(group.name) for group in groups}
        whole = {"good": self.is_good, "totals": {**totals, "all": self._counts(None)}, "gone": self.gone}
        return json.dumps({**whole, "mutants": mutants}, indent=1)

    def _is_listed(self, result: Result) -> bool:
        return result.mutant.key in self.listed

    def _counts(self, group: str | None) -> dict[str, int]:
        results = [result for result in self.results if group in (None, result.mutant.group)]
        caught = [result for result in results if result.verdict == "caught"]
        return {
            "caught": len(caught),
            "timeouts": sum(result.by == "timeout" for result in caught),
            "changes_nothing": sum(result.verdict == "survived" and self._is_listed(result) for result in results),
            "total": len(results),
        }


def _line(name: str, counts: Mapping[str, Any], remark: str) -> str:
    caught = f"{counts['caught']}/{counts['total']} caught"
    late = f", {counts['timeouts']} of them by running out of time" if counts["timeouts"] else ""
    excused = f", {counts['changes_nothing']} change nothing" if counts["changes_nothing"] else ""
    return f"{name + ':':11}{caught}{late}{excused}  ({remark})"


@contextmanager
def progress(total: int) -> Iterator[Callable[[Result], None]]:
    """Show how far it is, and name survivors as they come."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("mutants", total=total)
        done = itertools.count(1)

        def told(result: Result) -> None:
            bar.advance(task)
            if (number := next(done)) % _LINES_EVERY == 0 and not console.is_terminal:
                console.print(f"{number} of {total}", highlight=False)
            if result.verdict != "caught":
                console.print(f"{result.verdict}: {result.mutant}", markup=False, highlight=False, soft_wrap=True)

        yield told
