"""
What we lean on in Haystack. Each test fails, with a clear name, when a new version changes it.

The behaviour itself is tested elsewhere; these say which assumption broke.
"""

import asyncio
import base64
import inspect
from typing import Any

import pytest
from haystack import SuperComponent
from haystack.components.agents import Agent
from haystack.components.agents.state import State, replace_values
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.hooks import hook
from haystack.hooks.compaction import CompactionHook, ToolResultOffloadCompactor, ToolResultPruningCompactor
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY, AlwaysOffload, ToolResultOffloadHook
from haystack.token_counters import TiktokenCounter
from haystack.tools import ComponentTool
from haystack.tools.tool import Tool
from haystack.utils.experimental import ExperimentalWarning

from tenancy.seam.binding import RoutedStore
from tests.haystack.support import call, model, piped, results_of, sub_agent_tool, text_tool

GO = [ChatMessage.from_user("go")]


@hook
def swap_tools(state: State) -> None:
    """Replaces each tool in the list, not the list."""
    state.data["tools"][:] = [text_tool(tool.name, "swapped") for tool in state.data["tools"]]


@pytest.mark.parametrize("is_async", [False, True])
def test_canary_the_tools_in_the_state_are_the_executors_own_list_and_new_in_each_step(is_async: bool) -> None:
    tool = text_tool("fetch", "original")
    agent = Agent(chat_generator=model(call("fetch"), "done"), tools=[tool], hooks={"before_tool": [swap_tools]})
    answer = asyncio.run(agent.run_async(GO)) if is_async else agent.run(GO)
    assert results_of(answer["messages"]) == ["swapped"]
    assert agent.tools[0] is tool
    assert tool.function is not None
    assert tool.function() == "original"


def test_canary_a_state_parameter_is_injected_through_wraps_and_over_the_models_argument() -> None:
    def takes(state: State, word: str = "") -> str:
        return f"{type(state).__name__} {word}"

    tool = Tool(name="takes", description="Takes.", parameters={"type": "object"}, function=takes)
    agent = Agent(chat_generator=model(call("takes", state="forged", word="w"), "done"), tools=[tool])
    assert results_of(agent.run(GO)["messages"]) == ["State w"]


def test_canary_an_argument_called_self_still_ends_a_run() -> None:
    # When this fails, Haystack is mended and `ReadTool.invoke` may go.
    agent = Agent(chat_generator=model(call("fetch", self="x"), "done"), tools=[text_tool("fetch", "x")])
    with pytest.raises(TypeError, match="self"):
        agent.run(GO)


def test_canary_a_component_tool_keeps_its_component_where_we_look() -> None:
    inner = Agent(chat_generator=model("done"))
    assert sub_agent_tool(inner)._component is inner
    assert ComponentTool(inner, name="c", description="c")._component is inner


def test_canary_the_inputs_of_an_agent_that_decide_whose_it_is() -> None:
    parameters = inspect.signature(Agent.run).parameters
    assert set(parameters) == {
        *("self", "messages", "streaming_callback", "generation_kwargs", "tools", "hook_context", "kwargs")
    }


def test_canary_a_super_component_says_where_its_inputs_go() -> None:
    wrapped = SuperComponent(piped(Agent(chat_generator=model("done"))))
    assert wrapped.input_mapping["hook_context"] == ["agent.hook_context"]
    assert isinstance(wrapped.pipeline.get_component("agent"), Agent)


class _Store(RoutedStore):
    def __init__(self) -> None:
        self.keys: list[str] = []

    def write(self, *, key: str, content: str | bytes) -> str:
        self.keys.append(key)
        return f"ref-{len(self.keys)}"


class _Narrow(State):
    """Has the public face of a `State` and nothing else."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._shown = data
        self.schema = {"messages": {"type": list[ChatMessage], "handler": replace_values}}

    @property
    def data(self) -> dict[str, Any]:
        return self._shown

    def set(self, key: str, value: Any, handler_override: Any = None) -> None:
        self._shown[key] = value


def _offloaded(result: Any) -> tuple[ChatMessage, _Store]:
    store = _Store()
    agent = Agent(chat_generator=model(call("fetch"), "x"), tools=[text_tool("fetch", "x")])
    origin = agent.run(GO)["messages"][2].tool_call_result.origin
    data = {
        "messages": [ChatMessage.from_tool(result, origin=origin)],
        "hook_context": {RESULT_STORE_CONTEXT_KEY: store},
    }
    ToolResultOffloadHook(store=RoutedStore(), offload_strategies={"*": AlwaysOffload()}).run(_Narrow(data))
    return data["messages"][-1], store


def test_canary_the_offload_hook_reads_and_writes_the_public_face_of_the_state_only() -> None:
    message, store = _offloaded("text")
    assert message.tool_call_result is not None
    assert "at 'ref-1'" in str(message.tool_call_result.result)
    assert store.keys == ["0_fetch_call0.txt"]


def test_canary_an_offloaded_message_lists_its_references_in_order() -> None:
    image = ImageContent(base64_image=base64.b64encode(b"x").decode(), mime_type="image/png", validation=False)
    message, _ = _offloaded([image, image])
    assert message.meta["tool_result_offloaded"] == ["ref-1", "ref-2"]


def test_canary_the_mark_of_an_offloaded_message_is_part_of_the_pruning_compactors_interface() -> None:
    with pytest.warns(ExperimentalWarning):
        assert ToolResultPruningCompactor().skip_meta_keys == ("tool_result_offloaded",)


def test_canary_the_offload_compactor_leaves_marked_messages_alone_and_returns_the_others_as_they_are() -> None:
    agent = Agent(chat_generator=model(*[call("fetch")] * 3, "x"), tools=[text_tool("fetch", "word " * 600)])
    messages = agent.run(GO)["messages"]
    result = messages[2].tool_call_result
    assert result is not None
    marked = ChatMessage.from_tool(result.result, origin=result.origin, meta={"tool_result_offloaded": ["-"]})
    given = [*messages[:2], marked, *messages[3:]]
    data = {"messages": given, "context_tokens": 0}
    with pytest.warns(ExperimentalWarning):
        CompactionHook(ToolResultOffloadCompactor(_Store()), context_window=100).run(_Narrow(data))
    compacted = data["messages"]
    assert compacted[2] is marked
    assert compacted[4] is not given[4]
    assert [compacted[n] is given[n] for n in (0, 1, 3, 5, 6, 7)] == [True] * 6


def test_canary_the_tiktoken_counter_asks_its_encoder_once_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Encoder:
        def encode(self, text: str) -> list[int]:
            return [0] * 7

    def warm_up(self: Any) -> None:
        self._encoder = Encoder()

    monkeypatch.setattr(TiktokenCounter, "warm_up", warm_up)
    assert TiktokenCounter().count(GO) == 7


def test_canary_stop_run_is_read_at_the_next_step() -> None:
    @hook
    def stop(state: State) -> None:
        state.set("stop_run", "enough")

    agent = Agent(
        chat_generator=model(call("fetch"), "done"), tools=[text_tool("fetch", "x")], hooks={"after_tool": [stop]}
    )
    assert agent.run(GO)["exit_reason"] == "enough"
