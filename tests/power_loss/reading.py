"""Understands the system calls of a traced task as operations on the nodes below one directory."""

import ctypes
import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stores.reserve import reserve_names
from tests.power_loss.calls import UNREAD, changing_calls
from tests.power_loss.operations import (
    Link,
    Mark,
    Mode,
    Node,
    Operation,
    Recording,
    Rename,
    Resize,
    Sync,
    Unlink,
    Write,
)
from tests.power_loss.volume import Volume
from tests.tracing.ptrace import AT_FDCWD, as_descriptor, memory, text

#: SQLite's index of its write-ahead log. It is mapped into memory and written without a system call; nothing in it
#: outlives the processes that share it: whoever comes first after a crash cuts it to nothing and makes it anew. And the
#: files of the reserve, which promise nothing: whichever of them is lost is made anew.
LEFT_OUT: Final = ("-shm", *reserve_names(""))

_KEEP_SIZE, _REMOVE_DIRECTORY = 0x1, 0x200

#: What identifies a node: device and inode, which no other node has while this one is open or has a name.
_Identity = tuple[int, int]
#: Where a name stands: the number of a directory, and the name.
_Spot = tuple[int, str]
#: Given what a call returned, what was done.
_Outcome = Callable[[int], Operation | None]


class Unreadable(Exception):
    """The program did something to files that a recording has no words for."""


class Reader:
    """
    Reads calls one after the other.

    :param root: Below it everything is an operation, its own entries included.
    :param marks: A file elsewhere. What is written to it is a mark.
    """

    def __init__(self, root: Path, *, marks: os.stat_result | None = None) -> None:
        self.recording = Recording()
        self._root = root
        self._marks = None if marks is None else _identity(marks)
        self._numbers: dict[_Identity, int] = {}
        self._known = changing_calls()
        self._awaited: _Outcome | None = None
        self._take_in(root)
        #: As it is at this moment.
        self._volume = Volume.of(self.recording)

    def entered(self, task: int, number: int, arguments: Sequence[int]) -> None:
        """A task asks the kernel for something."""
        name = self._known.get(number)
        if name is None:
            return
        if name in UNREAD:
            raise Unreadable(f"A recording cannot follow {name}.")
        self._awaited = getattr(self, f"_{name}")(task, arguments)

    def left(self, task: int, result: int) -> None:
        """It has been answered."""
        awaited, self._awaited = self._awaited, None
        answer = ctypes.c_int64(result).value
        if awaited is None or answer < 0:
            return
        operation = awaited(answer)
        if operation is None or self._is_out_of_reach(operation):
            return
        self.recording.operations.append(operation)
        if not isinstance(operation, Sync | Mark):
            self._volume.apply(operation)

    def difference(self) -> str:
        """Say where what was recorded and what there is now are not the same; nothing if they are."""
        found, recorded = Reader(self._root)._volume.tree(), self._volume.tree()
        different = [path for path in sorted({*found, *recorded}) if found.get(path) != recorded.get(path)]
        return ", ".join(different)

    def _is_out_of_reach(self, operation: Operation) -> bool:
        # What is in a file without a name is lost anyhow; and its inode may be that of a file elsewhere by now.
        is_of_file = isinstance(operation, Write | Resize | Mode | Sync) and operation.node not in self._volume.entries
        return is_of_file and not self._volume.has_name(operation.node)

    def _take_in(self, path: Path) -> int:
        status = path.lstat()
        number = self._numbers.get(_identity(status))
        if number is not None:
            return number  # a second name
        number = self._add(status)
        if not stat.S_ISDIR(status.st_mode):
            self.recording.nodes[number] = replace(self.recording.nodes[number], content=path.read_bytes())
            return number
        self.recording.entries[number] = {
            below.name: self._take_in(below) for below in sorted(path.iterdir()) if not _is_left_out(below.name)
        }
        return number

    def _add(self, status: os.stat_result) -> int:
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            raise Unreadable("There is something that is neither a file nor a directory.")
        number = len(self.recording.nodes)
        self.recording.nodes[number] = Node(stat.S_ISDIR(status.st_mode), stat.S_IMODE(status.st_mode))
        self._numbers[_identity(status)] = number
        return number

    def _made_now(self, path: str) -> int:
        status = os.stat(path)
        number = self._add(status)
        self._volume.add(number, is_directory=stat.S_ISDIR(status.st_mode), mode=stat.S_IMODE(status.st_mode))
        return number

    # Where a name leads, and whose a descriptor is.

    def _spot(self, task: int, directory: int, address: int) -> _Spot | None:
        name = text(task, address)
        number = as_descriptor(directory)
        if number == AT_FDCWD or name.startswith("/"):
            above, name = os.path.split(os.path.join(os.readlink(f"/proc/{task}/cwd"), name))
            where = above
        else:
            where = f"/proc/{task}/fd/{number}"
        if name in ("", ".", "..") or "/" in name or _is_left_out(name):
            return None
        found = self._number(where)
        return None if found is None else (found, name)

    def _number(self, path: str) -> int | None:
        try:
            return self._numbers.get(_identity(os.stat(path)))
        except OSError:
            return None

    def _node_of(self, task: int, descriptor: int) -> int | None:
        return self._number(f"/proc/{task}/fd/{as_descriptor(descriptor)}")

    def _standing(self, spot: _Spot) -> int | None:
        return self._volume.entries[spot[0]].get(spot[1])

    # One method for each call: what it will have done if it is answered well.

    def _open(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._opened(task, self._spot(task, AT_FDCWD, arguments[0]), arguments[1])

    def _openat(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._opened(task, self._spot(task, arguments[0], arguments[1]), arguments[2])

    def _opened(self, task: int, spot: _Spot | None, flags: int) -> _Outcome | None:
        if spot is None:
            return None
        there = self._standing(spot)
        if there is not None:
            return (lambda _: Resize(there, 0)) if flags & os.O_TRUNC and self._volume.size(there) else None
        if not flags & os.O_CREAT:
            return None
        return lambda descriptor: Link(*spot, self._made_now(f"/proc/{task}/fd/{descriptor}"))

    def _write(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        descriptor, address, length = arguments[0], arguments[1], arguments[2]
        status = os.stat(f"/proc/{task}/fd/{as_descriptor(descriptor)}")
        if _identity(status) == self._marks:
            said = json.loads(memory(task, address, length))
            return lambda _: Mark(said)
        node = self._numbers.get(_identity(status))
        if node is None:
            return None
        data = memory(task, address, length)
        with open(f"/proc/{task}/fdinfo/{as_descriptor(descriptor)}", encoding="ascii") as lines:
            position, flags = (int(next(lines).split()[1], base) for base in (10, 8))
        offset = self._volume.size(node) if flags & os.O_APPEND else position
        return lambda written: Write(node, offset, data[:written])

    def _pwrite(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        node = self._node_of(task, arguments[0])
        if node is None:
            return None
        data = memory(task, arguments[1], arguments[2])
        return lambda written: Write(node, arguments[3], data[:written])

    def _ftruncate(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        node, size = self._node_of(task, arguments[0]), arguments[1]
        return None if node is None else lambda _: Resize(node, size)

    def _fallocate(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        node, end = self._node_of(task, arguments[0]), arguments[2] + arguments[3]
        if node is None or arguments[1] == _KEEP_SIZE or end <= self._volume.size(node):
            return None
        if arguments[1]:
            raise Unreadable("A recording cannot follow a file that is given holes.")
        return lambda _: Resize(node, end)

    def _fsync(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        node = self._node_of(task, arguments[0])
        return None if node is None else lambda _: Sync(node)

    def _fdatasync(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        node = self._node_of(task, arguments[0])
        return None if node is None else lambda _: Sync(node, data_only=True)

    def _mkdir(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._made(task, AT_FDCWD, arguments[0])

    def _mkdirat(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._made(task, arguments[0], arguments[1])

    def _made(self, task: int, directory: int, address: int) -> _Outcome | None:
        spot = self._spot(task, directory, address)
        if spot is None:
            return None
        number = as_descriptor(directory)
        above = f"/proc/{task}/fd/{number}" if number != AT_FDCWD else f"/proc/{task}/cwd"
        path = os.path.join(above, text(task, address))
        return lambda _: Link(*spot, self._made_now(path))

    def _rename(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._renamed(task, AT_FDCWD, arguments[0], AT_FDCWD, arguments[1])

    def _renameat(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._renamed(task, *arguments[:4])

    def _renameat2(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        if arguments[4]:
            raise Unreadable("A recording cannot follow a rename with flags.")
        return self._renamed(task, *arguments[:4])

    def _renamed(self, task: int, directory: int, address: int, to: int, to_address: int) -> _Outcome | None:
        spot, to_spot = self._spot(task, directory, address), self._spot(task, to, to_address)
        node = None if spot is None else self._standing(spot)
        if spot is None and to_spot is None:
            return None
        if spot is None or to_spot is None or node is None:
            raise Unreadable("Something is moved in or out of what is recorded.")
        return lambda _: Rename(*spot, *to_spot, node)

    def _unlink(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        spot = self._spot(task, AT_FDCWD, arguments[0])
        return None if spot is None else lambda _: Unlink(*spot)

    _rmdir = _unlink

    def _unlinkat(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        spot = self._spot(task, arguments[0], arguments[1])
        return None if spot is None else lambda _: Unlink(*spot)

    def _link(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._linkat(task, [AT_FDCWD, arguments[0], AT_FDCWD, arguments[1]])

    def _linkat(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        spot, to_spot = self._spot(task, *arguments[:2]), self._spot(task, *arguments[2:4])
        node = None if spot is None else self._standing(spot)
        if spot is None and to_spot is None:
            return None
        if to_spot is None or node is None:
            raise Unreadable("Something is linked in or out of what is recorded.")
        return lambda _: Link(*to_spot, node)

    def _chmod(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        spot = self._spot(task, AT_FDCWD, arguments[0])
        return self._given_mode(None if spot is None else self._standing(spot), arguments[1])

    def _fchmodat(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        spot = self._spot(task, arguments[0], arguments[1])
        return self._given_mode(None if spot is None else self._standing(spot), arguments[2])

    def _fchmod(self, task: int, arguments: Sequence[int]) -> _Outcome | None:
        return self._given_mode(self._node_of(task, arguments[0]), arguments[1])

    def _given_mode(self, node: int | None, mode: int) -> _Outcome | None:
        # One that changes nothing can get lost without a difference.
        if node is None or self._volume.modes[node] == mode & 0o7777:
            return None
        return lambda _: Mode(node, mode & 0o7777)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _is_left_out(name: str) -> bool:
    return name.endswith(LEFT_OUT)
