"""What the tests of the filesystem store have in common: a root to look into, and faults to put in the way."""

import ctypes
import errno
import os
import platform
import stat
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest

OUTER: Final = "o" * 32
INNER: Final = "i" * 32
NAME: Final = "n" * 32

AT_FDCWD: Final = -2 if sys.platform == "darwin" else -100
_EXCHANGE: Final = 2

#: Every system call the store makes on files, by its name in `os`.
CALLS: Final = (
    "open", "close", "mkdir", "stat", "fstat", "fchmod", "write", "fsync", "pread", "unlink", "rename", "rmdir",
    "listdir",
)  # fmt: skip


def files_below(root: Path) -> list[str]:
    """Return the paths of everything below a directory that is no directory, links included."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir())


def modes_below(root: Path) -> dict[str, set[int]]:
    """Return which modes directories and files have, the root included."""
    found: dict[str, set[int]] = {"directories": set(), "files": set()}
    for path in [root, *root.rglob("*")]:
        found["directories" if path.is_dir() else "files"].add(stat.S_IMODE(path.lstat().st_mode))
    return found


def open_descriptors() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the inode of whatever is synced."""
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each of `CALLS` that is made."""
    made: list[str] = []

    def wrap(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def record(*arguments: Any, **options: Any) -> Any:
            made.append(call)
            return real(*arguments, **options)

        return record

    for call in CALLS:
        monkeypatch.setattr(os, call, wrap(call, getattr(os, call)))
    return made


def fail_on_call(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> Callable[[], bool]:
    """
    Let the system refuse the call of this number, counted over all `CALLS`, once.

    :returns: A function that tells whether that call was reached.
    """
    made = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made == number:
                if real is close:  # which gives the descriptor back all the same
                    real(*arguments)
                raise OSError(code, os.strerror(code))
            return real(*arguments, **options)

        return call

    close = os.close
    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return lambda: made >= number


def exchange(first: str | Path, second: str | Path, *, first_fd: int = AT_FDCWD, second_fd: int = AT_FDCWD) -> None:
    """
    Let two entries change places in one step: renameat2(RENAME_EXCHANGE) on Linux, renameatx_np(RENAME_SWAP) on macOS.

    :param first_fd: What the first is relative to. Without it, the working directory.
    """
    if _exchange()(first_fd, os.fsencode(first), second_fd, os.fsencode(second), _EXCHANGE) != 0:
        code = ctypes.get_errno() or errno.EIO
        raise OSError(code, os.strerror(code))


@cache
def _exchange() -> Callable[[int, bytes, int, bytes, int], int]:
    library = ctypes.CDLL(None, use_errno=True)
    for name in ("renameat2", "renameatx_np"):
        if hasattr(library, name):
            return getattr(library, name)  # type: ignore[no-any-return]
    # A C library older than its kernel.
    number = {"x86_64": 316, "aarch64": 276}[platform.machine()]
    return partial(library.syscall, ctypes.c_long(number))
