"""The agents of the matrix: built once, shared by all cells, with models that write down what they are asked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.generators.chat.mock import MockChatGenerator
from haystack.dataclasses import ChatMessage, ChatRole
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY, AlwaysOffload
from haystack.tools import AgentTool, ComponentTool, PipelineTool, Tool

from tenancy.seam.hooks import session_hooks
from tenancy.seam.tools import SessionToolset
from tests.haystack.support import Step, agent, call, canary_of, last_pointer, piped, replies, text_tool

#: What a model may add to its arguments, of which none is ever declared to it.
FORGERIES: Final[dict[str, dict[str, Any]]] = {
    "forged hook_context": {"hook_context": {RESULT_STORE_CONTEXT_KEY: None, "forged": True}},
    "forged tools": {"tools": ["fetch"]},
    "forged generation_kwargs": {"generation_kwargs": {"temperature": 2.0}},
}
_INPUTS: Final = ("messages", "hook_context", "tools", "generation_kwargs")
_READ_TOOLS: Final = ("read_result", "search_result", "list_results")
_PAGE_TOKENS: Final = 400


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was asked, and with what its agent runs."""

    level: str
    messages: list[ChatMessage]
    tools: tuple[str, ...]
    own_tools: tuple[str, ...]
    generation_kwargs: dict[str, Any] | None


class Log:
    """What the models and the hooks of one set of agents have seen. Cells take turns with it."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.contexts: list[tuple[str, dict[str, Any]]] = []

    def clear(self) -> None:
        self.asked.clear()
        self.contexts.clear()


@component
class WatchedModel(MockChatGenerator):
    """A scripted model that writes down what it is asked."""

    def __init__(self, log: Log, level: str, own_tools: tuple[str, ...], *steps: Step) -> None:
        # `component` makes the class anew, so `super()` would look for another one. No usage is reported, so that
        # compaction counts the conversation itself.
        MockChatGenerator.__init__(self, response_fn=replies(*steps), meta={"usage": {}})
        self.log, self.level, self.own_tools = log, level, own_tools

    def _note(self, messages: Any, tools: Any, generation_kwargs: Any) -> None:
        names = tuple(tool.name for tool in tools or ())
        self.log.asked.append(Asked(self.level, list(messages), names, self.own_tools, generation_kwargs))

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: Any = None,
        tools_strict: bool | None = None,
    ) -> dict[str, list[ChatMessage]]:
        """Answer as scripted."""
        self._note(messages, tools, generation_kwargs)
        return MockChatGenerator.run(self, messages, streaming_callback, generation_kwargs, tools=tools)

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: Any = None,
        tools_strict: bool | None = None,
    ) -> dict[str, list[ChatMessage]]:
        """Answer as scripted."""
        self._note(messages, tools, generation_kwargs)
        return await MockChatGenerator.run_async(self, messages, streaming_callback, generation_kwargs, tools=tools)


class WatchingHook:
    """A hook of the developer's own, which writes down what it finds in `hook_context`."""

    def __init__(self, log: Log, level: str) -> None:
        self.log, self.level = log, level

    def run(self, state: State) -> None:
        """Write it down."""
        self.log.contexts.append((self.level, dict(state.data["hook_context"])))


def question(canary: str, *, given: str, references: list[str]) -> str:
    """What the user asks. It carries all that the scripts go by, down to the innermost agent."""
    return f"Tell me about {canary}. given={given}. references={' '.join(references)}"


def fetched(topic: str) -> str:
    """What the tool of the innermost agent returns."""
    return f"{topic} is long. " * 250


def _question_of(messages: list[ChatMessage]) -> str:
    return next(m.text or "" for m in messages if m.is_from(ChatRole.USER))


def _forgery_of(messages: list[ChatMessage]) -> dict[str, Any]:
    given = _question_of(messages).partition("given=")[2].partition(".")[0]
    return FORGERIES.get(given, {})


def _fetch(number: int) -> Callable[[list[ChatMessage]], Any]:
    return lambda messages: call("fetch", topic=f"{canary_of(messages)} {number}")


def _read_on(offset: int) -> Callable[[list[ChatMessage]], Any]:
    return lambda messages: call(
        "read_result", reference=last_pointer(messages), offset=offset, **_forgery_of(messages)
    )


def _read_everything(messages: list[ChatMessage]) -> Any:
    references = _question_of(messages).partition("references=")[2].split()
    forged = _forgery_of(messages)
    reads = [call("read_result", reference=reference, **forged) for reference in references]
    return [*reads, call("search_result", query="is long", **forged), call("list_results", **forged)]


def _delegate(messages: list[ChatMessage]) -> Any:
    task = {"role": "user", "content": _question_of(messages)}
    return call("delegate", messages=[task], **_forgery_of(messages))


#: What the innermost agent does, and the window it has: none, or one that its second result overflows.
_SCRIPTS: Final[dict[str, tuple[list[Step], dict[str, Any]]]] = {
    "offload hook": ([_fetch(1), "done"], {"offload": {"fetch": AlwaysOffload()}}),
    "offload compactor": (
        [_fetch(1), _fetch(2), _fetch(3), "done"],
        {"offload": {}, "context_window": 2000},
    ),
    "pruning": (
        [_fetch(1), _read_on(0), _read_on(1000), _fetch(2), _read_on(0), "done"],
        {"offload": {"fetch": AlwaysOffload()}, "context_window": 1500},
    ),
    "read tools": ([_read_everything, "done"], {"offload": {"fetch": AlwaysOffload()}}),
}


class Errand:
    """A tool that does what it is told to, and tells no model of it."""

    def __init__(self) -> None:
        self.todo: Callable[[], Any] = lambda: None

    def tool(self) -> Tool:
        """The tool, for `run` and for `run_async`."""

        def smuggle() -> str:
            self.todo()
            return "smuggled"

        async def smuggle_async() -> str:
            await self.todo()
            return "smuggled"

        return Tool(
            name="smuggle",
            description="Runs another agent.",
            parameters={"type": "object", "properties": {}},
            function=smuggle,
            async_function=smuggle_async,
        )


class Cast:
    """
    The agents of all cells, each made once and used by every run of its shape and part, whosever it is.

    :param log: What their models and hooks see. Cells take turns with it.
    """

    def __init__(self) -> None:
        self.log = Log()
        self._agents: dict[tuple[str, str], Agent] = {}
        self._pipelines: dict[tuple[str, str], Pipeline] = {}
        self._errand = Errand()
        self._smuggler = agent(call("smuggle"), "done", tools=[self._errand.tool()], offload={"fetch": AlwaysOffload()})

    def smuggler(self, errand: Callable[[], Any]) -> Agent:
        """
        An agent whose one tool does something else.

        :param errand: What it does: a function, or a coroutine function for `run_async`.
        """
        self._errand.todo = errand
        return self._smuggler

    def agent(self, *, shape: str, part: str) -> Agent:
        """The outermost agent of a shape, whose innermost one plays a part."""
        if (shape, part) not in self._agents:
            self._agents[shape, part] = self._built(shape, *_SCRIPTS[part])
        return self._agents[shape, part]

    def pipeline(self, *, shape: str, part: str) -> Pipeline:
        """That agent in a pipeline."""
        if (shape, part) not in self._pipelines:
            self._pipelines[shape, part] = piped(self.agent(shape=shape, part=part))
        return self._pipelines[shape, part]

    def _built(self, shape: str, steps: list[Step], settings: dict[str, Any]) -> Agent:
        def made(level: str, tool: Tool, *steps: Step) -> Agent:
            return Agent(
                chat_generator=WatchedModel(self.log, level, (tool.name, *_READ_TOOLS), *steps),
                tools=[tool, SessionToolset(page_tokens=_PAGE_TOKENS)],
                hooks=session_hooks(more={"before_llm": [WatchingHook(self.log, level)]}, **settings),
                tool_streaming_callback_passthrough=True,
            )

        inner = made("inner", text_tool("fetch", fetched), *steps)
        if shape == "plain":
            return inner
        if shape == "two levels of AgentTool":
            inner = made("middle", _agent_tool(inner), _delegate, "done")
        return made("outer", _TOOLS[shape](inner), _delegate, "done")


def _agent_tool(agent: Agent) -> Tool:
    return AgentTool(agent, name="delegate", description="Delegates.")


def _component_tool(agent: Agent) -> Tool:
    return ComponentTool(agent, name="delegate", description="Delegates.")


def _pipeline_tool(agent: Agent) -> Tool:
    # Every input of the agent can be reached from outside, as by Haystack's default mapping.
    return PipelineTool(
        piped(agent),
        name="delegate",
        description="Delegates.",
        parameters={"type": "object", "properties": {"messages": {"type": "array"}}},
        input_mapping={name: [f"agent.{name}"] for name in _INPUTS},
        output_mapping={"agent.last_message": "answer"},
    )


_TOOLS: Final[dict[str, Callable[[Agent], Tool]]] = {
    "AgentTool": _agent_tool,
    "two levels of AgentTool": _agent_tool,
    "ComponentTool(Agent)": _component_tool,
    "PipelineTool": _pipeline_tool,
}
