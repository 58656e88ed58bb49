"""Open directories, a bounded number of them kept between uses."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stores.entries import close_quietly
from stores.errors import StoreUnavailable
from stores.locks import ProcessLock


class Directory:
    """
    One open directory.

    :param descriptor: Belongs to this object from now on.
    """

    __slots__ = ("anchored", "descriptor", "kept", "users")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        #: Whether the entries that lead here are known to be on disk.
        self.anchored = False
        self.kept = True
        self.users = 0

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode, which no other directory has while this one is open."""
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino


class Directories:
    """
    A root, and the directories last used below it.

    Nothing is closed while a thread uses it: a number closed too early may be another file's by the next system call.
    Safe for threads. A forked child may use the descriptors it inherits, which share nothing that is used here.

    :param root: The root's descriptor; belongs to this object from now on.
    :param limit: How many directories are kept open between uses.
    """

    def __init__(self, root: int, *, limit: int) -> None:
        self._root = Directory(root)
        self._limit = limit
        self._kept: OrderedDict[tuple[str, str], Directory] = OrderedDict()
        self._lock = ProcessLock()
        self._closed = False

    @contextmanager
    def root(self) -> Iterator[Directory]:
        """
        Use the root.

        :raises StoreUnavailable: If everything was closed.
        """
        with self._lock:
            if self._closed:
                raise StoreUnavailable("The store was closed.")
            self._root.users += 1
        try:
            yield self._root
        finally:
            self._leave(self._root)

    @contextmanager
    def hold(
        self, key: tuple[str, str], open_directory: Callable[[], int], *, is_current: Callable[[Directory], bool]
    ) -> Iterator[Directory]:
        """
        Use a directory. After any exception it is not kept, so that the next call finds its way from the root again.

        :param open_directory: Opens it if it is not among the kept ones.
        :param is_current: Whether a kept one may still be used.
        """
        directory = self._find(key)
        if directory is not None and not self._is_of_use(key, directory, is_current):
            directory = None
        if directory is None:
            directory = self._keep(key, open_directory())
        try:
            yield directory
        except BaseException:
            self._forget(key, directory)
            raise
        finally:
            self._leave(directory)

    def forget(self, key: tuple[str, str]) -> None:
        """Keep this directory no longer."""
        with self._lock:
            directory = self._kept.get(key)
        if directory is not None:
            self._forget(key, directory)

    def close(self) -> None:
        """Close all, each as soon as nobody uses it. May be repeated."""
        with self._lock:
            self._closed = True
            for directory in (self._root, *self._kept.values()):
                self._let_go(directory)
            self._kept.clear()

    def _find(self, key: tuple[str, str]) -> Directory | None:
        with self._lock:
            directory = self._kept.get(key)
            if directory is not None:
                directory.users += 1
                self._kept.move_to_end(key)
            return directory

    def _is_of_use(self, key: tuple[str, str], directory: Directory, is_current: Callable[[Directory], bool]) -> bool:
        current = False
        try:
            current = is_current(directory)
        finally:
            if not current:
                self._forget(key, directory)
                self._leave(directory)
        return current

    def _keep(self, key: tuple[str, str], descriptor: int) -> Directory:
        directory = Directory(descriptor)
        directory.users = 1
        with self._lock:
            replaced = self._kept.pop(key, None)
            if replaced is not None:
                self._let_go(replaced)
            if self._closed:
                directory.kept = False
                return directory
            self._kept[key] = directory
            while len(self._kept) > self._limit:
                self._let_go(self._kept.popitem(last=False)[1])
        return directory

    def _forget(self, key: tuple[str, str], directory: Directory) -> None:
        with self._lock:
            # Another thread may have put a newer one there.
            if self._kept.get(key) is directory:
                del self._kept[key]
                self._let_go(directory)

    def _leave(self, directory: Directory) -> None:
        with self._lock:
            directory.users -= 1
            if directory.users == 0 and not directory.kept:
                close_quietly(directory.descriptor)

    @staticmethod
    def _let_go(directory: Directory) -> None:
        if directory.kept:
            directory.kept = False
            if directory.users == 0:
                close_quietly(directory.descriptor)
