"""Everything that was asked for is tried, and the exit code says what came of it."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.power_loss import __main__ as command
from tests.power_loss.naive import NAIVE
from tests.power_loss.recorder import RecordingFailed
from tests.power_loss.report import lines
from tests.power_loss.scenarios import SCENARIOS
from tests.power_loss.tasks import Result, Task, all_tasks
from tests.power_loss.trial import Outcome

REAL, NAIVE_ONE = Task("write file"), Task("write file", naive="row, then file")
SOUND = Outcome(operations=20, moments=21, states=400, distinct=50, recovered=5)
BROKEN = Outcome(20, 21, 400, 50, 5, refused=0, broken=7, faults=Counter({"A row has no bytes": 7}))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command line where trying gives these results."""

    def run(found: list[Result] | Exception, *arguments: str) -> tuple[int, str]:
        def run_all(tasks: list[Task], **_: Any) -> list[Result]:
            assert tasks
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(command, "run_all", run_all)
        code = command.main(arguments)
        return code, capsys.readouterr().out

    return run


def test_each_operation_is_tried_in_each_mode_and_each_naive_order_where_it_shows() -> None:
    tasks = all_tasks()
    assert len(set(tasks)) == len(tasks)
    assert {(task.scenario, task.durability) for task in tasks if not task.naive} == {
        (scenario.name, durability) for scenario in SCENARIOS for durability in ("power", "process")
    }
    assert {task.naive for task in tasks} - {""} == {naive.name for naive in NAIVE}
    assert {task.scenario for task in tasks if task.naive} <= {scenario.name for scenario in SCENARIOS}
    assert all_tasks(r"^write file \(row, then") == [NAIVE_ONE]
    assert all_tasks("nothing like it") == []


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([Result(REAL, SOUND), Result(NAIVE_ONE, BROKEN)], 0),
        ([Result(REAL, BROKEN), Result(NAIVE_ONE, BROKEN)], 1),
        ([Result(REAL, SOUND), Result(NAIVE_ONE, SOUND)], 1),
        (RecordingFailed("why"), 2),
    ],
)
def test_the_exit_code_says_whether_all_is_as_it_should_be(
    run: Callable[..., tuple[int, str]], results: list[Result] | Exception, code: int
) -> None:
    assert run(results)[0] == code


def test_nothing_to_try_is_no_success(run: Callable[..., tuple[int, str]]) -> None:
    assert run([], "--only", "nothing like it")[0] == 2


def test_the_table_shows_every_number_and_every_fault(run: Callable[..., tuple[int, str]]) -> None:
    _, shown = run([Result(REAL, BROKEN), Result(NAIVE_ONE, SOUND)])
    assert "write file (power)" in shown
    assert shown.split("write file (power)")[1].split()[:7] == ["20", "21", "400", "50", "5", "0", "7"]
    assert "7 x A row has no bytes" in shown
    assert "nothing is broken, and it should be" in shown
    assert "2 of 2 lines not as they should be" in shown
    # What is broken on purpose is no news.
    assert "7 x" not in "\n".join(lines([Result(REAL, SOUND), Result(NAIVE_ONE, BROKEN)]))


def test_a_program_can_read_all_of_it(run: Callable[..., tuple[int, str]]) -> None:
    real, naive = json.loads(run([Result(REAL, BROKEN), Result(NAIVE_ONE, BROKEN)], "--json")[1])
    assert (real["scenario"], real["durability"], real["is_good"]) == ("write file", "power", False)
    assert real["faults"] == {"A row has no bytes": 7}
    assert (naive["naive"], naive["is_good"]) == ("row, then file", True)
