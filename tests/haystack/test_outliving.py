"""What a tool starts and leaves running belongs to nobody once the tool has returned."""

import asyncio

import pytest
from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading import AlwaysOffload, NeverOffload
from haystack.tools import Tool

from tenancy.manager import SessionManager
from tests.haystack.support import agent, call, results_of, text_tool


@pytest.mark.parametrize("has_own_session", [False, True])
def test_a_shared_worker_does_not_stay_in_the_session_of_whoever_started_it(
    manager: SessionManager, has_own_session: bool
) -> None:
    alice = manager.session(tenant="a", user="alice", session="s")
    bob = manager.session(tenant="b", user="bob", session="s")
    shared = agent(call("t"), "done", tools=[text_tool("t", "BOB " * 3_000)], offload={"*": AlwaysOffload()})

    async def answer_of_bob() -> str:
        jobs: asyncio.Queue[tuple[dict[str, object], asyncio.Future[object]]] = asyncio.Queue()
        started: list[asyncio.Task[None]] = []

        async def worker() -> None:
            inputs, answered = await jobs.get()
            answered.set_result(await shared.run_async(messages=[ChatMessage.from_user("go")], **inputs))

        async def ask() -> str:
            # Lazily, by the first user who comes along; the task copies the context it is started in.
            started.append(asyncio.create_task(worker()))
            return "ok"

        parameters = {"type": "object", "properties": {}}
        ask_tool = Tool(name="ask", description="Asks.", parameters=parameters, async_function=ask)
        outer = agent(call("ask"), "done", tools=[ask_tool], offload={"*": NeverOffload()})
        await outer.run_async(messages=[ChatMessage.from_user("go")], hook_context=alice.hook_context)
        answered = asyncio.get_running_loop().create_future()
        await jobs.put(({"hook_context": bob.hook_context} if has_own_session else {}, answered))
        answer = await answered
        await started[0]
        return results_of(answer["messages"])[0]

    text = asyncio.run(answer_of_bob())
    assert alice.usage().results == 0
    assert bob.usage().results == (1 if has_own_session else 0)
    assert text.startswith("Tool result offloaded" if has_own_session else "[Not stored: this run has no session")
