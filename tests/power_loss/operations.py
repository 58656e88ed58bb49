"""What a program does to files and directories, as far as it matters when the power goes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """A file or a directory, whatever its name; what it was when it was first seen."""

    is_directory: bool
    mode: int
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Link:
    """A name comes to stand for a node: a file or a directory is made, or a file gets a second name."""

    directory: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name goes: of a file, or of an empty directory."""

    directory: int
    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A name goes and another one comes, in one step."""

    directory: int
    name: str
    to_directory: int
    to_name: str
    node: int


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of a file."""

    node: int
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resize:
    """A file is cut, or grows by zeros."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Mode:
    """Who may use a node."""

    node: int
    mode: int


@dataclass(frozen=True, slots=True)
class Sync:
    """
    What was done to a node so far is safe: the bytes of a file, the entries of a directory.

    :param data_only: Not the mode (`fdatasync`).
    """

    node: int
    data_only: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """The program says something about itself: what it is at, what it has promised. No operation on files."""

    said: Mapping[str, Any]


#: What power loss may undo.
Change = Link | Unlink | Rename | Write | Resize | Mode
Operation = Change | Sync | Mark


@dataclass(slots=True)
class Recording:
    """
    Everything a program did below one directory, in its order.

    :param nodes: Every node by its number. 0 is the directory itself.
    :param entries: What stood in each directory before; all of that was safe.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    entries: dict[int, dict[str, int]] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """How many operations on files and directories there are."""
        return sum(not isinstance(operation, Mark) for operation in self.operations)

    def in_frames(self) -> "Recording":
        """
        Return the same with the two writes of each frame of a write-ahead log as one.

        SQLite hands over a frame's header of 24 bytes and then its page. That only the header comes to be on disk is
        one of the ways in which the frame can be torn.
        """
        return Recording(self.nodes, self.entries, list(_merged(self.operations)))


_FRAME_HEADER = 24


def _merged(operations: list[Operation]) -> Iterator[Operation]:
    before: Operation | None = None
    for operation in operations:
        if (
            isinstance(before, Write)
            and isinstance(operation, Write)
            and len(before.data) == _FRAME_HEADER
            and (operation.node, operation.offset) == (before.node, before.offset + _FRAME_HEADER)
        ):
            yield Write(before.node, before.offset, before.data + operation.data)
            before = None
            continue
        if before is not None:
            yield before
        before = operation
    if before is not None:
        yield before
