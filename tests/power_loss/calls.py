"""The numbers of the system calls that change files and directories, on two kinds of processors."""

import platform
from collections.abc import Mapping
from typing import Final

# Name, x86_64, aarch64. What is missing from here and changes a file all the same is noticed when a recording ends.
_TABLE: Final[tuple[tuple[str, int | None, int | None], ...]] = (
    ("open", 2, None),
    ("openat", 257, 56),
    ("write", 1, 64),
    ("pwrite", 18, 68),
    ("ftruncate", 77, 46),
    ("fallocate", 285, 47),
    ("fsync", 74, 82),
    ("fdatasync", 75, 83),
    ("mkdir", 83, None),
    ("mkdirat", 258, 34),
    ("rename", 82, None),
    ("renameat", 264, 38),
    ("renameat2", 316, 276),
    ("unlink", 87, None),
    ("rmdir", 84, None),
    ("unlinkat", 263, 35),
    ("link", 86, None),
    ("linkat", 265, 37),
    ("chmod", 90, None),
    ("fchmod", 91, 52),
    ("fchmodat", 268, 53),
    # The rest would make a recording say less than was done.
    ("creat", 85, None),
    ("openat2", 437, 437),
    ("writev", 20, 66),
    ("pwritev", 296, 70),
    ("pwritev2", 328, 287),
    ("truncate", 76, 45),
    ("sync", 162, 81),
    ("syncfs", 306, 267),
    ("copy_file_range", 326, 285),
    ("sendfile", 40, 71),
    ("splice", 275, 76),
    ("symlink", 88, None),
    ("symlinkat", 266, 36),
    ("fork", 57, None),
    ("vfork", 58, None),
    ("clone", 56, 220),
    ("clone3", 435, 435),
    ("execve", 59, 221),
    ("io_uring_setup", 425, 425),
)

#: Those nobody has taught the recorder to read.
UNREAD: Final = frozenset(name for name, _, _ in _TABLE[[row[0] for row in _TABLE].index("creat") :])

_COLUMNS: Final = {"x86_64": 1, "aarch64": 2, "arm64": 2}


def changing_calls() -> Mapping[int, str]:
    """Return them by this machine's numbers; none of them for a machine whose numbers nobody looked up."""
    column = _COLUMNS.get(platform.machine())
    return {} if column is None else {row[column]: row[0] for row in _TABLE if row[column] is not None}  # type: ignore[misc]
