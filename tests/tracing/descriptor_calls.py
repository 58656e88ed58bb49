"""Which Linux system calls work on an open file, by number, and where in their arguments it is."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class DescriptorCall:
    """
    One system call that takes the descriptor of an open file.

    :param descriptor: Its position.
    :param length: The position of how many bytes, or how many buffers, a call that writes is to take; `None` if it
        does not write.
    """

    name: str
    descriptor: int
    length: int | None = None


#: Name, number on x86_64, number on aarch64, descriptor, length. From
#: https://github.com/torvalds/linux/blob/master/arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl.
_TABLE: Final[tuple[tuple[str, int | None, int, int, int | None], ...]] = (
    ("read", 0, 63, 0, None),
    ("write", 1, 64, 0, 2),
    ("close", 3, 57, 0, None),
    ("fstat", 5, 80, 0, None),
    ("lseek", 8, 62, 0, None),
    ("mmap", 9, 222, 4, None),
    ("ioctl", 16, 29, 0, None),
    ("pread64", 17, 67, 0, None),
    ("pwrite64", 18, 68, 0, 2),
    ("readv", 19, 65, 0, None),
    ("writev", 20, 66, 0, 2),
    ("dup", 32, 23, 0, None),
    ("dup2", 33, None, 0, None),
    ("sendfile", 40, 71, 1, None),
    ("fcntl", 72, 25, 0, None),
    ("flock", 73, 32, 0, None),
    ("fsync", 74, 82, 0, None),
    ("fdatasync", 75, 83, 0, None),
    ("ftruncate", 77, 46, 0, None),
    ("getdents64", 217, 61, 0, None),
    ("fchdir", 81, 50, 0, None),
    ("fchmod", 91, 52, 0, None),
    ("fchown", 93, 55, 0, None),
    ("fstatfs", 138, 44, 0, None),
    ("readahead", 187, 213, 0, None),
    ("fsetxattr", 190, 7, 0, None),
    ("fgetxattr", 193, 10, 0, None),
    ("flistxattr", 196, 13, 0, None),
    ("fadvise64", 221, 223, 0, None),
    ("sync_file_range", 277, 84, 0, None),
    ("fallocate", 285, 47, 0, None),
    ("dup3", 292, 24, 0, None),
    ("preadv", 295, 69, 0, None),
    ("pwritev", 296, 70, 0, 2),
    ("syncfs", 306, 267, 0, None),
    ("copy_file_range", 326, 285, 2, None),
    ("preadv2", 327, 286, 0, None),
    ("pwritev2", 328, 287, 0, 2),
)

_COLUMNS: Final = {"x86_64": 1, "aarch64": 2, "arm64": 2}


def descriptor_calls() -> Mapping[int, DescriptorCall]:
    """Return the calls of this machine by their numbers; none of them for a machine whose numbers nobody looked up."""
    column = _COLUMNS.get(platform.machine())
    if column is None:
        return {}
    return {row[column]: DescriptorCall(row[0], row[3], row[4]) for row in _TABLE if row[column] is not None}
