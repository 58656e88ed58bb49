"""The shapes of a chat backend: whatever serves a request, it is one user's, and it is over when it is over."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading import AlwaysOffload
from haystack.tools import Tool
from haystack.tools.errors import ToolInvocationError

from tenancy.errors import SessionNotFound
from tenancy.manager import SessionManager
from tenancy.seam.binding import RoutedStore
from tenancy.session import Session
from tests.haystack.backend import (
    TOPIC,
    Waiting,
    Workers,
    asked,
    canaries_in,
    canary,
    chat_of,
    contextmanager_in_threadpool,
    fetched,
    shared_agent,
    stored_for,
    stored_in,
)
from tests.haystack.conftest import Events
from tests.haystack.support import WAYS, agent, call, is_bound, results_of, runnable

USERS = range(6)


def _is_served(answer: dict[str, Any], manager: SessionManager, user: int) -> None:
    """A whole run of a user's, of which nobody else has anything."""
    assert answer["last_message"].text == "done"
    assert canaries_in(answer) == {canary(user)}
    assert stored_for(manager, user) == [fetched(canary(user))] * 2


def test_a_session_may_come_from_a_dependency_that_yields_it_in_a_worker_thread(
    manager: SessionManager, events: Events
) -> None:
    shared = shared_agent()
    handles: list[Session] = []

    @contextmanager
    def current_session(user: int) -> Iterator[Session]:
        with chat_of(manager, user) as session:
            handles.append(session)
            yield session

    async def request(user: int) -> dict[str, Any]:
        async with contextmanager_in_threadpool(current_session(user)) as session:
            inputs = {"messages": asked(user), "hook_context": session.hook_context}
            # A handler is a coroutine, or a function that is called in a worker thread.
            return await (shared.run_async(**inputs) if user % 2 else asyncio.to_thread(shared.run, **inputs))

    async def story() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(request, USERS))

    for user, answer in zip(USERS, Workers().serve(story), strict=True):
        _is_served(answer, manager, user)
    assert len(handles) == len(USERS)
    for handle in handles:
        with pytest.raises(SessionNotFound):
            handle.write("after the request")
    assert events.names == []


def test_a_dependency_ends_with_a_request_that_raises(manager: SessionManager) -> None:
    handles: list[Session] = []

    @contextmanager
    def current_session() -> Iterator[Session]:
        with chat_of(manager, 1) as session:
            handles.append(session)
            yield session

    async def request() -> None:
        async with contextmanager_in_threadpool(current_session()) as session:
            await shared_agent().run_async(asked(1), hook_context=session.hook_context)
            raise LookupError("no such page")

    async def story() -> None:
        with pytest.raises(LookupError, match="no such page"):
            await request()

    Workers().serve(story)
    with pytest.raises(SessionNotFound):
        handles[0].usage()
    assert stored_for(manager, 1) == [fetched(canary(1))] * 2


def test_a_handler_may_be_a_coroutine(manager: SessionManager, events: Events) -> None:
    shared = shared_agent()

    async def request(user: int) -> dict[str, Any]:
        async with manager.session_async(tenant="acme", user=f"u-{user}", session="chat") as session:
            return await shared.run_async(asked(user), hook_context=session.hook_context)

    async def story() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(request, USERS))

    for user, answer in zip(USERS, Workers().serve(story), strict=True):
        _is_served(answer, manager, user)
    assert events.names == []


def test_a_worker_thread_serves_whom_it_is_given_and_forgets_them(manager: SessionManager, events: Events) -> None:
    shared = shared_agent()
    # So few that each of them serves several users, one after the other.
    workers = Workers(2)

    async def request(user: int) -> dict[str, Any]:
        with chat_of(manager, user) as session:
            job = partial(shared.run, asked(user), hook_context=session.hook_context)
            return await asyncio.get_running_loop().run_in_executor(workers.pool, job)

    async def story() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(request, USERS))

    for user, answer in zip(USERS, workers.serve(story), strict=True):
        _is_served(answer, manager, user)
    assert events.names == []


@pytest.mark.parametrize("is_told", [True, False], ids=["told whose it is", "not told"])
def test_a_worker_that_a_tool_employs_serves_nobody_it_is_not_told_of(
    is_told: bool, manager: SessionManager, events: Events
) -> None:
    # An executor takes no context variable along. So a job is its user's by `hook_context`, or it is nobody's.
    workers = Workers(1)
    inner = shared_agent(name="look_up")
    answers: list[dict[str, Any]] = []

    async def employ() -> str:
        inputs = {"hook_context": session.hook_context} if is_told else {}
        job = partial(inner.run, asked(1), **inputs)
        answers.append(await asyncio.get_running_loop().run_in_executor(workers.pool, job))
        return "employed"

    tool = Tool(name="employ", description="Employs.", parameters=TOPIC, async_function=employ)
    outer = agent(call("employ"), "done", tools=[tool], offload={})
    session = chat_of(manager, 1)
    workers.serve(partial(outer.run_async, asked(1), hook_context=session.hook_context))

    seen = results_of(answers[0]["messages"])[0]
    assert seen.startswith("Tool result offloaded" if is_told else "[Not stored: this run has no session")
    assert stored_in(session) == ([fetched(canary(1))] * 2 if is_told else [])
    assert set(events.names) == (set() if is_told else {"unbound"})
    assert len(list(manager.sessions())) == 1


def test_a_run_that_raises_leaves_what_it_stored_and_nothing_bound(manager: SessionManager) -> None:
    def fails(topic: str = "") -> str:
        assert is_bound()
        raise ValueError(f"no such city: {topic}")

    tool = Tool(name="fails", description="Fails.", parameters=TOPIC, function=fails)
    fetch = Tool(name="fetch", description="Fetches.", parameters=TOPIC, function=lambda topic="": fetched(topic))
    raising = agent(
        lambda messages: call("fetch", topic=_canary_asked_for(messages)),
        lambda messages: call("fails", topic=_canary_asked_for(messages)),
        tools=[fetch, tool],
        offload={"*": AlwaysOffload()},
    )
    raising.raise_on_tool_invocation_failure = True
    targets = {way: runnable(raising.clone(), way) for way in WAYS}
    requests = [(way, user) for user, way in enumerate([*WAYS, *WAYS])]

    async def request(way: str, user: int) -> BaseException | None:
        with chat_of(manager, user) as session:
            try:
                await WAYS[way](targets[way], {"messages": asked(user), "hook_context": session.hook_context})
            except Exception as error:
                return error
            return None

    async def story() -> list[BaseException | None]:
        return await asyncio.gather(*(request(way, user) for way, user in requests))

    for (way, user), error in zip(requests, Workers().serve(story), strict=True):
        assert type(error) is (PipelineRuntimeError if way.startswith("pipeline") else ToolInvocationError), way
        assert canaries_in(error) == {canary(user)}
        assert stored_for(manager, user) == [fetched(canary(user))]


def _canary_asked_for(messages: list[ChatMessage]) -> str:
    return (messages[0].text or "").rpartition(" ")[2]


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_a_thread_that_outlives_its_run_writes_into_its_own_session_or_nowhere(
    is_closed: bool, manager: SessionManager
) -> None:
    shared = shared_agent(name="look_up")

    async def outlived(user: int, ends: Callable[[asyncio.Task[Any]], Any]) -> str:
        waiting = Waiting(lambda topic: RoutedStore().write(key="late.txt", content=fetched(topic)))
        fetch = [waiting.tool()]
        asking = agent(lambda asked: call("fetch", topic=_canary_asked_for(asked)), "done", tools=fetch, offload={})
        mine, others = chat_of(manager, user), chat_of(manager, f"{user}b")
        running = asyncio.create_task(asking.run_async(asked(user), hook_context=mine.hook_context))
        assert await asyncio.to_thread(waiting.called.wait, 60)
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await ends(running)
        if is_closed:
            mine.close()
        # The request is over; the next one is another user's, beside the thread that lives on.
        started = asyncio.create_task(shared.run_async(asked(f"{user}b"), hook_context=others.hook_context))
        waiting.go_on.set()
        assert canaries_in(await started) == {canary(f"{user}b")}
        assert stored_in(others) == [fetched(canary(f"{user}b"))] * 2
        assert await asyncio.to_thread(waiting.ended.wait, 60)
        return waiting.outcome

    async def story() -> list[str]:
        return [await outlived(user, ends) for user, ends in enumerate((_cancelled, _timed_out))]

    for user, outcome in enumerate(Workers().serve(story)):
        assert stored_for(manager, user) == ([] if is_closed else [fetched(canary(user))])
        assert (outcome == "SessionNotFound") == is_closed


def _cancelled(running: asyncio.Task[Any]) -> Any:
    running.cancel()
    return running


def _timed_out(running: asyncio.Task[Any]) -> Any:
    return asyncio.wait_for(running, timeout=0.001)
