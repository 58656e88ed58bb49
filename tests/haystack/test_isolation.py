"""Many users on one agent: nothing of one in anything of another's, and nothing outside a session."""

import asyncio
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY, OffloadOverChars
from haystack.tools import ComponentTool, PipelineTool

from tenancy.errors import ResultNotFound
from tenancy.seam.tools import SessionToolset
from tests.haystack.support import (
    CANARY,
    WAYS,
    agent,
    call,
    canary_of,
    last_pointer,
    piped,
    results_of,
    runnable,
    sub_agent_tool,
    text_tool,
)

USERS = 40


def _long(topic: str) -> str:
    return f"{topic} " * 200


def _ask(messages: list[ChatMessage]) -> Any:
    return call("fetch", topic=canary_of(messages))


def _delegate(name: str) -> Any:
    def step(messages: list[ChatMessage]) -> Any:
        task = [{"role": "user", "content": f"Look up {canary_of(messages)}"}]
        return call(name, messages=task, hook_context={}, tools=[], generation_kwargs={"temperature": 2})

    return step


def _read(messages: list[ChatMessage]) -> Any:
    return call("read_result", reference=last_pointer(messages))


def _hooked(*steps: Any, tools: list[Any]) -> Agent:
    # The window is so small that the compactor has work in every step after the first.
    return agent(*steps, tools=tools, offload={"fetch": OffloadOverChars(500)}, context_window=600)


def _shared_agent() -> Agent:
    inner = _hooked(_ask, lambda m: f"found {canary_of(m)} at '{last_pointer(m)}'", tools=[text_tool("fetch", _long)])
    middle = _hooked(
        _ask, _delegate("inner"), "done", tools=[text_tool("fetch", _long), sub_agent_tool(inner, name="inner")]
    )
    piped_agent = PipelineTool(
        pipeline=piped(inner.clone()),
        name="pipe",
        description="Runs a pipeline.",
        input_mapping={"messages": ["agent.messages"], "hook_context": ["agent.hook_context"]},
        output_mapping={"agent.last_message": "answer"},
        parameters={"type": "object", "properties": {"messages": {"type": "array"}}},
    )
    component = ComponentTool(inner.clone(), name="component", description="Runs an agent.")
    note = text_tool("note", lambda topic: f"note {topic} " * 60)
    tools = [text_tool("fetch", _long), note, sub_agent_tool(middle), piped_agent, component]
    steps = [
        _ask,
        lambda m: call("note", topic=canary_of(m)),
        _delegate("delegate"),
        lambda m: call("pipe", messages=[ChatMessage.from_user(canary_of(m)).to_dict()], hook_context={"a": 1}),
        lambda m: call(
            "component", messages=[ChatMessage.from_user(canary_of(m)).to_dict()], hook_context={}, tools=[]
        ),
        _read,
        call("list_results"),
        "done",
    ]
    return _hooked(*steps, tools=tools)


@pytest.mark.case(104, 105)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_forty_users_on_one_agent_never_meet(way: str, manager: Any, events: Any) -> None:
    shared = runnable(_shared_agent(), way)
    canaries = [f"canary-{number}-{number * 7919:x}" for number in range(USERS)]
    sessions = [manager.session(tenant=f"t{n % 3}", user=f"u{n}", session="chat") for n in range(USERS)]

    async def everybody() -> list[dict[str, Any]]:
        inputs = [
            {"messages": [ChatMessage.from_user(f"Tell me about {canary}")], "hook_context": session.hook_context}
            for canary, session in zip(canaries, sessions, strict=True)
        ]
        return await asyncio.gather(*(WAYS[way](shared, given) for given in inputs))

    answers = asyncio.run(everybody())

    for canary, session, answer in zip(canaries, sessions, answers, strict=True):
        seen = " ".join(repr(message) for message in answer["messages"])
        assert set(CANARY.findall(seen)) == {canary}
        stored = [session.read(result.reference) for result in session.results()]
        # Its own, two of the sub-agents', the pipeline's and the component's; the compactor's come on top.
        assert len([text for text in stored if text == _long(canary)]) == 5
        assert set(CANARY.findall(" ".join(map(str, stored)))) == {canary}
        assert any(result.name.startswith("compacted_") for result in session.results())
    assert events.names == []


@pytest.mark.case(72, 103)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_without_a_session_nothing_is_written_anywhere(way: str, manager: Any, events: Any) -> None:
    shared = runnable(_shared_agent(), way)
    bystander = manager.session(tenant="t", user="bystander")

    async def everybody() -> list[dict[str, Any]]:
        users = [{"messages": [ChatMessage.from_user(f"Tell me about canary-{n}-{n}")]} for n in range(8)]
        return await asyncio.gather(*(WAYS[way](shared, given) for given in users))

    answers = asyncio.run(everybody())

    assert all(answer["last_message"].text == "done" for answer in answers)
    assert bystander.usage().results == 0
    assert len(list(manager.sessions())) == 1
    assert set(events.names) == {"unbound"}


@pytest.mark.case(73)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "junk", [{}, None, "t/u/s", 7, [], object()], ids=["empty", "none", "text", "number", "list", "object"]
)
def test_junk_under_the_key_is_as_good_as_no_session(way: str, junk: Any, manager: Any, events: Any) -> None:
    asked = agent(
        call("fetch", topic="x"), "done", tools=[text_tool("fetch", "y" * 5000)], offload={"*": OffloadOverChars(9)}
    )
    inputs = {"messages": [ChatMessage.from_user("go")], "hook_context": {RESULT_STORE_CONTEXT_KEY: junk}}

    answer = asyncio.run(WAYS[way](runnable(asked, way), inputs))

    assert answer["last_message"].text == "done"
    assert "no session" in results_of(answer["messages"])[0]
    assert len(results_of(answer["messages"])[0]) < 2000
    assert list(manager.sessions()) == []
    assert events.names == ["unbound"]


@pytest.mark.case(73)
def test_a_junk_hook_context_completes_the_run(events: Any) -> None:
    asked = agent(call("fetch"), "done", tools=[text_tool("fetch", "y" * 5000)], offload={"*": OffloadOverChars(9)})

    answer = asked.run(messages=[ChatMessage.from_user("go")], hook_context="junk")  # type: ignore[arg-type]

    assert answer["last_message"].text == "done"
    assert events.names == ["unbound"]


@pytest.mark.case(13, 81)
def test_another_sessions_reference_reads_as_one_that_never_was(open_session: Any) -> None:
    mine, theirs = open_session("u-1"), open_session("u-2")
    reference = theirs.write("their secret", name="x.txt")
    with pytest.raises(ResultNotFound):
        mine.read(reference)
    asked = agent(
        call("read_result", reference=reference),
        call("read_result", reference="x-1-aaaaaaaaaa.txt"),
        "done",
        offload={},
    )

    answer = asked.run(messages=[ChatMessage.from_user("go")], hook_context=mine.hook_context)

    foreign, unknown = results_of(answer["messages"])
    assert foreign == unknown
    assert "their secret" not in str(answer)


@pytest.mark.case(94)
def test_the_tools_cannot_write_or_delete() -> None:
    assert [tool.name for tool in SessionToolset()] == ["read_result", "search_result", "list_results"]
