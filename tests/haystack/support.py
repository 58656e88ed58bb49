"""Scripted models, tools that return a lot, and the ways to run an agent."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.generators.chat.mock import MockChatGenerator
from haystack.core.component import Component
from haystack.dataclasses import ChatMessage, ChatRole, ToolCall
from haystack.tools import AgentTool, Tool

from tenancy.seam.binding import Binding, binding_of
from tenancy.seam.hooks import session_hooks
from tenancy.seam.tools import SessionToolset

Step = str | ToolCall | list[ToolCall] | Callable[[list[ChatMessage]], Any]

#: What a user's message carries, so that a script knows whose run it is.
CANARY = re.compile(r"canary-[0-9a-z]+-[0-9a-z]+")
POINTER = re.compile(r" at '([a-z0-9.-]+)'")


def replies(*steps: Step) -> Callable[[list[ChatMessage]], ChatMessage]:
    """What a model answers that takes one step after the other, counted anew after each user message."""

    def respond(messages: list[ChatMessage]) -> ChatMessage:
        step: Any = steps[min(_steps_taken(messages), len(steps) - 1)]
        if callable(step):
            step = step(messages)
        if isinstance(step, str):
            return ChatMessage.from_assistant(step)
        return ChatMessage.from_assistant(tool_calls=step if isinstance(step, list) else [step])

    return respond


def model(*steps: Step) -> MockChatGenerator:
    """A model that takes these steps."""
    # No usage is reported, so that compaction counts the conversation itself: the mock leaves tool results out.
    return MockChatGenerator(response_fn=replies(*steps), meta={"usage": {}})


def _steps_taken(messages: list[ChatMessage]) -> int:
    taken = 0
    for message in reversed(messages):
        if message.is_from(ChatRole.USER):
            break
        taken += message.is_from(ChatRole.ASSISTANT)
    return taken


def call(tool: str, *, call_id: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(tool_name=tool, arguments=arguments, id=call_id)


def canary_of(messages: list[ChatMessage]) -> str:
    """The canary in the user's message."""
    return next(CANARY.search(m.text)[0] for m in messages if m.is_from(ChatRole.USER) and CANARY.search(m.text or ""))


def results_of(messages: list[ChatMessage]) -> list[str]:
    """The texts of the tool results, oldest first."""
    return [str(m.tool_call_result.result) for m in messages if m.tool_call_result is not None]


def last_pointer(messages: list[ChatMessage]) -> str:
    """The reference in the newest pointer, or a word that is none."""
    return next((POINTER.findall(text)[-1] for text in results_of(messages)[::-1] if POINTER.search(text)), "none")


def text_tool(name: str, text: str | Callable[[str], str]) -> Tool:
    """A tool that returns a text, or makes one from its `topic`."""

    def fetch(topic: str = "") -> str:
        return text if isinstance(text, str) else text(topic)

    parameters = {"type": "object", "properties": {"topic": {"type": "string"}}}
    return Tool(name=name, description="Returns a text.", parameters=parameters, function=fetch)


def parts_tool(name: str, parts: list[Any]) -> Tool:
    """A tool whose result has several parts."""

    def fetch() -> list[Any]:
        return list(parts)

    return Tool(
        name=name,
        description="Returns parts.",
        parameters={"type": "object", "properties": {}},
        function=fetch,
        outputs_to_string={"raw_result": True},
    )


def agent(*steps: Step, tools: list[Any] | None = None, hooks: Any = None, **hook_settings: Any) -> Agent:
    """An agent with our hooks and, unless it is given others, our tools."""
    return Agent(
        chat_generator=model(*steps),
        tools=[*(tools or []), SessionToolset()],
        hooks=hooks if hooks is not None else session_hooks(**hook_settings),
        max_agent_steps=30,
    )


def is_bound() -> bool:
    """Whether a session, or the refusal of one, is bound here."""
    return binding_of(State({"hook_context": {"type": dict}}, {"hook_context": {}})) != Binding()


def sub_agent_tool(inner: Agent, *, name: str = "delegate") -> AgentTool:
    return AgentTool(agent=inner, name=name, description="Delegates.")


def piped(component: Component) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("agent", component)
    return pipeline


async def _run(agent: Agent, inputs: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(agent.run, **inputs)


async def _run_async(agent: Agent, inputs: dict[str, Any]) -> dict[str, Any]:
    return await agent.run_async(**inputs)


async def _pipeline_run(agent: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return (await asyncio.to_thread(agent.run, {"agent": inputs}))["agent"]


async def _pipeline_run_async(agent: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    return (await agent.run_async({"agent": inputs}))["agent"]


async def _pipeline_stream(agent: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    handle = agent.stream(data={"agent": inputs})
    async for _ in handle:
        pass
    return handle.result["agent"]


#: How a run is started: in a thread, as a coroutine, by a pipeline, with streaming.
WAYS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "run": _run,
    "run_async": _run_async,
    "pipeline_run": _pipeline_run,
    "pipeline_run_async": _pipeline_run_async,
    "pipeline_stream": _pipeline_stream,
}


def runnable(agent: Agent, way: str) -> Any:
    """The agent, or the pipeline around it that the way needs."""
    return piped(agent) if way.startswith("pipeline") else agent


def run(agent: Agent, way: str = "run", *, session: Any = None, text: str = "go", **inputs: Any) -> dict[str, Any]:
    """Run an agent once, in one of the ways, in a session or in none."""
    inputs.setdefault("messages", [ChatMessage.from_user(text)])
    if session is not None:
        inputs.setdefault("hook_context", session.hook_context)
    answer: dict[str, Any] = asyncio.run(WAYS[way](runnable(agent, way), inputs))
    return answer
