"""A small model of a file system: nodes, the names that stand for them, and what is in them."""

import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tests.power_loss.operations import Change, Link, Mode, Recording, Rename, Resize, Unlink, Write

#: The number of the directory everything is below.
ROOT: Final = 0


@dataclass(frozen=True, slots=True)
class Grown:
    """A file is at least so long, by zeros: what is left of a write of which only the size got through."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Standing:
    """
    What stands under a path.

    :param content: `None` for a directory.
    :param first: The first path under which the same node stands: another one is a second name of it.
    """

    mode: int
    content: bytes | None
    first: str


class Volume:
    """
    Everything below one directory at one moment.

    A name that goes takes nothing with it: a node without a name is merely out of reach, as in a real file system.
    """

    def __init__(
        self, entries: dict[int, dict[str, int]], contents: dict[int, bytes | bytearray], modes: dict[int, int]
    ) -> None:
        self.entries = entries
        self.modes = modes
        self._contents = contents

    @classmethod
    def of(cls, recording: Recording) -> "Volume":
        """As it was when the recording began. Every node is there, those that will be made without a name."""
        nodes = recording.nodes.items()
        return cls(
            {number: dict(recording.entries.get(number, {})) for number, node in nodes if node.is_directory},
            {number: node.content for number, node in nodes if not node.is_directory},
            {number: node.mode for number, node in nodes},
        )

    def copy(self) -> "Volume":
        """Return one that changes on its own."""
        for node, content in self._contents.items():
            if type(content) is bytearray:
                self._contents[node] = bytes(content)
        entries = {directory: dict(names) for directory, names in self.entries.items()}
        return Volume(entries, dict(self._contents), dict(self.modes))

    def has_name(self, node: int) -> bool:
        """Whether a node has a name in some directory."""
        return any(node in names.values() for names in self.entries.values())

    def add(self, node: int, *, is_directory: bool, mode: int) -> None:
        """Take in a node that has no name yet and nothing in it."""
        self.modes[node] = mode
        if is_directory:
            self.entries[node] = {}
        else:
            self._contents[node] = b""

    def size(self, node: int) -> int:
        """How long a file is."""
        return len(self._contents[node])

    def apply(self, change: Change | Grown) -> None:
        """Do what an operation does. What is in its way gives way: it may be there in the absence of another one."""
        match change:
            case Link(directory, name, node):
                self.entries[directory][name] = node
            case Unlink(directory, name):
                self.entries[directory].pop(name, None)
            case Rename(directory, name, to_directory, to_name, node):
                if self.entries[directory].get(name) == node:
                    del self.entries[directory][name]
                self.entries[to_directory][to_name] = node
            case Write(node, offset, data):
                content = self._grown(node, offset + len(data))
                content[offset : offset + len(data)] = data
            case Grown(node, size):
                self._grown(node, size)
            case Resize(node, size):
                del self._grown(node, size)[size:]
            case Mode(node, mode):
                self.modes[node] = mode

    def _grown(self, node: int, size: int) -> bytearray:
        content = self._contents[node]
        if type(content) is not bytearray:
            content = self._contents[node] = bytearray(content)
        content.extend(bytes(max(0, size - len(content))))
        return content

    def tree(self) -> dict[str, Standing]:
        """Return all that can be reached, by its path, directories before what is in them."""
        found: dict[str, Standing] = {}
        firsts: dict[int, str] = {}
        waiting = [("", ROOT)]
        while waiting:
            path, node = waiting.pop()
            first = firsts.setdefault(node, path)
            if node not in self.entries:
                found[path] = Standing(self.modes[node], bytes(self._contents[node]), first)
                continue
            found[path] = Standing(self.modes[node], None, first)
            below = sorted(self.entries[node].items(), reverse=True)
            waiting += [(f"{path}/{name}" if path else name, number) for name, number in below]
        return found


def digest(tree: dict[str, Standing]) -> bytes:
    """Return what no other tree has."""
    state = blake2b(digest_size=16)
    for path, standing in tree.items():
        content = b"directory" if standing.content is None else _digest_of(standing.content)
        state.update(repr((path, standing.mode, standing.first, content)).encode())
    return state.digest()


@lru_cache(maxsize=256)
def _digest_of(content: bytes) -> bytes:
    # From one state to the next most files are the very same bytes.
    return blake2b(content, digest_size=16).digest()


def make_real(tree: dict[str, Standing], place: Path) -> None:
    """
    Make a tree in a directory of the real file system.

    :param place: An empty directory, which stands for the one that was recorded.
    """
    for path, standing in tree.items():
        real = place / path
        if standing.content is None:
            if path:
                real.mkdir()
        elif standing.first != path:
            os.link(place / standing.first, real)
        else:
            real.write_bytes(standing.content)
    # Modes last, from below: one that lets nobody in would be in the way.
    for path in reversed(tree):
        (place / path).chmod(tree[path].mode)
