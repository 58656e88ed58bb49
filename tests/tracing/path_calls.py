"""Which Linux system calls name a file, by number, and where in their arguments the names are."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PathCall:
    """
    One system call that takes names of files.

    :param places: For each name the positions of its directory's descriptor and of itself. A directory of `None` means
        that the call knows the working directory only.
    :param flags: The position of its flags, if it has any.
    """

    name: str
    places: tuple[tuple[int | None, int], ...]
    flags: int | None = None


_FIRST: Final = ((None, 0),)
_HELD: Final = ((0, 1),)
#: What works on files in a way no trace of names can show: requests in memory shared with the kernel, and handles.
UNSEEN: Final = frozenset({"io_uring_setup", "open_by_handle_at"})

#: Name, number on x86_64, number on aarch64 (which never had the calls without a directory), places, flags. From
#: https://github.com/torvalds/linux/blob/master/arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl.
_TABLE: Final[tuple[tuple[str, int | None, int | None, tuple[tuple[int | None, int], ...], int | None], ...]] = (
    ("open", 2, None, _FIRST, 1),
    ("creat", 85, None, _FIRST, None),
    ("openat", 257, 56, _HELD, 2),
    ("openat2", 437, 437, _HELD, None),
    ("open_tree", 428, 428, _HELD, 2),
    ("open_tree_attr", 467, 467, _HELD, 2),
    ("open_by_handle_at", 304, 265, (), None),
    ("name_to_handle_at", 303, 264, _HELD, 4),
    ("io_uring_setup", 425, 425, (), None),
    ("stat", 4, None, _FIRST, None),
    ("lstat", 6, None, _FIRST, None),
    ("newfstatat", 262, 79, _HELD, 3),
    ("statx", 332, 291, _HELD, 2),
    ("statfs", 137, 43, _FIRST, None),
    ("access", 21, None, _FIRST, None),
    ("faccessat", 269, 48, _HELD, None),
    ("faccessat2", 439, 439, _HELD, 3),
    ("readlink", 89, None, _FIRST, None),
    ("readlinkat", 267, 78, _HELD, None),
    ("mkdir", 83, None, _FIRST, None),
    ("mkdirat", 258, 34, _HELD, None),
    ("mknod", 133, None, _FIRST, None),
    ("mknodat", 259, 33, _HELD, None),
    ("rmdir", 84, None, _FIRST, None),
    ("unlink", 87, None, _FIRST, None),
    ("unlinkat", 263, 35, _HELD, 2),
    ("rename", 82, None, ((None, 0), (None, 1)), None),
    ("renameat", 264, 38, ((0, 1), (2, 3)), None),
    ("renameat2", 316, 276, ((0, 1), (2, 3)), 4),
    ("link", 86, None, ((None, 0), (None, 1)), None),
    ("linkat", 265, 37, ((0, 1), (2, 3)), 4),
    ("symlink", 88, None, ((None, 1),), None),
    ("symlinkat", 266, 36, ((1, 2),), None),
    ("chmod", 90, None, _FIRST, None),
    ("fchmodat", 268, 53, _HELD, None),
    ("fchmodat2", 452, 452, _HELD, 3),
    ("chown", 92, None, _FIRST, None),
    ("lchown", 94, None, _FIRST, None),
    ("fchownat", 260, 54, _HELD, 4),
    ("truncate", 76, 45, _FIRST, None),
    ("utime", 132, None, _FIRST, None),
    ("utimes", 235, None, _FIRST, None),
    ("futimesat", 261, None, _HELD, None),
    ("utimensat", 280, 88, _HELD, 3),
    ("setxattr", 188, 5, _FIRST, None),
    ("lsetxattr", 189, 6, _FIRST, None),
    ("setxattrat", 463, 463, _HELD, 2),
    ("getxattr", 191, 8, _FIRST, None),
    ("lgetxattr", 192, 9, _FIRST, None),
    ("getxattrat", 464, 464, _HELD, 2),
    ("listxattr", 194, 11, _FIRST, None),
    ("llistxattr", 195, 12, _FIRST, None),
    ("listxattrat", 465, 465, _HELD, 2),
    ("removexattr", 197, 14, _FIRST, None),
    ("lremovexattr", 198, 15, _FIRST, None),
    ("removexattrat", 466, 466, _HELD, 2),
    ("file_getattr", 468, 468, _HELD, 4),
    ("file_setattr", 469, 469, _HELD, 4),
    ("inotify_add_watch", 254, 27, ((None, 1),), None),
    ("fanotify_mark", 301, 263, ((3, 4),), None),
    ("chdir", 80, 49, _FIRST, None),
    ("chroot", 161, 51, _FIRST, None),
    ("pivot_root", 155, 41, ((None, 0), (None, 1)), None),
    ("mount", 165, 40, ((None, 0), (None, 1)), None),
    ("umount2", 166, 39, _FIRST, 1),
    ("mount_setattr", 442, 442, _HELD, 2),
    ("fspick", 433, 433, _HELD, 2),
    ("move_mount", 429, 429, ((0, 1), (2, 3)), 4),
    ("execve", 59, 221, _FIRST, None),
    ("execveat", 322, 281, _HELD, 4),
)

_COLUMNS: Final = {"x86_64": 1, "aarch64": 2, "arm64": 2}


def path_calls() -> Mapping[int, PathCall]:
    """Return the calls of this machine by their numbers; none of them for a machine whose numbers nobody looked up."""
    column = _COLUMNS.get(platform.machine())
    if column is None:
        return {}
    return {row[column]: PathCall(row[0], row[3], row[4]) for row in _TABLE if row[column] is not None}
