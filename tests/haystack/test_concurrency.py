"""Many runs at once on one agent with one set of hooks: what is a user's stays a user's, whatever runs beside it."""

import asyncio
import contextvars
import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.hooks.tool_result_offloading import AlwaysOffload
from haystack.tools import Tool

from tenancy.errors import SessionNotFound
from tenancy.manager import SessionManager
from tenancy.seam.binding import RoutedStore
from tests.haystack.backend import (
    TOPIC,
    Workers,
    asked,
    canaries_in,
    canary,
    chat_of,
    fetched,
    shared_agent,
    stored_for,
    stored_in,
)
from tests.haystack.conftest import Events
from tests.haystack.support import agent, call, canary_of, is_bound, results_of


def _meeting_agent(parties: list[asyncio.Barrier]) -> Agent:
    """An agent whose runs wait for each other inside their tool, so that they truly run at once."""

    async def fetch(topic: str = "") -> str:
        await parties[0].wait()
        return fetched(topic)

    tool = Tool(name="fetch", description="Fetches.", parameters=TOPIC, async_function=fetch)
    return agent(
        lambda messages: call("fetch", topic=canary_of(messages)),
        "done",
        tools=[tool],
        offload={"*": AlwaysOffload()},
    )


@pytest.mark.case(74)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_two_runs_at_once_on_one_agent_never_cross(rounds: int, manager: SessionManager, events: Events) -> None:
    parties: list[asyncio.Barrier] = []
    shared = _meeting_agent(parties)
    sessions = {user: chat_of(manager, user) for user in ("a", "b")}

    async def story() -> None:
        parties.append(asyncio.Barrier(len(sessions)))
        for _ in range(rounds):
            answers = await asyncio.gather(
                *(shared.run_async(asked(user), hook_context=opened.hook_context) for user, opened in sessions.items())
            )
            for user, answer in zip(sessions, answers, strict=True):
                assert canaries_in(answer) == {canary(user)}
                assert answer["last_message"].text == "done"

    Workers().serve(story)
    for user, session in sessions.items():
        assert stored_in(session) == [fetched(canary(user))] * rounds
    assert events.names == []


@pytest.mark.case(107)
def test_two_hundred_interleaved_runs_on_one_agent_never_cross(manager: SessionManager, events: Events) -> None:
    parties: list[asyncio.Barrier] = []
    shared = _meeting_agent(parties)
    # Five tenants, and in each of them the same forty users with a session of the same name.
    people = [(f"t{number % 5}", f"u{number // 5}", canary(number)) for number in range(200)]
    sessions = [manager.session(tenant=tenant, user=user, session="chat") for tenant, user, _ in people]

    async def story() -> list[Any]:
        parties.append(asyncio.Barrier(len(people)))
        runs = (
            shared.run_async(asked(number), hook_context=session.hook_context)
            for number, session in enumerate(sessions)
        )
        return await asyncio.gather(*runs)

    answers = Workers().serve(story)
    for (_, _, secret), session, answer in zip(people, sessions, answers, strict=True):
        assert canaries_in(answer) == {secret}
        assert stored_in(session) == [fetched(secret)]
    assert events.names == []


Write = Callable[[], str]


def _with_context(write: Write) -> Write:
    """A timeout around a synchronous tool, as many write it, with the context brought along."""

    @functools.wraps(write)
    def bounded() -> str:
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(contextvars.copy_context().run, write).result(timeout=60)

    return bounded


def _without_context(write: Write) -> Write:
    """The same as most write it: the standard library's pool takes no context along."""

    @functools.wraps(write)
    def bounded() -> str:
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(write).result(timeout=60)

    return bounded


async def _in_time(write: Write) -> str:
    return await asyncio.wait_for(asyncio.to_thread(write), timeout=60)


async def _in_time_in_a_pool(write: Write) -> str:
    with ThreadPoolExecutor(max_workers=1) as pool:
        return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(pool, write), timeout=60)


def _tool(**functions: Any) -> Tool:
    return Tool(name="route", description="Writes.", parameters=TOPIC, **functions)


#: A tool that writes where it is bound, in a wrapper; and whether the binding reaches it there.
SYNC: dict[str, tuple[Callable[[Write], Tool], bool]] = {
    "none": (lambda write: _tool(function=write), True),
    "a pool, with the context": (lambda write: _tool(function=_with_context(write)), True),
    "a pool, without it": (lambda write: _tool(function=_without_context(write)), False),
}
ASYNC: dict[str, tuple[Callable[[Write], Tool], bool]] = {
    "wait_for": (lambda write: _tool(async_function=functools.partial(_in_time, write)), True),
    "wait_for, in a pool": (lambda write: _tool(async_function=functools.partial(_in_time_in_a_pool, write)), False),
}
#: A coroutine can be a tool of a coroutine's only.
WRAPPED = [("run", *one) for one in SYNC.items()] + [("run_async", *one) for one in (SYNC | ASYNC).items()]


@pytest.mark.case(106)
@pytest.mark.parametrize("has_session", [True, False], ids=["bound", "unbound"])
def test_parallel_calls_see_their_session_or_are_refused_whatever_wraps_them(
    has_session: bool, manager: SessionManager, events: Events
) -> None:
    users = itertools.count()

    async def called(user: int, calls: int, make: Callable[[Write], Tool], way: str) -> list[str]:
        write = functools.partial(RoutedStore().write, key="routed.txt", content=fetched(canary(user)))
        writing = agent([call("route") for _ in range(calls)], "done", tools=[make(write)], offload={})
        writing.tool_concurrency_limit = 8
        with chat_of(manager, user) as session:
            inputs = {"hook_context": session.hook_context} if has_session else {}
            run = writing.run_async if way == "run_async" else functools.partial(asyncio.to_thread, writing.run)
            return results_of((await run(asked(user), **inputs))["messages"])

    async def story() -> None:
        for calls, (way, wrapper, (make, reaches)) in itertools.product((1, 8), WRAPPED):
            events.records.clear()
            user = next(users)
            results = await called(user, calls, make, way)
            written = calls if has_session and reaches else 0
            assert len(results) == calls, wrapper
            assert stored_for(manager, user) == [fetched(canary(user))] * written, wrapper
            assert events.names == ["unbound"] * (calls - written), wrapper
            assert all("No session is bound" in result for result in results) == (not written), wrapper

    Workers().serve(story)


@pytest.mark.case(112)
def test_the_results_of_two_agents_in_one_session_stay_until_they_expire(manager: SessionManager) -> None:
    first, second = shared_agent(), shared_agent(name="look_up", context_window=600)
    with chat_of(manager, "a") as session:

        async def story() -> None:
            for _ in range(3):
                await asyncio.gather(
                    *(one.run_async(asked("a"), hook_context=session.hook_context) for one in (first, second))
                )

        Workers().serve(story)
        references = [result.reference for result in session.results()]
        assert len(references) == 12
        # Most of the day that a session may idle.
        manager.clock.advance(timedelta(hours=23))
        assert manager.cleanup().sessions == 0
        assert [session.read(reference) for reference in references] == [fetched(canary("a"))] * 12
        manager.clock.advance(timedelta(hours=25))
        with pytest.raises(SessionNotFound):
            session.read(references[0])


@pytest.mark.case(108)
def test_a_manager_has_no_current_session(manager: SessionManager) -> None:
    shared = shared_agent()
    with chat_of(manager, "a") as outer, chat_of(manager, "b") as inner:
        # Open, one inside the other, and yet neither is anybody's but the run's that is given it.
        assert not is_bound()
        refused = shared.run(asked("c"))
        assert results_of(refused["messages"])[0].startswith("[Not stored: this run has no session")
        for _ in range(2):
            outer.run(shared, asked("a"))
            inner.run(shared, asked("b"))
        assert stored_in(outer) == [fetched(canary("a"))] * 4
        assert stored_in(inner) == [fetched(canary("b"))] * 4
