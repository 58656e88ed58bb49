"""
The power goes at every moment of every operation, and whatever it leaves, every promise is kept.

`python -m tests.power_loss` shows what was tried.
"""

from collections.abc import Sequence

import pytest

from tests.power_loss.naive import NAIVE
from tests.power_loss.report import lines
from tests.power_loss.scenarios import SCENARIOS
from tests.power_loss.tasks import Result, Task, all_tasks, run_all

# Each takes seconds on a quiet machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def tried(tasks: Sequence[Task]) -> list[Result]:
    """Try in a process without other children, one after the other: pytest has several workers of its own."""
    assert tasks
    results = run_all(tasks, workers=1)
    assert [result for result in results if not result.is_good] == [], "\n".join(lines(results))
    return results


@pytest.mark.case(59)
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_whatever_power_loss_leaves_keeps_every_promise(name: str) -> None:
    (result,) = tried([Task(name)])
    outcome = result.outcome
    # As many as it takes to mean something: states at every moment, and several that really differ.
    assert outcome.states > outcome.moments > outcome.operations > 10
    assert outcome.distinct >= outcome.recovered > 1
    # Only the first start leaves, on its way, what does not open; see `faults`.
    assert outcome.refused == 0


def test_whatever_the_death_of_the_process_leaves_keeps_every_promise() -> None:
    results = tried([task for task in all_tasks() if task.durability == "process"])
    assert [result.task.scenario for result in results] == [scenario.name for scenario in SCENARIOS]
    assert all(result.outcome.states == result.outcome.moments for result in results)


@pytest.mark.parametrize("name", [naive.name for naive in NAIVE])
def test_naive_orders_break_promises(name: str) -> None:
    results = tried([task for task in all_tasks() if task.naive == name])
    assert all(result.outcome.faults for result in results)
