"""Many threads doing random operations as fast as they go, and an honest count of what became of each."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.attacks.outside import MARK

#: Does something; returns what it got, and what it must have got.
Operation = Callable[[], tuple[object, object]]
DONE: Final = (None, None)
_AT_ONCE: Final = 20


@dataclass(slots=True)
class Tally:
    """
    What became of operations.

    :param answered: Came back with what was asked for.
    :param refused: Ended in one of the errors that count as an answer, by its name.
    :param foreign: Came back with something from outside: an escape.
    :param wrong: Came back with something else that is not right.
    :param faults: Ended in any other exception.
    """

    answered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def operations(self) -> int:
        """All that were begun; each ended."""
        return self.answered + sum(counted.total() for counted in self._counted())

    def __add__(self, other: "Tally") -> "Tally":
        pairs = zip(self._counted(), other._counted(), strict=True)
        return Tally(self.answered + other.answered, *(one + another for one, another in pairs))

    def _counted(self) -> tuple[Counter[str], ...]:
        return self.refused, self.foreign, self.wrong, self.faults


def hammer(
    workers: list[dict[Operation, int]],
    *,
    refusals: tuple[type[Exception], ...],
    go_on: Callable[[], bool],
    count: Callable[[int], None],
) -> Tally:
    """
    Let each worker do its operations in a thread of its own.

    :param workers: Operations, and how often each comes up compared to the others.
    :param refusals: Which exceptions are answers.
    :param go_on: Asked now and then whether to.
    :param count: Told now and then how many operations there were since it was last told.
    """
    tallies = [Tally() for _ in workers]

    def work(number: int) -> None:
        chance = random.Random(number)
        operations, weights = list(workers[number]), list(workers[number].values())
        while go_on():
            for operation in chance.choices(operations, weights, k=_AT_ONCE):
                _count(operation, tallies[number], refusals)
            count(_AT_ONCE)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(tallies, Tally())


def _count(operation: Operation, tally: Tally, refusals: tuple[type[Exception], ...]) -> None:
    try:
        found, expected = operation()
    except refusals as error:
        tally.refused[type(error).__name__] += 1
    except Exception as error:
        tally.faults[f"{operation.__name__}: {type(error).__name__}: {error}"] += 1
    else:
        if found == expected:
            tally.answered += 1
        elif _is_foreign(found):
            tally.foreign[operation.__name__] += 1
        else:
            tally.wrong[operation.__name__] += 1


def _is_foreign(found: object) -> bool:
    if isinstance(found, str):
        found = found.encode("utf-8", "surrogatepass")
    # A listing holds names that are only outside, or none that is wrong.
    return MARK in found or found in MARK * 2 if isinstance(found, bytes) else True
