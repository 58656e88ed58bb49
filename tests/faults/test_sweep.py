"""Whatever the system refuses, and wherever a process dies: nothing acknowledged is lost and nothing is left wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.injector import KILL, MODES
from tests.faults.operations import OPERATIONS
from tests.faults.plans import Shot, brief, every
from tests.faults.report import as_json, lines, rows
from tests.faults.sweep import Result, Seen

CHECKOUT = Path(__file__).parents[2]


def swept(*arguments: str) -> dict[str, Any]:
    """Run the command in a process of its own, which nothing else has been in."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *arguments, "--json"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["broken"] == []
    assert done.returncode == 0
    return told


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.case(55, 58)
def test_no_error_and_no_death_at_any_system_call_breaks_an_invariant() -> None:
    # What is struck in every run of the checks; `python -m tests.faults` strikes all operations, and takes its time.
    found = swept("--brief", "--only", "^delete$|^cleanup")["rows"]
    for operation in [each for each in OPERATIONS if each.name in ("delete", "cleanup")]:
        for way in operation.ways:
            some = {row["mode"]: row for row in found if (row["operation"], row["way"]) == (operation.name, way)}
            assert set(some) >= set(MODES) - {"short"}
            # What is struck does not go unnoticed: a sweep of faults that nobody meets would say little.
            assert all(row["struck"] > 0.8 * row["trials"] for row in some.values())
            assert sum(row["refused"] for row in some.values()) > 10


CALLS = [
    Seen("openat", "results/a"),
    Seen("write", "results/a/b", 10),
    Seen("?"),
    Seen("write", "catalogue.sqlite3", 1),
    Seen("newfstatat", None),
    Seen("?"),
]


def test_all_of_a_sweep_is_every_fault_at_every_call_it_can_strike() -> None:
    shots = every(OPERATIONS[0], CALLS)
    counts = {mode: [shot.number for shot in shots if shot.mode == mode] for mode in MODES}
    assert counts == {**{mode: [1, 2, 3] for mode in MODES[:5]}, "short": [1], KILL: [1, 2, 3, 4, 5, 6]}


def test_what_a_test_has_the_time_for_is_all_of_the_everyday_and_of_the_rest_a_strike_at_every_call() -> None:
    everyday = {operation.name for operation in OPERATIONS if operation.is_everyday}
    assert everyday == {"first write", "write", "read", "delete"}
    for operation in OPERATIONS:
        shots = brief(operation, CALLS)
        if operation.is_everyday:
            assert shots == every(operation, CALLS)
        else:
            assert shots == [Shot("EIO", 1), Shot("ENOSPC", 2), Shot("EMFILE", 3), *(Shot(KILL, n) for n in (2, 3, 5))]


def test_of_very_many_calls_every_third_is_struck_and_the_errors_still_take_turns() -> None:
    some, many = ([Seen("write", "results/a/b", 10)] * count for count in (250, 300))
    starting = OPERATIONS[0]
    assert [shot.number for shot in brief(starting, some) if shot.mode != KILL][:3] == [1, 2, 3]
    shots = [shot for shot in brief(starting, many) if shot.mode != KILL]
    assert sorted(shot.number for shot in shots) == list(range(1, 301, 3))
    assert {shot.mode for shot in shots} == set(MODES) - {KILL}


RESULTS = [
    Result("write", "files", Shot("EIO", 1), "openat results", "raised StorageUnavailable()", ()),
    Result("write", "files", Shot("EIO", 2), "close results", "returned 'x'", ("it is lost", "it is altered")),
    Result("write", "files", Shot("EIO", 3), None, "returned 'x'", ()),
    Result("write", "files", Shot(KILL, 1), "?", "died of signal 9", ()),
]


def test_a_report_counts_what_was_struck_refused_and_broken_and_names_what_to_repeat() -> None:
    eio, kill = rows(RESULTS)
    assert (eio.mode, eio.struck, eio.trials, eio.refused, eio.broken) == ("EIO", 2, 3, 1, 1)
    assert (kill.mode, kill.struck, kill.trials, kill.refused, kill.broken) == (KILL, 1, 1, 1, 0)
    said = list(lines(RESULTS))
    assert said[0] == "BROKEN  write, files, EIO at 2 (close results), returned 'x': it is lost"
    assert said[1].endswith("it is altered")
    assert said[-1].split() == ["all", "3", "4", "2", "1"]
    (found,) = json.loads(as_json(RESULTS))["broken"]
    assert (found["shot"], found["broken"]) == ({"mode": "EIO", "number": 2}, ["it is lost", "it is altered"])


def test_the_command_tells_by_its_exit_code_and_in_words_whether_anything_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.faults import __main__ as command

    for results, code in ((RESULTS, 1), (RESULTS[:1], 0)):
        monkeypatch.setattr(command, "sweep", lambda *_, results=results, **__: results)
        assert command.main([]) == code
        assert ("BROKEN" in capsys.readouterr().out) == bool(code)
    assert command.main(["--json", "--only", "^nothing like it$"]) == 0
