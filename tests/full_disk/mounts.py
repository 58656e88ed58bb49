"""
A small disk of one's own: a tmpfs in a mount namespace that ends with the process.

Needs Linux, and either the superuser or a kernel that lets everybody make user namespaces.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

# linux/sched.h and linux/mount.h
_NEW_MOUNTS, _NEW_USER = 0x0002_0000, 0x1000_0000
_RECURSIVE, _PRIVATE = 0x4000, 0x4_0000

#: The exit code of a program that was not given its disk.
NO_DISK: Final = 77


class NoSmallDisk(Exception):
    """This system lets nobody mount anything here. The message says what it refused."""


def mount_small_disk(at: Path, *, options: str) -> None:
    """
    Mount an empty tmpfs that only this process and its children see. There must be no other threads.

    :param at: An empty directory.
    :param options: As tmpfs takes them, e.g. `size=32m,nr_inodes=100`.
    :raises NoSmallDisk: If the system refuses.
    """
    if sys.platform != "linux":
        raise NoSmallDisk("Only Linux has mount namespaces.")
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _call("unshare", _NEW_MOUNTS)
    else:
        _call("unshare", _NEW_USER | _NEW_MOUNTS)
        Path("/proc/self/setgroups").write_text("deny")
        # Mapped to itself: whoever runs the tests stays who he is, without being anybody outside.
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    # Or what is mounted here would appear to everybody.
    _call("mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
    _call("mount", b"tmpfs", os.fsencode(at), b"tmpfs", 0, f"mode=0700,{options}".encode())


def _call(name: str, *arguments: bytes | int | None) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise NoSmallDisk(f"{name} was refused: {os.strerror(ctypes.get_errno())}")
