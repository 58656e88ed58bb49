"""Forked workers, with a manager of their own and with their parent's. Run by `test_forks.py`."""

from collections.abc import Callable
from typing import Any

from haystack.tools import Tool

from tenancy.manager import SessionManager
from tenancy.seam.binding import RoutedStore
from tests.forked import in_a_child
from tests.haystack.backend import TOPIC, asked, canary, chat_of, fetched, shared_agent, stored_for, stored_in
from tests.haystack.support import agent, call, is_bound, results_of


def test_a_child_with_a_manager_of_its_own_serves_its_users_beside_its_parent(
    make_manager: Callable[..., SessionManager],
) -> None:
    manager = make_manager(durability="process")
    shared = shared_agent()

    def served_by_the_child() -> list[str]:
        with make_manager(durability="process") as own:
            for user in ("b", "c"):
                with chat_of(own, user) as session:
                    shared.run(asked(user), hook_context=session.hook_context)
            return stored_for(own, "b")

    with chat_of(manager, "a") as session:
        shared.run(asked("a"), hook_context=session.hook_context)
        assert in_a_child(served_by_the_child) == [fetched(canary("b"))] * 2
        shared.run(asked("a"), hook_context=session.hook_context)
    assert stored_for(manager, "a") == [fetched(canary("a"))] * 4
    for user in ("b", "c"):
        assert stored_for(manager, user) == [fetched(canary(user))] * 2


def test_a_child_may_go_on_with_its_parents_manager_and_sessions(manager: SessionManager) -> None:
    shared = shared_agent()
    session = chat_of(manager, "a")
    shared.run(asked("a"), hook_context=session.hook_context)

    def served_by_the_child() -> list[Any]:
        shared.run(asked("a"), hook_context=session.hook_context)
        with chat_of(manager, "b") as other:
            shared.run(asked("b"), hook_context=other.hook_context)
        inherited = len(stored_in(session))
        # What a child closes is its own.
        session.close()
        manager.close()
        return [inherited, is_bound()]

    for round_ in (1, 2):
        assert in_a_child(served_by_the_child) == [4 * round_, False]
        shared.run(asked("a"), hook_context=session.hook_context)
        assert stored_in(session) == [fetched(canary("a"))] * (2 + 4 * round_)
    assert stored_for(manager, "b") == [fetched(canary("b"))] * 4


def test_a_child_forked_by_a_tool_is_its_users_too_and_nobody_elses(manager: SessionManager) -> None:
    shared = shared_agent()
    mine, others = chat_of(manager, "a"), chat_of(manager, "b")
    said: list[Any] = []

    def served_by_the_child() -> list[Any]:
        RoutedStore().write(key="child.txt", content=fetched(canary("a")))
        smuggled = shared.run(asked("b"), hook_context=others.hook_context)
        others.run(shared, asked("b"))
        return [results_of(smuggled["messages"])[0][:35], is_bound()]

    def forks(topic: str = "") -> str:
        said.extend(in_a_child(served_by_the_child))
        RoutedStore().write(key="parent.txt", content=fetched(canary("a")))
        return "forked"

    tool = Tool(name="fork", description="Forks.", parameters=TOPIC, function=forks)
    agent(call("fork"), "done", tools=[tool], offload={}).run(asked("a"), hook_context=mine.hook_context)

    assert said == ["[Not stored: this run has no sessio", True]
    assert not is_bound()
    assert stored_in(mine) == [fetched(canary("a"))] * 2
    assert stored_in(others) == [fetched(canary("b"))] * 2
