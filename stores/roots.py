"""Opening the root of a filesystem store, once, and refusing an unsafe one."""

import errno
import os
import stat
from contextlib import suppress

from stores.entries import DIRECTORY_MODE, make_directory
from stores.errors import StoreDenied
from stores.system_errors import translated

_NEEDED = frozenset({"open", "mkdir", "stat", "unlink", "rename", "rmdir"})


def open_root(path: str | os.PathLike[str], *, sync: bool) -> int:
    """
    Open the root of a store; make it with mode 0700 if it is missing.

    Whoever names the root vouches for the directories above it, which may be symbolic links. The root may not.

    :param path: Where it is. Its parent must exist.
    :param sync: Have the root's own entry on disk before this returns.
    :returns: A descriptor that the caller closes.
    :raises StoreDenied: If the root is unsafe or cannot be opened. The message says what to do and has no path.
    """
    if not _NEEDED.issubset(function.__name__ for function in os.supports_dir_fd):
        raise StoreDenied("This platform cannot open files relative to a directory; use the database store instead.")
    # Also cuts off a trailing slash, behind which a symbolic link would be followed.
    whole = os.path.abspath(os.fspath(path))
    parent, name = os.path.split(whole)
    if not name:
        raise StoreDenied("The root of the file system cannot hold a store; name a directory of its own.")
    with translated():
        created = False
        descriptor = _open(whole)
        if descriptor is None:
            descriptor, created = _create(parent, name)
        try:
            _require_safe(descriptor, created=created)
            if sync:
                # Also for a root that was there before: whoever made it may have died before coming to this line.
                sync_names(parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def sync_names(directory: str | os.PathLike[str]) -> None:
    """
    Have the names in a directory on disk, as far as this process may open it.

    :raises StoreError: If the system cannot do it.
    """
    with translated(), suppress(PermissionError):  # then somebody with more rights made what is in it for us
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _open(path: str, *, parent: int | None = None) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise StoreDenied("The root of the store is a symbolic link or no directory; name the directory.") from None


def _create(parent: str, name: str) -> tuple[int, bool]:
    try:
        above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StoreDenied("The directory that is to hold the store does not exist; create it first.") from None
    try:
        created = False
        with suppress(FileExistsError):
            make_directory(above, name)
            created = True
        descriptor = _open(name, parent=above)
    finally:
        os.close(above)
    if descriptor is None:
        raise StoreDenied("The root of the store was removed while it was opened; start again.")
    return descriptor, created


def _require_safe(descriptor: int, *, created: bool) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        # Another user, the superuser too, would leave files behind that the owner cannot remove.
        raise StoreDenied(
            f"The root of the store belongs to the user with id {status.st_uid} and this process runs as"
            f" {os.geteuid()}; run it as the user that owns the root."
        )
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if mode == DIRECTORY_MODE:
        return
    if not created:
        raise StoreDenied(f"The root of the store has mode {mode:04o}, which others may use; set it to 0700.")
    os.fchmod(descriptor, DIRECTORY_MODE)
