"""What somebody can put in place of a file or of a directory, if he may write to the directory above it."""

import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Puts something under a path where nothing is. The second path is a file that is somebody else's.
Plant = Callable[[Path, Path], None]


def plant_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def plant_relative_link(path: Path, target: Path) -> None:
    path.symlink_to(os.path.relpath(target, path.parent))


def plant_dangling_link(path: Path, target: Path) -> None:
    path.symlink_to(target.with_name("missing"))


def plant_link_to_itself(path: Path, target: Path) -> None:
    path.symlink_to(path.name)


def plant_link_to_a_directory(path: Path, target: Path) -> None:
    path.symlink_to(target.parent)


def plant_hard_link(path: Path, target: Path) -> None:
    os.link(target, path)


def plant_fifo(path: Path, target: Path) -> None:
    os.mkfifo(path, 0o600)


def plant_socket(path: Path, target: Path) -> None:
    # A socket's path is bounded to some hundred bytes, and test directories are deep.
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


def plant_device(path: Path, target: Path) -> None:
    # 0:0 is no device at all, and the one that takes no privilege to make (Linux 5.8).
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def plant_directory(path: Path, target: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "deeper").mkdir()
    (path / "deeper" / "file").write_bytes(b"x")


PLANTS: Final[list[Plant]] = [
    plant_link,
    plant_relative_link,
    plant_dangling_link,
    plant_link_to_itself,
    plant_link_to_a_directory,
    plant_hard_link,
    plant_fifo,
    plant_socket,
    plant_directory,
    *([plant_device] if sys.platform == "linux" else []),
]


def replace(path: Path, plant: Plant, target: Path) -> None:
    """Put something in place of a file."""
    path.unlink()
    plant(path, target)
