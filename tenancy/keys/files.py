"""Key files: read only when nobody else can, made once and whole."""

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from stores.system_errors import is_full
from tenancy.errors import ConfigurationError, StorageFull
from tenancy.keys.keyset import MAX_DOCUMENT_BYTES, KeysetError, new_entry, render_keyset
from tenancy.keys.private_files import opened_directory, remove_unfinished, take_lock, temporary_name, write_private

#: Each further try takes somebody who changes the file in the few microseconds of one.
_TRIES: Final = 10

#: Device, inode, size, and the times of the last change of content and of anything. Replacing a file, writing to it or
#: changing its owner or mode makes another version of it.
FileVersion = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class KeyFile:
    """
    A key file as it was read.

    :param document: Its bytes, unparsed.
    """

    document: bytes = field(repr=False)
    version: FileVersion

    @property
    def written_ns(self) -> int:
        """When it was written, in nanoseconds since 1970, if its time was not set by hand."""
        return self.version[3]


def read_key_file(path: str | Path, *, owner_uid: int | None = None, directory: int | None = None) -> KeyFile:
    """
    Read a key file that is a regular file of ours and closed to everybody else: as a whole, also while it is replaced.

    :param owner_uid: Who must own it; the user of this process if `None`.
    :param directory: What the path is relative to, as a descriptor.
    :raises KeysetError: If it is missing, a symbolic link or no file, has another owner, or others may read or write
        it. Nothing is fixed on the quiet: a key that others could read is to be replaced, not hidden.
    """
    uid = os.geteuid() if owner_uid is None else owner_uid

    def fault_of(_: int, status: os.stat_result) -> str | None:
        return _fault_of(status, uid)

    for _ in range(_TRIES):
        found = _read(path, os.O_NOFOLLOW, "cannot be opened, or is a symbolic link", fault_of, directory=directory)
        # An editor overwrites the file that it has replaced: what was read of that one may be zeros.
        if file_version(path, directory=directory) == found.version:
            return found
    raise KeysetError("is changed all the time")


def file_version(path: str | Path, *, directory: int | None = None) -> FileVersion | None:
    """
    Look which version of a file there is, without opening it.

    :returns: `None` if nothing of that name can be seen. Never the same for two versions that `keyset_editing` made; a
        file that others write to in place passes for the one before only if it keeps its size and was written within
        the same tick of the file system's clock.
    """
    try:
        return _version(os.stat(path, dir_fd=directory, follow_symlinks=False))
    except (OSError, ValueError):
        return None


def _version(status: os.stat_result) -> FileVersion:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _fault_of(status: os.stat_result, owner_uid: int) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != owner_uid:
        return "belongs to another user than the one of this process"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return "is open to group or others; its mode must be 0600"
    return None


def read_secret_file(path: Path) -> bytes:
    """
    Read a key that an orchestrator has mounted: a Docker secret, a Kubernetes Secret with its links, a credential of
    systemd. Less is asked of it than of a key file, since such files mostly belong to root and are open to all inside.

    Checked of the file that all links lead to: it is a regular file, belongs to root or to the user of this process,
    and nobody else may write it; and if anybody else may read it, it is on a mount that is read-only, as secrets are
    mounted and ordinary directories are not. Not checked: the directories and links on the way to it, and who else can
    read it inside the container. Whoever may exec into it, or runs beside us in it, may read an open file.

    :returns: Its bytes, unparsed. Read once: a secret that is replaced counts from the next start.
    :raises KeysetError: If it is missing or any of this does not hold.
    """
    return _read(path, os.O_NOCTTY, "cannot be opened by this user", _fault_of_secret).document


def _fault_of_secret(descriptor: int, status: os.stat_result) -> str | None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid not in (0, os.geteuid()):
        return "belongs neither to root nor to the user of this process"
    if mode & 0o022:
        return "may be written by group or others"
    if mode & 0o077 and not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return "is open to group or others and not on a read-only mount; mount it read-only, or make its mode 0400"
    return None


def _read(
    path: str | Path,
    flags: int,
    why_not_opened: str,
    fault_of: Callable[[int, os.stat_result], str | None],
    *,
    directory: int | None = None,
) -> KeyFile:
    try:
        # O_NONBLOCK: a FIFO in its place must not hang us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=directory)
    except FileNotFoundError:
        raise KeysetError("does not exist") from None
    except (OSError, ValueError):
        raise KeysetError(why_not_opened) from None
    try:
        status = os.fstat(descriptor)
        fault = fault_of(descriptor, status)
        if fault is None:
            with contextlib.suppress(OSError), open(descriptor, "rb", closefd=False) as file:
                return KeyFile(file.read(MAX_DOCUMENT_BYTES + 1), _version(status))
    finally:
        # Nothing was written, so nothing can be lost.
        with contextlib.suppress(OSError):
            os.close(descriptor)
    raise KeysetError(fault or "cannot be read")


def create_key_file(path: Path) -> None:
    """
    Make a key file with one new primary key, mode 0600, durable before this returns.

    Whoever comes second finds the file of the first, whole: it gets its name only when it is complete.

    :raises FileExistsError: If there is anything of that name. It is left as it is.
    :raises StorageFull: If there is no room for it. Nothing is left behind.
    :raises ConfigurationError: If it cannot be made there. Nothing is left behind.
    """
    exists = False
    try:
        with opened_directory(path.parent) as directory:
            exists = not _create_in(directory, path.name)
    except OSError as error:
        if is_full(error):
            raise StorageFull("The disk is full, so no key file was made; make room and start again.") from None
        raise ConfigurationError(f"The key file {path} cannot be made there.") from None
    if exists:
        raise FileExistsError("There is such a key file already.")


def _create_in(directory: int, name: str) -> bool:
    temporary = temporary_name(name)
    try:
        entry = new_entry(now=datetime.now(UTC))
        write_private(directory, temporary, render_keyset((entry,)))
        return _give_name(directory, temporary, name)
    finally:
        # What stays behind is removed by `remove_leftovers`.
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)


def _give_name(directory: int, temporary: str, name: str) -> bool:
    try:
        # A link is refused when the name is taken; a rename would replace what has it.
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    except FileNotFoundError:
        # Somebody was faster and took our file for a leftover.
        os.stat(name, dir_fd=directory, follow_symlinks=False)
        return False
    os.fsync(directory)
    return True


def remove_leftovers(path: Path) -> None:
    """
    Remove what making or editing this key file has left behind where a process died at it: a copy of the keys, which
    nobody would think of when a key is destroyed. While somebody edits it nothing is removed; each edit does so itself.

    :param path: The key file, which must be there: whoever is still making one of that name was outrun anyway.
    """
    # The next start tries again. It is no reason not to start.
    with contextlib.suppress(OSError), opened_directory(path.parent) as directory:
        is_ours = True
        # A file system without such locks has no editors to keep out.
        with contextlib.suppress(OSError):
            is_ours = take_lock(directory)
        if is_ours:
            remove_unfinished(directory, path.name)
