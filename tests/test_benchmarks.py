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


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case(126, 136)
def test_four_processes_clean_up_and_reclaim_each_session_once() -> None:
    sizes = ("--sessions", "200", "--results", "2005", "--written", "50", "--tenants", "7", "--batch-size", "10")
    done = run("cleanup", *sizes, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert [each["database"].split()[0] for each in figures] == ["SQLite", "SQLite", "PostgreSQL"]
    # Only the second has files: the first result of every five, of each session that is written.
    assert [each["files"] for each in figures] == [0, 105, 0]
    for each in figures:
        # With the one session that others are copies of, and its result.
        size_bytes = 105 * 4000 + (50 * 10 + 5 - 105 + 150 * 10 + 1) * 300
        assert each["written"] == {"sessions": 201, "results": 2006, "size_bytes": size_bytes}
        assert each["reclaimed"] == each["written"]
        assert sum(each["sessions_each"]) == 201
        assert set(each["left"].values()) == {0}
        assert each["results_per_second"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case(136)
def test_what_calls_cost_is_measured_in_a_small_and_a_large_catalogue() -> None:
    # However busy this machine is: that a call costs too much is for the benchmark itself to say.
    done = run("growth", "--small", "4000", "--large", "8000", "--rounds", "3", "--ratio", "1000", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert [each["database"].split()[0] for each in figures] == ["SQLite", "PostgreSQL"]
    for each in figures:
        assert (each["ok"], each["results"]) == (True, [4000, 8000])
        assert len(each["calls"]) == 14
        assert all(call["ratio"] > 0 for call in each["calls"].values())
        assert "ix_tenancy_sessions_state_expires" in str(each["plans"]["reclaim_statements.EXPIRED"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_call_that_costs_too_much_is_a_failure() -> None:
    done = run("growth", "--small", "4000", "--large", "4000", "--rounds", "2", "--ratio", "0.001", "--only", "sqlite")
    assert done.returncode == 1
    assert done.stderr.count("times as much") == 14
    assert "how rows are found among 4,000 results" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_writes_and_deletes_leave_is_looked_at_before_and_after_a_vacuum() -> None:
    done = run("growth", "--churn", "1003", "--processes", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    before, after, vacuumed = (figures["tables"][when]["tenancy_results"] for when in figures["tables"])
    assert after["inserted"] - before["inserted"] == 1003
    assert after["deleted"] - before["deleted"] == 1003
    assert vacuumed["dead"] <= 103
    # Counters are changed where they are.
    assert figures["hot_share"] > 0.5


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case(117)
def test_a_run_of_thirty_steps_stays_in_its_window_everywhere() -> None:
    done = run("conversation", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert len({(each["where"], each["way"]) for each in figures["with"]}) == 8
    for each in figures["with"]:
        assert (each["steps"], each["stored"], each["faults"]) == (30, 10, [])
        assert each["peak_tokens"] < 16_000 < figures["without"]["peak_tokens"]
        assert each["removed"] > 0
        assert each["sent_tokens"] < figures["without"]["sent_tokens"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_request_larger_than_the_window_is_a_failure() -> None:
    done = run("conversation", "--only", "sqlite", "--window", "500")
    assert done.returncode == 1
    assert done.stderr.count("error: SQLite") == done.stderr.count(" of 500 tokens") == 4
    assert "sent in all" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case(122)
def test_patterns_without_end_are_asked_beside_a_task_that_looks_at_the_clock() -> None:
    # However busy this machine is: that somebody waits too long on it is for the benchmark itself to say.
    limits = ("--rounds", "1", "--longest-answer", "60000", "--longest-lag", "60000", "--longest-path-lag", "60000")
    done = run("patterns", *limits, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert len(rows) > 10
    assert "(a+)+$" in [row["query"] for row in rows if row["is_stopped"]]
    assert all(0 < row["lag_ms"] < row["answer_ms"] for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_that_is_held_for_too_long_is_a_failure() -> None:
    done = run("patterns", "--rounds", "1", "--longest-lag", "0.000001")
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 12
    assert "loop held" in done.stdout
