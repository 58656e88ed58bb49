"""A recording holds everything that was done to files, by whomever, and says so where it could not."""

import json
import mmap
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.forked import in_a_child
from tests.power_loss.operations import Mark, Recording, Sync, Write
from tests.power_loss.recorder import RecordingFailed, Tell, record

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def recorded(root: Path, work: Callable[[Tell], None]) -> list[str]:
    """Record in a process that has no other children, and return what was done in words, or why it failed."""

    def attempt() -> Any:
        try:
            return list(map(repr, in_words(record(root, work))))
        except RecordingFailed as error:
            return f"failed: {error}"

    found: list[str] = in_a_child(attempt)
    return found


def in_words(recording: Recording) -> list[Any]:
    """The operations, with the bytes that were written."""
    return [
        ("Write", operation.node, operation.offset, operation.data) if isinstance(operation, Write) else operation
        for operation in recording.operations
    ]


def do_everything(root: Path, tell: Tell) -> None:
    top = os.open(root, _DIRECTORY)
    os.mkdir(root / "made")
    made = os.open("made", _DIRECTORY, dir_fd=top)
    file = os.open("file", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=made)
    os.write(file, b"one")
    os.write(file, b"two")
    tell({"mark": 1})
    os.pwrite(file, b"X", 1)
    os.ftruncate(file, 5)
    os.posix_fallocate(file, 0, 8)
    os.posix_fallocate(file, 0, 2)
    os.fchmod(file, 0o400)
    os.fchmod(file, 0o400)
    os.fsync(file)
    os.fdatasync(file)
    os.fsync(made)
    os.link("file", "second", src_dir_fd=made, dst_dir_fd=top)
    os.rename("file", root / "third", src_dir_fd=made)
    os.unlink(root / "second")
    os.rmdir("made", dir_fd=top)
    # Not at the position of the descriptor, which is 0.
    os.write(os.open(root / "old", os.O_WRONLY | os.O_APPEND), b"more")
    with open(root / "old", "wb"):
        pass
    # What does not happen, and what happens elsewhere.
    for refused in (lambda: os.mkdir(root / "third"), lambda: os.unlink(root / "nothing"), lambda: os.rmdir(root)):
        with pytest.raises(OSError, match=r"\w"):
            refused()
    with open(root.parent / "elsewhere", "wb") as elsewhere:
        elsewhere.write(b"x")
        os.fsync(elsewhere.fileno())


def test_everything_that_is_done_to_files_is_recorded_in_its_order(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    assert recorded(root, lambda tell: do_everything(root, tell)) == [
        "Link(directory=0, name='made', node=2)",
        "Link(directory=2, name='file', node=3)",
        "('Write', 3, 0, b'one')",
        "('Write', 3, 3, b'two')",
        "Mark(said={'mark': 1})",
        "('Write', 3, 1, b'X')",
        "Resize(node=3, size=5)",
        "Resize(node=3, size=8)",
        "Mode(node=3, mode=256)",
        "Sync(node=3, data_only=False)",
        "Sync(node=3, data_only=True)",
        "Sync(node=2, data_only=False)",
        "Link(directory=0, name='second', node=3)",
        "Rename(directory=2, name='file', to_directory=0, to_name='third', node=3)",
        "Unlink(directory=0, name='second')",
        "Unlink(directory=0, name='made')",
        "('Write', 1, 3, b'more')",
        "Resize(node=1, size=0)",
    ]


def test_what_sqlite_does_is_recorded_like_anything_else(tmp_path: Path) -> None:
    def work(tell: Tell) -> None:
        with closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            tell({"mark": "wal"})
            connection.execute("CREATE TABLE t (a)")
            tell({"mark": "created"})
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("INSERT INTO t VALUES (1)")
            tell({"mark": "inserted"})

    def attempt() -> Any:
        recording = record(tmp_path, work).in_frames()
        kinds: list[list[str]] = [[]]
        for operation in recording.operations:
            if isinstance(operation, Mark):
                kinds.append([])
            elif isinstance(operation, Sync) or (isinstance(operation, Write) and len(operation.data) == 4120):
                kinds[-1].append(type(operation).__name__)
        return kinds[1:3]

    # The header of the log and the directory first; then the frames and their sync; or no sync at all.
    assert in_a_child(attempt) == [["Sync", "Sync", "Write", "Write", "Sync"], ["Write"]]


def through_memory(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0] = 88
        memory.flush()


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (through_memory, "does not lead to what is there: old"),
        (lambda path: path.with_name("pipe").symlink_to("old"), "cannot follow symlink"),
        (lambda path: os.writev(os.open(path, os.O_WRONLY), [b"x"]), "cannot follow writev"),
        (lambda path: os.truncate(path, 1), "cannot follow truncate"),
        (lambda path: os.sync(), "cannot follow sync"),
        (lambda path: os.fork() or os._exit(0), "cannot follow"),
        (lambda path: threading.Thread(target=int).start(), "cannot follow clone"),
        (lambda path: path.rename(path.parents[1] / "out"), "in or out"),
        (lambda path: (path.parent / "in").hardlink_to(path.parents[1] / "outside"), "in or out"),
        (lambda path: path.unlink() or os.mkfifo(path), "neither a file nor a directory"),
        (lambda path: json.loads("{"), "JSONDecodeError"),
        (lambda path: os._exit(3), "ended with 3"),
        (lambda path: os.kill(os.getpid(), 9), "ended with -9"),
    ],
)
def test_what_is_not_recorded_whole_is_no_recording(tmp_path: Path, do: Callable[[Path], Any], said: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    (tmp_path / "outside").touch()
    found = recorded(root, lambda tell: do(root / "old"))
    assert isinstance(found, str)
    assert found.startswith("failed: ")
    assert said in found
