"""Key files: read only when nobody else can, made once and whole."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from stores.system_errors import is_full
from tenancy.errors import ConfigurationError, StorageFull
from tenancy.keys.keyset import MAX_DOCUMENT_BYTES, new_entry, render_keyset

_OWNER_ONLY = 0o600
_RANDOM_BYTES = 8


def read_key_file(path: Path, *, owner_uid: int | None = None) -> bytes:
    """
    Read a key file that is a regular file of ours and closed to everybody else.

    :param owner_uid: Who must own it; the user of this process if `None`.
    :returns: Its bytes, unparsed.
    :raises ConfigurationError: If it is missing, a symbolic link or no file, has another owner, or others may read or
        write it. Nothing is fixed on the quiet: a key that others could read is to be replaced, not hidden.
    """
    uid = os.geteuid() if owner_uid is None else owner_uid

    def fault_of(descriptor: int) -> str | None:
        return _fault_of(os.fstat(descriptor), uid)

    return _read(path, "key file", os.O_NOFOLLOW, "cannot be opened, or is a symbolic link", fault_of)


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
    :raises ConfigurationError: If it is missing or any of this does not hold.
    """
    return _read(path, "secret file", os.O_NOCTTY, "cannot be opened by this user", _fault_of_secret)


def _fault_of_secret(descriptor: int) -> str | None:
    status = os.fstat(descriptor)
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


def _read(path: Path, kind: str, flags: int, why_not_opened: str, fault_of: Callable[[int], str | None]) -> bytes:
    try:
        # O_NONBLOCK: a FIFO in its place must not hang us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except FileNotFoundError:
        raise ConfigurationError(f"The {kind} {path} does not exist.") from None
    except (OSError, ValueError):
        raise ConfigurationError(f"The {kind} {path} {why_not_opened}.") from None
    try:
        fault = fault_of(descriptor)
        if fault is None:
            with contextlib.suppress(OSError), open(descriptor, "rb", closefd=False) as file:
                return file.read(MAX_DOCUMENT_BYTES + 1)
    finally:
        # Nothing was written, so nothing can be lost.
        with contextlib.suppress(OSError):
            os.close(descriptor)
    raise ConfigurationError(f"The {kind} {path} {fault or 'cannot be read'}.")


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
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            exists = not _create_in(directory, path.name)
        finally:
            os.close(directory)
    except OSError as error:
        if is_full(error):
            raise StorageFull("The disk is full, so no key file was made; make room and start again.") from None
        raise ConfigurationError(f"The key file {path} cannot be made there.") from None
    if exists:
        raise FileExistsError("There is such a key file already.")


def remove_leftovers(path: Path) -> None:
    """
    Remove what making this key file has left behind where a process died at it: a copy of the key, which nobody would
    think of when the key is destroyed.

    :param path: The key file, which must be there: whoever is still making one of that name was outrun anyway.
    """
    temporary = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
    # The next start tries again. It is no reason not to start.
    with contextlib.suppress(OSError):
        for name in filter(temporary.fullmatch, os.listdir(path.parent)):
            os.unlink(path.parent / name)


def _create_in(directory: int, name: str) -> bool:
    temporary = f".{name}.{secrets.token_hex(_RANDOM_BYTES)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _OWNER_ONLY, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            # The mode of `open` passes through the umask, which may take the owner's bits too.
            os.fchmod(descriptor, _OWNER_ONLY)
            entry = new_entry(now=datetime.now(UTC))
            file.write(render_keyset((entry,)))
            file.flush()
            os.fsync(descriptor)
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
