"""
A process that swaps directories and files below a root for links, as fast as it can.

Each swap is two `renameat2(RENAME_EXCHANGE)`: the entry and a link that leads outside change places, and change back at
once. Nothing is ever missing, and at any moment a name may lead elsewhere than it did a microsecond before.
"""

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.attacks.outside import Outside
from tests.stores.files import exchange

#: Of a directory's files so many are swapped in one round, or a large directory would keep all others waiting.
_FILES_A_ROUND: Final = 2


class Swapper:
    """
    Attacks one root.

    It keeps to descriptors itself. Links that it planted lie about in the trash for a moment, and whatever it did
    through one of them would look as if the store had done it.

    :param root: Holds directories that hold directories that hold files.
    :param attic: An empty directory on the same file system.
    :param outside: Where the links lead.
    """

    def __init__(self, root: Path, *, attic: Path, outside: Outside) -> None:
        self._root = root
        self._attic_path = attic
        self._attic = -1
        self._outside = outside
        self._chance = random.Random(1)
        self._planted: set[str] = set()
        self._lost = 0
        self.swaps = 0

    def run(self, *, go_on: Callable[[], bool]) -> None:
        """
        Go round and round. Afterwards everything is in its place again.

        :param go_on: Asked before each room whether to.
        """
        with _opened(self._attic_path) as self._attic, _opened(self._root) as root:
            while go_on():
                for outer in os.listdir(root):
                    with suppress(OSError), _opened(outer, root) as held:
                        self._swap_below(held, go_on=go_on, above=lambda name=outer: self._swap_folder(root, name))

    def _swap_below(self, outer: int, *, go_on: Callable[[], bool], above: Callable[[], None]) -> None:
        for name in os.listdir(outer):
            if not go_on():
                return
            above()
            self._swap(outer, name, self._outside.room, os.symlink)
            with suppress(OSError), _opened(name, outer) as room:
                self._swap_files(room)

    def _swap_folder(self, root: int, name: str) -> None:
        self._swap(root, name, self._outside.outer, os.symlink)

    def _swap_files(self, room: int) -> None:
        names = os.listdir(room)
        for name in self._chance.sample(names, min(len(names), _FILES_A_ROUND)):
            self._swap(room, name, self._outside.file(name), os.symlink)
            self._swap(room, name, self._outside.hard(name), os.link)

    def _swap(self, directory: int, entry: str, target: str, plant: Callable[..., None]) -> None:
        decoy = f"{plant.__name__} {'-'.join(target.split('/')[-2:])}"
        if decoy not in self._planted:
            plant(target, decoy, **({"dir_fd": self._attic} if plant is os.symlink else {"dst_dir_fd": self._attic}))
            self._planted.add(decoy)
        try:
            exchange(entry, decoy, first_fd=directory, second_fd=self._attic)
        except OSError:
            return  # the entry was removed before its turn came
        self.swaps += 1
        try:
            exchange(entry, decoy, first_fd=directory, second_fd=self._attic)
        except OSError:
            # The link was removed in place of the entry.
            with suppress(OSError):
                os.rename(decoy, entry, src_dir_fd=self._attic, dst_dir_fd=directory)
        if not self._is(decoy, target, plant):
            # The entry was removed and made anew in between. What came back, if anything, is that one.
            self._planted.discard(decoy)
            self._lost += 1
            with suppress(FileNotFoundError):
                os.rename(decoy, f"lost {self._lost}", src_dir_fd=self._attic, dst_dir_fd=self._attic)

    def _is(self, decoy: str, target: str, plant: Callable[..., None]) -> bool:
        try:
            found = os.stat(decoy, dir_fd=self._attic, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISLNK(found.st_mode) if plant is os.symlink else found.st_ino == os.stat(target).st_ino


@contextmanager
def _opened(name: str | Path, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
