"""Forks, from a process that has no other thread at work: none of another test's, which might be inside OpenSSL."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent


def test_forked_workers_serve_their_users_and_nobody_else() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/haystack/forks.py"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "6 passed" in done.stdout
