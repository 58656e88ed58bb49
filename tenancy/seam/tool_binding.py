"""Copies of tools that bind a session around the call."""

import copy
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from haystack import SuperComponent
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.tools.tool import Tool

from tenancy.seam.binding import Binding, bound

#: Inputs of an Agent that decide whose session it uses, what it may do and how it is sampled. No model has a say.
_AGENT_INPUTS = frozenset({"hook_context", "tools", "generation_kwargs"})


def bind_tool(tool: Tool, *, binding: Binding, state: State) -> Tool:
    """
    Return a copy of a tool that runs bound, synchronously and asynchronously.

    `dataclasses.replace` would not do: it raises on an `AgentTool`. The wrappers carry the signature of what they wrap,
    since Haystack injects `State` by annotation. Binding a bound copy again replaces the wrapper.

    :param tool: Any tool. It is not changed.
    :param binding: What to bind around the call.
    :param state: The Agent's live `State`, for inputs that the developer takes from it.
    """
    arguments = _Arguments.of(tool, state)
    bound_tool = copy.copy(tool)
    if tool.function is not None:
        bound_tool.function = _bind_sync(_unwrapped(tool.function), binding, arguments)
    if tool.async_function is not None:
        bound_tool.async_function = _bind_async(_unwrapped(tool.async_function), binding, arguments)
    return bound_tool


def forgeable_inputs(component: Any) -> frozenset[str]:
    """
    Name the inputs of a component that lead to an Agent's `hook_context`, `tools` or `generation_kwargs`.

    :param component: An Agent, a `SuperComponent` (what a `PipelineTool` wraps) at any depth, or anything else, which
        has none.
    """
    if isinstance(component, Agent):
        return _AGENT_INPUTS
    if not isinstance(component, SuperComponent):
        return frozenset()
    return frozenset(name for name, sockets in component.input_mapping.items() if _any_forgeable(component, sockets))


def _any_forgeable(component: Any, sockets: Iterable[str]) -> bool:
    for socket in sockets:
        part, _, name = socket.partition(".")
        if name in forgeable_inputs(component.pipeline.get_component(part)):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Which arguments of a call are dropped, and which of them the developer takes from the `State` instead."""

    dropped: frozenset[str]
    from_state: dict[str, str]
    state: State

    @classmethod
    def of(cls, tool: Tool, state: State) -> "_Arguments":
        dropped = forgeable_inputs(getattr(tool, "_component", None))
        mapping = tool.inputs_from_state or {}
        return cls(dropped, {name: key for key, name in mapping.items() if name in dropped}, state)

    def clean(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self.dropped:
            return arguments
        kept = {name: value for name, value in arguments.items() if name not in self.dropped}
        # Haystack lets the model's argument win over `inputs_from_state`. Here the developer's choice does.
        taken = {name: self.state.get(key) for name, key in self.from_state.items() if self.state.has(key)}
        return kept | taken


def _bind_sync(function: Callable[..., Any], binding: Binding, arguments: _Arguments) -> Callable[..., Any]:
    @functools.wraps(function)
    def run_bound(*args: Any, **kwargs: Any) -> Any:
        with bound(binding):
            return function(*args, **arguments.clean(kwargs))

    return _marked(run_bound, function)


def _bind_async(function: Callable[..., Any], binding: Binding, arguments: _Arguments) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run_bound(*args: Any, **kwargs: Any) -> Any:
        with bound(binding):
            return await function(*args, **arguments.clean(kwargs))

    return _marked(run_bound, function)


def _marked(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__dict__["_tenancy_bound"] = (wrapper, original)
    return wrapper


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    wrapper, original = getattr(function, "_tenancy_bound", (None, function))
    # `functools.wraps` copies attributes: a stranger's wrapper around ours carries our mark too, and stays.
    return original if wrapper is function else function
