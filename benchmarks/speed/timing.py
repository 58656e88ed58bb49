"""Interleaved timing: blocks of calls in random order, so that whatever disturbs the machine disturbs all alike."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Call = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Times:
    """
    How long calls took.

    :param median_us: In microseconds.
    :param spread: A quarter of them was faster, and a quarter slower, than the median by this part of it.
    """

    median_us: float
    spread: tuple[float, float]
    p99_us: float
    count: int


def interleaved(contenders: Mapping[str, Call], *, rounds: int, block: int, seed: int = 0) -> dict[str, Times]:
    """
    Time calls in blocks. The first round warms up and does not count.

    :param contenders: By name; each is called with a number that goes up.
    :param rounds: How many blocks each has.
    :param block: How many calls a block has.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    numbers = dict.fromkeys(contenders, 0)
    order, chance = list(contenders), random.Random(seed)  # noqa: S311 - no secret
    with _undisturbed():
        for turn in range(rounds + 1):
            chance.shuffle(order)
            for name in order:
                call, number = contenders[name], numbers[name]
                for _ in range(block):
                    began = time.perf_counter()
                    call(number)
                    ended = time.perf_counter()
                    number += 1
                    if turn:
                        taken[name].append(ended - began)
                numbers[name] = number
            # Between the blocks, and the same for everybody.
            gc.collect()
    return {name: _times(seconds) for name, seconds in taken.items()}


@contextmanager
def _undisturbed() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    # What was there before stays, and to look through all of it between blocks takes longer than most blocks do.
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _times(seconds: list[float]) -> Times:
    ordered = sorted(seconds)
    median = statistics.median(ordered)
    low, high = ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Times(median * 1e6, (1 - low / median, high / median - 1), p99 * 1e6, len(ordered))
