"""
Room set aside on a disk for the time when it is full.

Taking something away from a database means writing to it first.
"""

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from stores.entries import close_quietly
from stores.errors import StoreError, StoreFull
from stores.system_errors import is_full, translated

#: Enough for transactions that remove some hundred sessions, until their pages are moved out of SQLite's log.
RESERVE_BYTES: Final = 8 * 2**20
#: How many files it is in. On a disk without inodes each gives one back: for SQLite's log and its index, and to spare.
RESERVE_FILES: Final = 4
#: What SQLite may need to make one file or one page of its index. With less left, a failure is the disk's.
_NEXT_TO_NOTHING: Final = 64 * 2**10
#: What a file system says that only knows blocks which are written.
_CANNOT_SET_ASIDE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


def reserve_names(database: str) -> list[str]:
    """Return what the files are called beside a database file of this name."""
    return [f"{database}-reserve{number}" for number in range(1, RESERVE_FILES + 1)]


def taken_names(database: str) -> list[str]:
    """
    Return which of these names something else has: a directory, a link, whatever is no file.

    It is neither followed nor removed, so the reserve is without that file until somebody takes the thing away.

    :raises StoreError: If the system does not let this process look.
    """
    return [path for path in reserve_names(database) if _size_of(path) is None]


class Reserve:
    """
    Files that are given up when the disk is full, so that what gives room back can still be written down.

    While one is missing nothing may make the database grow. Any number of processes may make them and give them up.
    Where something else has the name of one there is none to wait for, and what would need it has less to go by.

    :param path: Of the database file. The reserve stands beside it, in files called after it.
    :param size_bytes: Of all its files together; `0` for no reserve at all.
    """

    def __init__(self, path: Path, *, size_bytes: int = RESERVE_BYTES) -> None:
        self._folder = path.parent
        self._file_bytes = size_bytes // RESERVE_FILES
        # Given up from the first to the last and made from the last to the first: the first one, if it is a file, tells
        # whether all are there.
        self._files = reserve_names(str(path)) if size_bytes else []
        self._owed = False

    def require(self) -> None:
        """
        Make sure that it is complete.

        :raises StoreFull: If it is not and the disk has not got room enough to make it.
        """
        if not self._files or (_size_of(self._files[0]) or 0) >= self._file_bytes:
            return
        missing = self._missing()
        # Somebody may be at work with the room that was given up: that much is not free, whatever the disk says.
        if not self._has_room(2 * len(missing)):
            raise StoreFull("The disk of the database is full; nothing new is stored until there is room again.")
        self._make(missing)

    def give_up(self) -> bool:
        """Give one of its files back to the disk. Returns whether there was one."""
        for path in self._files:
            with suppress(OSError, StoreError):
                if _size_of(path) is not None:
                    os.unlink(path)
                    self._owed = True
                    return True
        return False

    def restore(self) -> None:
        """Make what this process has given up and no longer needs, as far as there is room for it."""
        if self._owed:
            with suppress(StoreError):
                self._make(self._missing())
                self._owed = False

    def _missing(self) -> list[str]:
        # Power loss may leave the name of a file and nothing in it.
        sizes = [(path, _size_of(path)) for path in self._files]
        return [path for path, size_bytes in sizes if size_bytes is not None and size_bytes < self._file_bytes]

    def _make(self, missing: list[str]) -> None:
        # Where this process may make no file, there is none to give up; whether it may write is SQLite's to say.
        with translated(), suppress(PermissionError):
            for path in reversed(missing):
                _make_file(path, self._file_bytes)

    def is_needed(self) -> bool:
        """Tell whether the disk, or this user's quota, has next to nothing left for files or for what is in them."""
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return False
        # A file system that counts no inodes says that it has none in all.
        has_none = disk.f_bavail * disk.f_frsize < _NEXT_TO_NOTHING or (disk.f_files > 0 and disk.f_favail == 0)
        return has_none or self._finds_quota_used_up()

    def _finds_quota_used_up(self) -> bool:
        # What is left of a quota is told to nobody but who tries. SQLite has tried and calls it trouble with the disk.
        if sys.platform != "linux":
            return False
        try:
            # Without a name it cannot be left behind, and is gone again with the next line.
            probe = os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(probe, 0, _NEXT_TO_NOTHING)
            finally:
                close_quietly(probe)
        except OSError as error:
            # Other errors are those of file systems that know no files without a name, or can set nothing aside.
            return is_full(error)
        return False

    def _has_room(self, files: int) -> bool:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return True
        has_inodes = disk.f_files == 0 or disk.f_favail >= files
        return has_inodes and disk.f_bavail * disk.f_frsize >= files * self._file_bytes


def _size_of(path: str) -> int | None:
    """How large a file of the reserve is, or `None` if something else has its name, where no file can be made."""
    with translated():
        try:
            found = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _make_file(path: str, size_bytes: int) -> None:
    # Another process may be at it too: what it has made is taken as it is.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _set_aside(descriptor, size_bytes)
    except OSError:
        # Half a file is room that nobody has.
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _set_aside(descriptor: int, size_bytes: int) -> None:
    if sys.platform == "linux":
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError as error:
            # Where the file system cannot set blocks aside, glibc writes them and musl does not.
            if error.errno not in _CANNOT_SET_ASIDE:
                raise
        else:
            return
    written = os.fstat(descriptor).st_size
    while written < size_bytes:
        written += os.pwrite(descriptor, bytes(size_bytes - written), written)
