"""The benchmarks run, tell what they measured, and fail where they must."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
SHORT = ("--seconds", "2", "--turn", "0.5", "--connections", "8", "--processes", "2", "--users", "1")


def run(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case(52)
def test_the_noisy_tenant_is_measured_beside_another_one() -> None:
    # However busy this machine is: that somebody waits too long on it is for the benchmark itself to say.
    done = run("noisy_tenant", *SHORT, "--longest", "60", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert (figures["ok"], figures["errors"], figures["connections"]) == (True, [], 8)
    assert figures["noisy"]["writes_per_second"] > 0
    for turn in ("alone", "beside"):
        for kind in ("writes", "reads"):
            times = figures["other"][turn][kind]
            assert times["count"] > 0
            assert 0 < times["median_ms"] <= times["p99_ms"] <= times["longest_ms"] <= figures["longest_ms"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_wait_that_is_too_long_is_a_failure_with_a_table() -> None:
    done = run("noisy_tenant", *SHORT, "--longest", "0.0001")
    assert done.returncode == 1
    assert done.stderr.startswith("error: somebody waited for ")
    assert "noisy tenant: 8 connections, " in done.stdout
    assert done.stdout.count(" ms") == 16
