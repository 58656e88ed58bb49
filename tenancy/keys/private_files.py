"""How a file of keys is written: by one process at a time, for its owner only, and with no copy left behind."""

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tenancy.errors import AlreadyRunning
from tenancy.keys.keyset import MAX_DOCUMENT_BYTES

_OWNER_ONLY: Final = 0o600
_RANDOM_BYTES: Final = 8
_POLL_SECONDS: Final = 0.01


@contextlib.contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Open a directory, for the length of a block."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        # What was done in it was confirmed by then, or not, by other calls.
        with contextlib.suppress(OSError):
            os.close(directory)


def take_lock(directory: int) -> bool:
    """
    Keep all others out who take this lock, of this process too, until the directory is closed or the process dies.

    It is on the directory: a file that is replaced would take its lock with it.

    :returns: Whether it is ours now.
    :raises OSError: If the file system has no such locks.
    """
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked_directory(path: Path, *, wait_seconds: float) -> Iterator[int]:
    """
    Open a directory and take its lock, for the length of a block.

    :raises AlreadyRunning: If somebody else still has it after that long.
    :raises OSError: If the file system has no such locks.
    """
    with opened_directory(path) as directory:
        deadline = time.monotonic() + wait_seconds
        while not take_lock(directory):
            if time.monotonic() >= deadline:
                raise AlreadyRunning("Somebody else is changing key files in this directory. Nothing was changed.")
            time.sleep(_POLL_SECONDS)
        try:
            yield directory
        finally:
            # Not left to closing: a child that another thread has forked meanwhile has the directory open too.
            fcntl.flock(directory, fcntl.LOCK_UN)


def temporary_name(name: str) -> str:
    """Make up a name for a file that is not complete yet."""
    return f".{name}.{secrets.token_hex(_RANDOM_BYTES)}"


def write_private(directory: int, name: str, document: bytes, *, after_ns: int | None = None) -> None:
    """
    Write a new file of mode 0600 and have its bytes on the disk.

    :param after_ns: When the file that this one is to replace was written, in nanoseconds since 1970. This one was
        written later, whatever the clock says: numbers of inodes come back, and a clock has ticks and is set.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, _OWNER_ONLY, dir_fd=directory)
    with open(descriptor, "wb") as file:
        # The mode of `open` passes through the umask, which may take the owner's bits too.
        os.fchmod(descriptor, _OWNER_ONLY)
        file.write(document)
        file.flush()
        if after_ns is not None:
            written_ns = max(time.time_ns(), after_ns + 1)
            os.utime(descriptor, ns=(written_ns, written_ns))
        os.fsync(descriptor)


def remove_unfinished(directory: int, name: str) -> None:
    """
    Remove the files that were to get this name and did not, and overwrite them.

    :param directory: Its lock is the caller's.
    :raises OSError: If one of them stays.
    """
    temporary = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
    for leftover in filter(temporary.fullmatch, os.listdir(directory)):
        with overwritten(directory, leftover):
            os.unlink(leftover, dir_fd=directory)


@contextlib.contextmanager
def overwritten(directory: int, name: str) -> Iterator[None]:
    """
    Overwrite a file with zeros when the block that takes its name away is left, as far as the system lets us.

    A file that has another name is left as it is: whoever gave it that wants to keep it.
    """
    descriptor = None
    with contextlib.suppress(OSError):
        # O_NONBLOCK: a FIFO in its place must not hang us.
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=directory)
    try:
        yield
        with contextlib.suppress(OSError):
            if descriptor is not None and os.fstat(descriptor).st_nlink == 0:
                _overwrite(descriptor)
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _overwrite(descriptor: int) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        # No file of keys is larger, and what is no file of keys is none of ours.
        file.write(bytes(min(os.fstat(descriptor).st_size, MAX_DOCUMENT_BYTES)))
    os.fsync(descriptor)
