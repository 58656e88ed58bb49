"""
Single steps relative to a held directory: one component, never a path, never through a symbolic link.

Names are checked here, in front of the system call, so that nothing above has to be trusted with it.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from stores.errors import BlobCorrupt, BlobNotFound, StoreDenied
from stores.names import is_name, require_name

#: Where destroyed rooms wait to be emptied. No stored name is this short.
TRASH: Final = "trash"
#: Where blobs are moved that nobody knows. No stored name is this short.
QUARANTINE: Final = "quarantine"

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def _flags(*names: str) -> int:
    # Windows lacks some; there `open_root` refuses, and importing must not fail before it can.
    return sum(getattr(os, name, 0) for name in names)


_OPEN_DIRECTORY: Final = _flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
_CREATE: Final = _flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC")
#: O_NONBLOCK: a FIFO in place of a file must not wait for a writer. O_NOCTTY: nor a terminal become ours.
_READ: Final = _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")


@contextmanager
def opened_directory(parent: int, name: str, *, owner: int, create: bool = False) -> Iterator[int]:
    """Open a directory for the length of a `with` block. See `open_directory`."""
    descriptor = open_directory(parent, name, owner=owner, create=create)
    try:
        yield descriptor
    finally:
        close_quietly(descriptor)


def open_directory(parent: int, name: str, *, owner: int, create: bool = False) -> int:
    """
    Open one directory below another.

    :param owner: The uid it must belong to.
    :param create: Make it if it is missing, with mode 0700 under any umask that leaves the owner's own right to read.
    :returns: A descriptor that the caller closes.
    :raises FileNotFoundError: If it is missing; with `create`, if `parent` itself was removed.
    :raises StoreDenied: If it belongs to another user.
    """
    if name not in (TRASH, QUARANTINE):
        require_name(name)
    try:
        descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
        with suppress(FileExistsError):
            make_directory(parent, name)
        descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    try:
        _make_private(descriptor, owner=owner)
    except BaseException:
        close_quietly(descriptor)
        raise
    return descriptor


def make_directory(parent: int, name: str) -> None:
    """
    Make a directory that its owner can open. Its mode may still lack the right to write.

    :raises FileExistsError: If anything stands under this name.
    :raises StoreDenied: If the umask takes the owner's own right to read. Nothing is left behind.
    """
    os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not status.st_mode & stat.S_IRUSR:
        # Without it no descriptor can be had, and a mode is changed by descriptor only.
        os.rmdir(name, dir_fd=parent)
        raise StoreDenied("The umask takes away the owner's own rights; start this process with umask 077.")


def _make_private(directory: int, *, owner: int) -> None:
    status = os.fstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
        raise StoreDenied("A directory of the store belongs to another user; give it back to the root's owner.")
    # The umask took bits away: ours, or that of a process which died before it came to this line.
    if stat.S_IMODE(status.st_mode) & 0o777 != DIRECTORY_MODE:
        os.fchmod(directory, DIRECTORY_MODE)


@contextmanager
def new_file(directory: int, name: str, *, owner: int) -> Iterator[int]:
    """
    Create a file of mode 0600 and keep it only if the `with` block ends well; otherwise it is removed again.

    The file stands under its final name at once. A temporary name and a link would give it two links for a moment,
    and readers take a second link for an attack; what protects them from half a file is the size they expect.

    :returns: A descriptor to write to. It is closed at the end of the block.
    :raises FileExistsError: If anything at all stands under this name. It is untouched.
    """
    require_name(name)
    descriptor = os.open(name, _CREATE, FILE_MODE, dir_fd=directory)
    identity = None
    try:
        try:
            identity = _claim_file(descriptor, owner=owner)
            yield descriptor
        finally:
            # Some network file systems report a full disk only now.
            os.close(descriptor)
    except BaseException:
        _take_back(directory, name, identity)
        raise


def _claim_file(descriptor: int, *, owner: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    if status.st_uid != owner:
        raise StoreDenied("Files made here belong to another user; check how the file system maps users.")
    if stat.S_IMODE(status.st_mode) & 0o777 != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)
    return status.st_dev, status.st_ino


def _take_back(directory: int, name: str, identity: tuple[int, int] | None) -> None:
    # The first error is the one to report. What may stay behind is a file that no row speaks of.
    with suppress(OSError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if identity is None or identity == (status.st_dev, status.st_ino):
            os.unlink(name, dir_fd=directory)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, however few the system takes at a time."""
    rest = memoryview(data)
    while rest:
        written = os.write(descriptor, rest)
        if written == 0:
            raise OSError(errno.EIO, "no progress")
        rest = rest[written:]


def read_file(
    directory: int, name: str, ranges: Sequence[tuple[int, int]], *, size_bytes: int, owner: int
) -> list[bytes]:
    """
    Read parts of a file after checking that it is one of ours.

    :param ranges: Each a start and a length.
    :raises FileNotFoundError: If there is nothing under this name.
    :raises BlobCorrupt: If it is not a regular file with one link, this owner and this size.
    """
    require_name(name)
    descriptor = _open_to_read(directory, name)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BlobCorrupt("What stands in place of the blob is not a file.")
        if status.st_nlink > 1 or status.st_uid != owner:
            raise BlobCorrupt("The blob's file has a second name or another owner.")
        if status.st_nlink == 0:
            raise BlobNotFound("The blob was deleted while it was opened.")
        if status.st_size != size_bytes:
            raise BlobCorrupt("The blob has another size than it was written with.")
        return [_read_exactly(descriptor, start=start, length=length) for start, length in ranges]
    finally:
        close_quietly(descriptor)


def _open_to_read(directory: int, name: str) -> int:
    try:
        return os.open(name, _READ, dir_fd=directory)
    except PermissionError:
        # Where devices are switched off (mount option nodev) opening one is refused like a file of somebody else's.
        if regular_file(directory, name) is None:
            raise BlobCorrupt("What stands in place of the blob is not a file.") from None
        raise


def _read_exactly(descriptor: int, *, start: int, length: int) -> bytes:
    data = os.pread(descriptor, length, start)
    parts = [data]
    position = len(data)
    # One call gives at most 2 GiB on Linux.
    while data and position < length:
        data = os.pread(descriptor, length - position, start + position)
        parts.append(data)
        position += len(data)
    if position != length:
        raise BlobCorrupt("The blob became shorter while it was read.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def unlink(directory: int, name: str) -> bool:
    """
    Remove one entry that is not a directory; a symbolic link itself, never its target.

    :param name: A name without a slash, from a listing of this very directory or checked before.
    :returns: Whether nothing is left under this name. `False` means that it is a directory.
    """
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=directory)
        except (IsADirectoryError, PermissionError):
            # Linux says EISDIR and macOS EPERM, which may also be a real refusal.
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise
            return False
    return True


def unlink_each(directory: int, names: Sequence[str]) -> list[str]:
    """
    Do the same with several.

    :returns: Those that are directories.
    """
    directories = []
    for name in names:
        # Nearly all are files that are there: nothing but this is done for those.
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            continue
        except (IsADirectoryError, PermissionError):
            if not unlink(directory, name):
                directories.append(name)
    return directories


@contextmanager
def opened_as_found(parent: int, name: str) -> Iterator[int]:
    """
    Open a directory that need not be ours, to list it or to empty it; never through a symbolic link.

    :param name: As `unlink` takes it.
    """
    descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        close_quietly(descriptor)


def names_in(directory: int) -> list[str]:
    """Return the names of all entries, whatever they are."""
    # A descriptor of its own: the position in a listing belongs to the descriptor, and `directory` is shared.
    with opened_as_found(directory, ".") as listing:
        return os.listdir(listing)


def directories_in(directory: int) -> list[str]:
    """Return the names of all directories that a store may have made here."""
    found = []
    for name in filter(is_name, names_in(directory)):
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                found.append(name)
    return found


def regular_file(directory: int, name: str) -> os.stat_result | None:
    """Describe a file, or return `None` if there is none or it is something else."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return status
    return None


def exists(directory: int, name: str) -> bool:
    """Tell whether anything stands under this name."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def close_quietly(descriptor: int) -> None:
    """Close what was not written to: nothing can be lost, and the descriptor is gone even if the system complains."""
    with suppress(OSError):
        os.close(descriptor)
