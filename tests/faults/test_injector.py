"""A fault strikes the call it is meant for, in the way it is meant, and nothing else."""

import errno
import fcntl
import mmap
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Struck
from tests.faults.injector import KILL, MODES, SHORT

ERRORS = [mode for mode in MODES if mode not in (KILL, SHORT)]
CREATE = os.O_RDWR | os.O_CREAT


def put(path: Path, data: bytes = b"123456") -> int:
    """Write a file in three calls, so that each of them can be struck, and say how much was written."""
    descriptor = os.open(path, CREATE)
    written = os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    return written


@pytest.mark.parametrize("mode", [mode for mode in ERRORS if mode != "EINTR"])
@pytest.mark.parametrize(("number", "left"), [(1, None), (2, b""), (3, b"123456"), (4, b"123456")])
def test_a_call_that_is_struck_answers_with_the_error_and_does_nothing(
    struck: Struck, mode: str, number: int, left: bytes | None
) -> None:
    path = struck.folder / "file"
    outcome = struck.strike(lambda: lambda: put(path), mode=mode, number=number)
    assert outcome.struck is not None
    assert str(outcome.struck) == ["openat file", "write file", "fsync file", "close file"][number - 1]
    assert not outcome.is_ours
    assert f"({getattr(errno, mode)}," in outcome.said
    assert (path.read_bytes() if path.exists() else None) == left


def test_an_interrupted_call_is_tried_again_by_python_and_succeeds(struck: Struck) -> None:
    path = struck.folder / "file"
    outcome = struck.strike_first("write", lambda: put(path), mode="EINTR")
    assert (outcome.is_returned, outcome.returned) == (True, 6)
    assert path.read_bytes() == b"123456"


def test_a_close_that_fails_has_closed_all_the_same_as_on_linux_it_has(struck: Struck) -> None:
    def close_twice() -> list[int]:
        descriptor = os.open(struck.folder / "file", CREATE)
        codes = []
        for _ in range(2):
            try:
                os.close(descriptor)
            except OSError as error:
                codes.append(error.errno)
        return codes

    assert struck.strike_first("close", close_twice, mode="EIO").returned == [errno.EIO, errno.EBADF]


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda descriptor: [os.write(descriptor, b"abcdef"), os.write(descriptor, b"gh")], "write"),
        (lambda descriptor: [os.pwrite(descriptor, b"abcdef", 0), os.pwrite(descriptor, b"gh", 3)], "pwrite64"),
        (lambda descriptor: [os.writev(descriptor, [b"abc", b"def"]), os.writev(descriptor, [b"g", b"h"])], "writev"),
    ],
    ids=["write", "pwrite64", "writev"],
)
def test_a_short_write_takes_half_and_the_next_one_all(
    struck: Struck, write: Callable[[int], list[int]], name: str
) -> None:
    path = struck.folder / "file"
    outcome = struck.strike_first(name, lambda: write(os.open(path, CREATE | os.O_TRUNC)), mode=SHORT)
    assert outcome.returned == [3, 2]
    assert path.read_bytes() == b"abcgh"


def test_a_write_of_one_byte_cannot_be_shorter(struck: Struck) -> None:
    outcome = struck.strike(lambda: lambda: put(struck.folder / "file", b"x"), mode=SHORT, number=1)
    assert (outcome.struck, outcome.returned) == (None, 1)


@pytest.mark.parametrize(("number", "left"), [(1, None), (2, b""), (3, b"123456"), (5, b"123456")])
def test_who_is_killed_at_a_call_has_made_all_before_it_and_not_this_one(
    struck: Struck, number: int, left: bytes | None
) -> None:
    path = struck.folder / "file"
    outcome = struck.strike(lambda: lambda: put(path), mode=KILL, number=number)
    assert (outcome.is_over, outcome.died) == (False, 9)
    assert (path.read_bytes() if path.exists() else None) == left


def test_death_comes_at_calls_that_touch_no_file_too_and_takes_every_thread(struck: Struck) -> None:
    def in_a_thread() -> None:
        thread = threading.Thread(target=lambda: [os.getppid() for _ in range(100)])
        thread.start()
        thread.join()

    calls = struck.calls_of(lambda: in_a_thread)
    assert len(calls) > 100
    for number in (1, len(calls) // 2):
        outcome = struck.strike(lambda: in_a_thread, mode=KILL, number=number)
        assert (outcome.is_over, outcome.died) == (False, 9)


def test_calls_of_other_threads_are_struck_too(struck: Struck) -> None:
    def in_a_thread() -> list[str]:
        said: list[str] = []

        def work() -> None:
            try:
                put(struck.folder / "file")
            except OSError as error:
                said.append(error.strerror)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return said

    assert struck.strike_first("fsync", in_a_thread, mode="EIO").returned == [os.strerror(errno.EIO)]


def test_a_fault_strikes_once_and_only_in_the_folder(struck: Struck, tmp_path: Path) -> None:
    def work() -> list[str]:
        said = []
        for path in (tmp_path / "elsewhere", struck.folder / "first", struck.folder / "second"):
            try:
                put(path)
            except OSError as error:
                said.append(f"{path.name} {error.errno}")
        return said

    assert struck.strike(lambda: work, mode="ENOSPC", number=1).returned == ["first 28"]


def test_what_gets_ready_is_not_struck_and_what_is_over_before_its_turn_is_said_so(struck: Struck) -> None:
    def work() -> Callable[[], int]:
        put(struck.folder / "ready")
        return lambda: put(struck.folder / "tried")

    assert [seen.target for seen in struck.calls_of(work) if seen.target] == ["tried"] * 4
    outcome = struck.strike(work, mode="EIO", number=5)
    assert (outcome.struck, outcome.returned) == (None, 6)


def test_work_that_cannot_get_ready_is_no_trial(struck: Struck) -> None:
    with pytest.raises(AssertionError, match=r"TracingFailed.*not prepared.*ZeroDivisionError"):
        struck.strike(lambda: 1 / 0, mode="EIO", number=1)  # type: ignore[arg-type, return-value]


def test_a_sync_that_is_tried_again_after_it_failed_is_noticed(struck: Struck) -> None:
    def sync(*, again: bool) -> None:
        descriptor = os.open(struck.folder / "file", CREATE)
        try:
            os.fsync(descriptor)
        except OSError:
            if again:
                os.fdatasync(descriptor)

    for again in (True, False):
        outcome = struck.strike_first("fsync", lambda again=again: sync(again=again), mode="EIO")
        assert (outcome.is_returned, outcome.is_synced_again) == (True, again)


def every_kind_of_call(folder: Path) -> Any:
    """Touch a file by descriptor and by name in each way that this library, Python or SQLite has."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    descriptor = os.open("file", CREATE, dir_fd=held)
    os.write(descriptor, b"x" * 4096)
    os.pwrite(descriptor, b"x", 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.read(descriptor, 1)
    os.pread(descriptor, 1, 0)
    os.ftruncate(descriptor, 4096)
    os.posix_fallocate(descriptor, 0, 4096)
    os.fchmod(descriptor, 0o600)
    os.fchown(descriptor, -1, -1)
    os.fsync(descriptor)
    os.fdatasync(descriptor)
    os.fstat(descriptor)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    mmap.mmap(descriptor, 4096).close()
    os.stat("file", dir_fd=held, follow_symlinks=False)
    os.listdir(held)
    os.mkdir("room", dir_fd=held)
    os.rename("room", "moved", src_dir_fd=held, dst_dir_fd=held)
    os.rmdir("moved", dir_fd=held)
    os.link("file", "second", src_dir_fd=held, dst_dir_fd=held)
    os.unlink("second", dir_fd=held)
    os.access(folder / "file", os.R_OK)
    os.chmod(folder / "file", 0o600)
    os.close(descriptor)


def test_no_call_on_a_file_of_the_folder_is_overlooked(struck: Struck) -> None:
    calls = struck.calls_of(lambda: lambda: every_kind_of_call(struck.folder))
    seen = {call.name for call in calls if call.target is not None}
    assert {
        "openat", "write", "pwrite64", "lseek", "read", "pread64", "ftruncate", "fallocate", "fchmod", "fchown",
        "fsync", "fdatasync", "fcntl", "flock", "mmap", "getdents64", "mkdirat", "renameat", "unlinkat", "linkat",
        "close",
    } <= seen  # fmt: skip
    # By which names, the C library decides.
    assert seen & {"fstat", "newfstatat", "statx"}
    assert seen & {"access", "faccessat", "faccessat2"}
    assert seen & {"chmod", "fchmodat", "fchmodat2"}


def test_a_child_that_hangs_is_ended_by_its_own_alarm(struck: Struck) -> None:
    def hang() -> None:
        signal.alarm(1)
        os.open(struck.folder / "file", CREATE)
        signal.pause()

    assert struck.strike(lambda: hang, mode="EIO", number=2).died == signal.SIGALRM
