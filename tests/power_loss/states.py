"""
Every state in which a power loss may leave what was recorded.

The rules are the strictest that POSIX allows, stricter than what ext4 and xfs do. The bytes of a file are safe after a
sync of that file, a name after a sync of its directory, and neither by the other. What is not safe may be lost or be
there, in any combination, whatever the order it was done in. A name goes from one directory to another in one step and
is safe there with the sync of either. Bytes on their way may be there in half, or only the size they gave the file.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.power_loss.operations import Change, Link, Mark, Mode, Operation, Rename, Resize, Sync, Unlink, Write
from tests.power_loss.volume import Grown, Volume

#: Up to so many operations on their way, all subsets of them are tried.
ALL_SUBSETS_UP_TO: Final = 10
#: Of more, these many subsets taken by chance at each moment, besides those chosen by `some_subsets`.
SAMPLE: Final = 16

#: What is there of the operations on their way: the place of each in the recording, and in which of its `forms`.
Way = frozenset[tuple[int, int]]


@dataclass(slots=True)
class Ground:
    """
    What is safe at a moment, and what is not yet.

    :param pending: Each operation that is not, with its place in the recording.
    """

    safe: Volume
    pending: list[tuple[int, Change]] = field(default_factory=list)

    def advance(self, place: int, operation: Operation) -> None:
        """Go on by one operation."""
        if isinstance(operation, Sync):
            self._settle(operation)
        elif not isinstance(operation, Mark):
            self.pending.append((place, operation))

    def _settle(self, sync: Sync) -> None:
        self.safe = self.safe.copy()
        waiting: list[tuple[int, Change]] = []
        for place, change in self.pending:
            if not _is_settled(change, sync):
                waiting.append((place, change))
                continue
            if isinstance(change, Rename):
                # Where it came from and where it went, whatever was done there before is settled with it.
                spots = {(change.directory, change.name), (change.to_directory, change.to_name)}
                waiting = [(before, other) for before, other in waiting if not _spots(other) & spots]
            self.safe.apply(change)
        self.pending = waiting

    def state(self, way: Way) -> Volume:
        """Return what there is if of what is pending so much came through."""
        volume = self.safe.copy()
        found = dict(way)
        for place, change in self.pending:
            if place in found:
                volume.apply(forms(change)[found[place]])
        return volume


def _is_settled(change: Change, sync: Sync) -> bool:
    match change:
        case Link() | Unlink():
            return change.directory == sync.node
        case Rename():
            return sync.node in (change.directory, change.to_directory)
        case Mode():
            return change.node == sync.node and not sync.data_only
        case Write() | Resize():
            return change.node == sync.node


def _spots(change: Change) -> set[tuple[int, str]]:
    """The names it changes, each in its directory."""
    match change:
        case Link() | Unlink():
            return {(change.directory, change.name)}
        case Rename():
            return {(change.directory, change.name), (change.to_directory, change.to_name)}
    return set()


def _of(change: Change) -> int:
    """The file or directory it changes; of a rename, where it comes from."""
    return change.directory if isinstance(change, Link | Unlink | Rename) else change.node


def forms(change: Change) -> list[Change | Grown]:
    """Return in which forms an operation may come through: whole first; of bytes also in part."""
    if not isinstance(change, Write):
        return [change]
    half = len(change.data) // 2
    return [
        change,
        Write(change.node, change.offset, change.data[:half]),
        Write(change.node, change.offset + half, change.data[half:]),
        Grown(change.node, change.offset + len(change.data)),
    ]


def whole(ground: Ground) -> Way:
    """Return the way on which nothing is lost: the death of the process leaves that and nothing else."""
    return _all_of(place for place, _ in ground.pending)


def ways(ground: Ground, *, chance: random.Random) -> Iterator[Way]:
    """Go through what may be left at this moment: all of it, or for very many operations see `some_subsets`."""
    places = [place for place, _ in ground.pending]
    if len(places) <= ALL_SUBSETS_UP_TO:
        yield from _combined([[place] for place in places])
    else:
        yield from some_subsets(ground, chance=chance)
    yield from _torn(ground)


def some_subsets(ground: Ground, *, chance: random.Random) -> Iterator[Way]:
    """
    Go through some of very many subsets: every prefix, each operation missing, each alone, every combination of files
    and directories of which all or nothing came through (all combinations of the first few if there are very many of
    these too), and some by chance.
    """
    everything = whole(ground)
    places = [place for place, _ in ground.pending]
    for number, place in enumerate(places):
        yield _all_of(places[:number])
        yield everything - {(place, 0)}
        yield _all_of([place])
    together: dict[int, list[int]] = {}
    for place, change in ground.pending:
        together.setdefault(_of(change), []).append(place)
    groups = list(together.values())
    yield from _combined(groups[:ALL_SUBSETS_UP_TO])
    yield everything
    for _ in range(SAMPLE):
        yield _all_of([place for place in places if chance.random() < 0.5])


def _combined(groups: Sequence[Sequence[int]]) -> Iterator[Way]:
    for flags in itertools.product((True, False), repeat=len(groups)):
        yield _all_of(itertools.chain.from_iterable(itertools.compress(groups, flags)))


def _all_of(places: Iterable[int]) -> Way:
    return frozenset((place, 0) for place in places)


def _torn(ground: Ground) -> Iterator[Way]:
    """Each of the last writes in part: with all else there, and with only what was done before it."""
    everything = whole(ground)
    for place, change in ground.pending[-ALL_SUBSETS_UP_TO:]:
        before = frozenset((at, form) for at, form in everything if at < place)
        for form in range(1, len(forms(change))):
            yield (everything - {(place, 0)}) | {(place, form)}
            yield before | {(place, form)}
