"""On a disk without a byte or an inode left: writes are refused; reads, deletes, cleanup and the tools go on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.full_disk.mounts import NO_DISK

STEPS = ("begin", "fill_up", "read", "delete", "clean", "recover")


@pytest.mark.slow
@pytest.mark.case(124, 127)
@pytest.mark.parametrize("inline_bytes", [0, 32768])
@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_on_a_full_disk_only_what_needs_room_is_refused(what: str, inline_bytes: int, tmp_path: Path) -> None:
    # In a process of its own, which alone sees the small disk.
    program = [sys.executable, "-m", "tests.full_disk.scenario", what, str(inline_bytes), str(tmp_path)]
    done = subprocess.run(
        program, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode != NO_DISK, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.removesuffix(": done") for line in done.stdout.splitlines() if line.endswith(": done")] == [*STEPS]
