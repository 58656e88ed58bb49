"""
Measures what a process gets that swaps directories and files for links while they are used.

    python -m tests.attacks.swapping --seconds 10 --operations 100000

Two attacks, one after the other, each by one process of `swapper`. Each lasts the seconds asked for, and on a machine
too busy for the operations asked for goes on until they are done:

* on the files of a `SessionManager` with all results in files and two directories kept open. One process uses the
  manager in three threads: reads, pages, listings, writes, deletes, deletes of sessions, cleanup, verify. Two more do
  the same to the store below it, without catalogue and cipher, in two threads each: the cipher alone would refuse
  whatever is read from outside, so it is there that a wrong byte would show.
* on the files of Haystack's `FileSystemToolResultStore`, read and written by two processes in two threads each.

An operation is one call that was begun and ended, in an answer or in a typed refusal; the manager's and the store's are
counted apart. An escape is a call that returned something from outside, or a thing outside that was made, changed or
removed. A swap is two exchanges, there and back.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from haystack.hooks.tool_result_offloading import FileSystemToolResultStore

from stores.errors import StoreError
from tenancy import TenancyError
from tenancy.startup import RESULTS_FOLDER
from tests.attacks.hammering import Operation, Tally, hammer
from tests.attacks.outside import Outside, differences, files_of
from tests.attacks.processes import Pace, Task, Work, at_once
from tests.attacks.swapper import Swapper
from tests.attacks.victims import (
    HaystackUser,
    ManagerUser,
    StoreUser,
    content_of,
    fill_haystack,
    fill_manager,
    lasting_sessions,
    opened_manager,
    opened_store,
)

_COLUMNS = ("", "operations", "answered", "refused", "wrong", "faults", "from outside", "changed outside", "swaps", "s")


@dataclass(frozen=True, slots=True)
class Report:
    """
    What came of one attack.

    :param tallies: What became of the operations, by what was attacked.
    :param changed: What is not outside as it was before.
    """

    tallies: dict[str, Tally]
    swaps: int
    changed: list[str]
    seconds: float

    @property
    def total(self) -> Tally:
        """All operations."""
        return sum(self.tallies.values(), Tally())

    @property
    def escapes(self) -> int:
        """Answers from outside, and things changed outside."""
        return self.total.foreign.total() + len(self.changed)


def attack_ours(folder: Path, *, seconds: float, operations: int) -> Report:
    """
    Attack a manager and the store below it.

    :param folder: Empty.
    :raises AssertionError: If a result that nobody deleted is not there afterwards, or a counter is wrong.
    """
    data = folder / "data"
    fill_manager(data)
    victims = {"manager": [(use_manager, (data,))], "store": [(use_store, (data,))] * 2}
    report = _attack(folder, data / RESULTS_FOLDER, victims, seconds=seconds, operations=operations)
    with opened_manager(data) as manager:
        for session in lasting_sessions(manager):
            for result in session.results():
                assert session.read(result.reference) == content_of(session, int(result.name))
        assert not [finding for finding in manager.verify().findings if finding.kind == "wrong_usage"]
    return report


def attack_haystack(folder: Path, *, seconds: float, operations: int) -> Report:
    """
    Attack Haystack's store.

    :param folder: Empty.
    """
    root = folder / "root"
    fill_haystack(FileSystemToolResultStore(root))
    return _attack(folder, root, {"Haystack": [(use_haystack, (root,))] * 2}, seconds=seconds, operations=operations)


@contextmanager
def use_manager(data: Path) -> Iterator[Work]:
    """Ready to use a manager."""
    with opened_manager(data) as manager:
        yield _hammering([ManagerUser(manager, number).operations for number in range(3)], TenancyError)


@contextmanager
def use_store(data: Path) -> Iterator[Work]:
    """Ready to use the store below a manager."""
    store, root = opened_store(data), data / RESULTS_FOLDER
    files = {place: root.joinpath(*place).read_bytes() for place in files_of(root)}
    yield _hammering([StoreUser(store, files, number).operations for number in range(2)], StoreError)
    store.close()


@contextmanager
def use_haystack(root: Path) -> Iterator[Work]:
    """Ready to use Haystack's store."""
    store = FileSystemToolResultStore(root)
    results = fill_haystack(store)
    workers = [HaystackUser(store, results, number).operations for number in range(2)]
    yield _hammering(workers, ValueError, OSError)


@contextmanager
def swap(root: Path, attic: Path, outside: Outside) -> Iterator[Work]:
    """Ready to attack."""
    swapper = Swapper(root, attic=attic, outside=outside)

    def work(pace: Pace) -> int:
        swapper.run(go_on=pace.go_on)
        return swapper.swaps

    yield work


def _hammering(workers: list[dict[Operation, int]], *refusals: type[Exception]) -> Work:
    return lambda pace: hammer(workers, refusals=refusals, go_on=pace.go_on, count=pace.count)


def _attack(folder: Path, root: Path, victims: dict[str, list[Task]], *, seconds: float, operations: int) -> Report:
    outside, attic = Outside(folder / "outside"), folder / "attic"
    outside.fill(files_of(root))
    attic.mkdir()
    before = outside.snapshot()
    names = [name for name, tasks in victims.items() for _ in tasks]
    tasks = [task for tasks in victims.values() for task in tasks]
    taken, (swaps, *tallies) = at_once([(swap, (root, attic, outside)), *tasks], seconds=seconds, operations=operations)
    by_name: dict[str, Tally] = {}
    for name, tally in zip(names, tallies, strict=True):
        by_name[name] = by_name.get(name, Tally()) + tally
    return Report(by_name, swaps, differences(before, outside.snapshot()), taken)


def table(reports: dict[str, Report]) -> str:
    """Return what a person wants to see of it."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for name, report in reports.items():
        if len(report.tallies) > 1:
            rows += [(f"  {part}", *_cells(tally), "", "", "") for part, tally in report.tallies.items()]
        whole = f"{len(report.changed):,}", f"{report.swaps:,}", f"{report.seconds:.1f}"
        rows.append((name, *_cells(report.total), *whole))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *cells[1:]]) for row, cells in zip(rows, aligned, strict=True))


def _cells(tally: Tally) -> list[str]:
    counted = (tally.refused, tally.wrong, tally.faults, tally.foreign)
    return [f"{count:,}" for count in (tally.operations, tally.answered, *(one.total() for one in counted))]


def main() -> int:
    """Attack both, print what came of it, and end with 1 if ours let anything out or Haystack's nothing."""
    parser = argparse.ArgumentParser(description="Swap directories and files for links under two stores.")
    parser.add_argument("--seconds", type=float, default=10, help="how long to attack each at least")
    parser.add_argument("--operations", type=int, default=100_000, help="how many operations each does at least")
    wanted = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as name:
        for part in ("ours", "haystack"):
            Path(name, part).mkdir(mode=0o700)
        ours = attack_ours(Path(name, "ours"), **wanted)
        haystacks = attack_haystack(Path(name, "haystack"), **wanted)
    print(table({"ours": ours, "Haystack": haystacks}))
    for who, report in (("ours", ours), ("Haystack", haystacks)):
        for kind in ("refused", "foreign", "wrong", "faults"):
            for what, count in getattr(report.total, kind).most_common(6):
                print(f"{who}: {kind}: {count:,} x {what}")
        print(*(f"{who}: changed outside: {what}" for what in report.changed[:6]), sep="\n")
    return int(ours.escapes > 0 or haystacks.escapes == 0)


if __name__ == "__main__":
    sys.exit(main())
