"""Which faults are tried at which calls: all of them, or so few that a test has the time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.faults.injector import KILL, MODES, Seen
from tests.faults.operations import Operation


@dataclass(frozen=True, slots=True)
class Shot:
    """
    One fault at one call.

    :param mode: One of `MODES`.
    :param number: Which of the calls that a fault of this kind can strike, from 1 on.
    """

    mode: str
    number: int


#: Says which faults to try in an operation, from all of its calls.
Plan = Callable[[Operation, Sequence[Seen]], list[Shot]]

#: A trial takes about a tenth of a second.
_VERY_MANY: Final = 250

#: What changes something that another process can see. A death just before anything else leaves what the call before
#: it left: only right after one of these there is a new state to look at.
_CHANGES: Final = frozenset(
    {"write", "pwrite64", "ftruncate", "mkdir", "mkdirat", "unlink", "unlinkat", "rename", "renameat", "linkat",
     "openat", "chmod", "fchmod"}
)  # fmt: skip


def every(operation: Operation, calls: Sequence[Seen]) -> list[Shot]:
    """Every kind of fault at every call that it can strike."""
    return [Shot(mode, number) for mode in MODES for number, _ in enumerate(_hit(calls, mode), start=1)]


def brief(operation: Operation, calls: Sequence[Seen]) -> list[Shot]:
    """
    Everything where results come and go one at a time. Elsewhere every call is struck by one error or short write,
    which take turns, and a death follows every change; where there are very many calls, every third of these. What is
    left out is for the command line.
    """
    if operation.is_everyday:
        return every(operation, calls)
    step = 3 if len(_hit(calls, MODES[0])) > _VERY_MANY else 1
    return [*_in_turn(calls, step=step), *list(_after_changes(calls))[::step]]


def only(modes: Sequence[str], plan: Plan) -> Plan:
    """Leave out the other kinds of faults."""
    return lambda operation, calls: [shot for shot in plan(operation, calls) if shot.mode in modes]


def _hit(calls: Sequence[Seen], mode: str) -> list[Seen]:
    return [call for call in calls if call.is_hit_by(mode)]


def _in_turn(calls: Sequence[Seen], *, step: int) -> Iterator[Shot]:
    modes = [mode for mode in MODES if mode != KILL]
    counts = dict.fromkeys(modes, 0)
    turn, hit = 0, 0
    for call in calls:
        possible = [mode for mode in modes if call.is_hit_by(mode)]
        for mode in possible:
            counts[mode] += 1
        if possible and hit % step == 0:
            mode = possible[turn % len(possible)]
            turn += 1
            yield Shot(mode, counts[mode])
        hit += bool(possible)


def _after_changes(calls: Sequence[Seen]) -> Iterator[Shot]:
    for number, (before, _) in enumerate(pairwise(calls), start=2):
        if before.target is not None and before.name in _CHANGES:
            yield Shot(KILL, number)
