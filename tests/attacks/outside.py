"""What lies beside the root of a store, belongs to somebody else, and must be after an attack what it was before."""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What every file outside is full of. No result holds it, and none is shorter.
MARK: Final = b"OF SOMEBODY ELSE"
_ROOM, _OUTER, _HARD, _FILE = "room", "outer", "hard", "file"


@dataclass(frozen=True, slots=True)
class Outside:
    """
    A directory that looks from each link that an attacker plants as the store's own would look.

    A reader that is led here finds a file of the very name and size it asks for, and a delete something to remove.

    :param path: Where it is.
    """

    path: Path

    def fill(self, files: Mapping[tuple[str, str, str], int]) -> None:
        """
        Make it.

        :param files: What is in the store: the sizes of files by the two directories above them and their names.
        """
        for folder in (self.path, *(self.path / name for name in (_ROOM, _OUTER, _HARD))):
            folder.mkdir(mode=0o700)
        self._write(self.path / _FILE, 100)
        for (_, inner, name), size in files.items():
            (self.path / _OUTER / inner).mkdir(mode=0o700, exist_ok=True)
            for folder in (self.path / _ROOM, self.path / _HARD, self.path / _OUTER / inner):
                self._write(folder / name, size)

    @staticmethod
    def _write(path: Path, size: int) -> None:
        path.write_bytes((MARK * (size // len(MARK) + 1))[:size])
        # Another mode than a store gives, so that one that is "put right" shows.
        path.chmod(0o640)

    @property
    def room(self) -> str:
        """In place of a directory with files."""
        return f"{self.path}/{_ROOM}"

    @property
    def outer(self) -> str:
        """In place of a directory with such directories."""
        return f"{self.path}/{_OUTER}"

    def file(self, name: str) -> str:
        """In place of a file, through a symbolic link."""
        return self._if_there(f"{self.path}/{_ROOM}/{name}")

    def hard(self, name: str) -> str:
        """
        In place of a file, through a second name.

        Another file than `file` gives, which keeps its one link: what follows a link must not be saved by counting.
        """
        return self._if_there(f"{self.path}/{_HARD}/{name}")

    def _if_there(self, path: str) -> str:
        return path if os.path.exists(path) else f"{self.path}/{_FILE}"

    def snapshot(self) -> dict[str, tuple[object, ...]]:
        """Return everything about everything here but how many names a file has and when it was read."""
        paths = [self.path, *self.path.rglob("*")]
        return {str(path.relative_to(self.path)): _described(path) for path in paths}


def _described(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else None
    return status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_size, status.st_mtime_ns, content


def files_of(root: Path) -> dict[tuple[str, str, str], int]:
    """Return the sizes of the files two directories below a root."""
    return {path.relative_to(root).parts: os.stat(path).st_size for path in root.glob("*/*/*")}  # type: ignore[misc]


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return what was made, changed or removed between two snapshots."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
