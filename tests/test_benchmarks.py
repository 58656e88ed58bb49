"""The benchmarks run, tell what they measured, and fail where they must."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.place import sqlite_place
from benchmarks.speed import __main__ as speed
from benchmarks.speed.counted import OPERATIONS, counted_texts
from benchmarks.speed.counts import inside_rows, outside_rows
from benchmarks.speed.endings import cleanup_rows
from benchmarks.speed.rivals import RIVALS
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.timing import Times, interleaved
from benchmarks.speed.trips import Answers, trip_rows

CHECKOUT = Path(__file__).parent.parent
NEVER_TOO_LONG = ("--longest-answer", "60000", "--longest-path-lag", "60000")
SHORT = ("--seconds", "2", "--turn", "0.5", "--connections", "8", "--processes", "2", "--users", "1")

#: How many rows each has.
SUITES_OF_A_CHAT = {
    "floors": 8,
    "agent": 2,
    "opening": 2,
    "sequence": 1,
    "threads": 4,
    "processes": 4,
    "memory": 2,
    "imports": 3,
}


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
    done = run("patterns", "--rounds", "1", *NEVER_TOO_LONG, "--longest-lag", "60000", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert len(rows) > 10
    assert "(a+)+$" in [row["query"] for row in rows if row["is_stopped"]]
    assert all(0 < row["lag_ms"] < row["answer_ms"] for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_that_is_held_for_too_long_is_a_failure() -> None:
    done = run("patterns", "--rounds", "1", *NEVER_TOO_LONG, "--longest-lag", "0.000001")
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 12
    assert "loop held" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_protection_costs_is_measured_beside_doing_without() -> None:
    done = run("speed", "sqlite", "uncompressed", "pages", "durable", "postgresql", "--rounds", "4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert len(rows) == 18
    for row in rows:
        assert row["value"] == pytest.approx(row["ours"]["median_us"] / row["theirs"]["median_us"])
        assert min(row["ours"]["count"], row["theirs"]["count"]) >= 2
        assert row["ours"]["median_us"] <= row["ours"]["p99_us"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_where_the_time_goes_is_told() -> None:
    done = run("profile", "--calls", "50", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert set(found) == {"write", "read", "page"}
    for figures in found.values():
        assert sum(figures["shares"].values()) == pytest.approx(1)
        # Whatever moves to another file is still found.
        assert {"cipher", "compression", "keys", "statements and commits, in SQLite"} <= set(figures["shares"])
        assert min(figures["shares"].values()) > 0
        assert figures["us"] > 0
        assert figures["functions"] > 50


@pytest.mark.parametrize(("median", "code"), [(7.9, 0), (8.1, 1)])
def test_a_goal_that_is_missed_is_a_failure_where_that_is_asked_for(
    median: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = (Times(each, (0.0, 0.0), each, 1) for each in (median, 10.0))
    monkeypatch.setattr(speed, "rows_of", lambda suite, rounds: iter([Row(f"work of {suite}", "H", 0.8, ours, theirs)]))
    assert speed.main(["sqlite", "pages"]) == 0
    assert speed.main(["sqlite", "pages", "--gate"]) == code
    printed = capsys.readouterr()
    assert printed.err.count("error: work of ") == 2 * code
    assert printed.out.count("work of ") == 4


def test_no_operation_takes_more_statements_commits_and_decrypted_bytes_than_its_limit() -> None:
    with sqlite_place(files_from=32 * 1024) as place:
        counted = counted_of(inside_rows(place, counted_texts()))
    assert {("write 4 KB", "SQL statements"), ("write 4 KB", "commits")} <= counted
    assert ("4 KB page of 1 MB", "bytes decrypted") in counted


@pytest.mark.timeout(60)
def test_no_operation_takes_more_system_calls_files_and_syncs_than_its_limit() -> None:
    with sqlite_place(files_from=32 * 1024) as place:
        counted = counted_of(outside_rows(place, counted_texts()))
    assert {("write 4 KB", "fsyncs, durable"), ("4 KB page of 1 MB", "files opened")} <= counted


def counted_of(found: Iterable[Row]) -> set[tuple[str, str]]:
    """What was counted at all, since what nobody counts is within any limit. It must be within its limits."""
    rows = list(found)
    assert {row.work for row in rows} == set(OPERATIONS)
    assert [str(row) for row in rows if row.is_missed] == []
    return {(row.work, row.peer) for row in rows if row.value}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_stored_for_each_byte_is_told() -> None:
    done = run("speed", "counts", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    stored = [row["value"] for row in json.loads(done.stdout) if row["peer"] == "stored bytes a byte"]
    assert len(stored) == 3
    assert all(0 < value < 1 for value in stored)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("suite", "count"), SUITES_OF_A_CHAT.items())
def test_what_a_chat_feels_is_measured(suite: str, count: int) -> None:
    # However busy this machine is: that something takes too long on it is for the benchmark itself to say.
    done = run("speed", suite, "--rounds", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert len({(row["work"], row["peer"]) for row in rows}) == len(rows) == count
    for row in rows:
        assert row["value"] is not None
        assert row["unit"] or row["value"] > 0
        assert row["figure"] is not None or row["ours"]["count"] == row["theirs"]["count"] >= 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_round_trips_are_counted_between_the_library_and_the_server() -> None:
    rows = list(trip_rows())
    assert [row.work for row in rows] == list(OPERATIONS)
    trips = {row.work: row.value for row in rows}
    assert trips["read 4 KB"] == trips["open an existing session"] == 1
    assert all(row.value and row.value == int(row.value) for row in rows)
    assert not any(row.is_missed for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cleanup_is_timed_until_nothing_can_be_read_until_rows_are_gone_and_in_files() -> None:
    rows = list(cleanup_rows(2, sessions=2_000))
    ending, removing = "end 200 of 2,000 sessions", "remove 200 files of a session"
    assert [row.work for row in rows] == [ending, ending, "reclaim sessions", removing, removing]
    assert all(row.value for row in rows)
    # What is measured beside its bare steps has its goal in the line above.
    assert [bool(row.goal) for row in rows] == [True, False, True, True, False]


def test_a_figure_with_a_unit_is_held_to_its_goal_and_a_row_without_one_to_none() -> None:
    figure = Row("page", "peak memory", 16, figure=17.5, unit="MiB")
    assert (figure.value, figure.is_missed) == (17.5, True)
    assert "17.50       16*MiB" in str(figure)
    assert not Row("page", "peak memory", 16, figure=16.0, unit="MiB").is_missed
    missing = Row("write", "somebody", 0.1, note="not installed")
    assert (missing.value, missing.is_missed) == (None, False)
    assert str(missing).endswith("not installed")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_rival_is_measured_or_called_missing() -> None:
    done = run("speed", "rivals", "--rounds", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert {row["peer"] for row in rows} == set(RIVALS)
    assert all(row["value"] or row["note"].startswith("not installed") for row in rows)


def test_a_rival_that_is_not_installed_is_told_and_misses_no_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("agents", "deepagents.backends", "langgraph.store.sqlite", "google.adk"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "google.adk.artifacts.file_artifact_service", None)
    assert speed.main(["rivals", "--rounds", "1", "--gate"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("not installed") == len(RIVALS)
    assert all(name in printed for name in RIVALS)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100])
def test_answers_are_counted_however_they_are_cut(size: int) -> None:
    # Two that are ready, and a row that holds what looks like a third.
    row = b"D" + (4 + 6).to_bytes(4, "big") + b"Z\0\0\0\5I"
    ready = b"Z\0\0\0\5I"
    said = ready + row + b"n\0\0\0\4" + ready
    answers = Answers()
    assert sum(answers.ready(said[at : at + size]) for at in range(0, len(said), size)) == 2


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    contenders = {name: lambda number, name=name: calls.append(f"{name}{number}") for name in "ab"}
    times = interleaved(contenders, rounds=30, block=2)
    assert {name: each.count for name, each in times.items()} == {"a": 60, "b": 60}
    assert [each for each in calls if each[0] == "a"] == [f"a{number}" for number in range(62)]
    blocks = [calls[start][0] for start in range(0, len(calls), 2)]
    assert blocks == [calls[start + 1][0] for start in range(0, len(calls), 2)]
    # In no order that somebody could rely on.
    assert len({tuple(blocks[start : start + 2]) for start in range(0, len(blocks), 2)}) == 2


def test_texts_are_of_one_size_and_of_several_kinds() -> None:
    for chars in (4096, 2**20):
        texts = sample_texts(chars)
        assert {len(text) for text in texts} == {chars}
        assert len(set(texts)) == len(texts) >= 8
