"""The hooks an Agent needs: `session_hooks(...)`."""

from typing import Any

from haystack.components.agents.state import State
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.hooks import Hook, HookPoint
from haystack.hooks.protocol import VALID_HOOK_POINTS
from haystack.hooks.tool_result_offloading import OffloadPolicy, ToolResultOffloadHook
from haystack.token_counters import TokenCounter
from haystack.tools.tool import Tool

from tenancy.errors import ConfigurationError
from tenancy.events import emit
from tenancy.seam.binding import Binding, RoutedStore, binding_of, report_foreign
from tenancy.seam.compaction import SessionCompactionHook
from tenancy.seam.offload import OnFailure, SessionOffloadHook
from tenancy.seam.tool_binding import bind_tool


def session_hooks(
    *,
    offload: dict[str | tuple[str, ...], OffloadPolicy],
    context_window: int | None = None,
    preview_chars: int = 200,
    on_failure: OnFailure = "notice",
    token_counter: TokenCounter | None = None,
    more: dict[HookPoint, list[Hook]] | None = None,
) -> dict[HookPoint, list[Hook]]:
    """
    Return everything an `Agent` takes as `hooks`: binding, offloading and, with a context window, compaction.

    One agent with these hooks serves every user at once; `hook_context=session.hook_context` says for each run whose it
    is. They serialise with the agent; to load it, call `allow_deserialization_module("tenancy")` first
    (`haystack.core.serialization`).

    :param offload: Which results leave the conversation: tool name (or a tuple of them, or `"*"`) to Haystack's policy.
    :param context_window: The model's window in tokens. `None`: no compaction.
    :param preview_chars: Leading characters of an offloaded text that its pointer shows. With 0, notices show nothing
        of the content either.
    :param on_failure: What becomes of a result that cannot be stored: `"notice"` (a short notice with head and tail),
        `"keep"` (it stays in the conversation) or `"stop"` (a notice, and the run ends with `result_not_stored`).
    :param token_counter: Measures the conversation for compaction. By default one that never asks the network.
    :param more: The user's own hooks. At every point they run before ours, in their order: they see whole results and
        may redact them before anything is stored, and ours have the last word on what the executor and the model get.
    :raises ConfigurationError: If a value is not acceptable. The message names the argument.
    """
    if not isinstance(offload, dict) or not all(hasattr(policy, "should_offload") for policy in offload.values()):
        raise ConfigurationError("offload must map tool names to Haystack offload policies.")
    _require_number("preview_chars", preview_chars, at_least=0)
    plain = ToolResultOffloadHook(store=RoutedStore(), offload_strategies=offload, preview_chars=preview_chars)
    hooks = _own_hooks(more)
    hooks.setdefault("before_tool", []).append(SessionBindingHook())
    hooks.setdefault("after_tool", []).append(SessionOffloadHook(plain, on_failure=on_failure))
    if context_window is not None:
        _require_number("context_window", context_window, at_least=1)
        hooks.setdefault("before_llm", []).append(
            SessionCompactionHook(
                context_window=context_window, preview_chars=preview_chars, token_counter=token_counter
            )
        )
    return hooks


class SessionBindingHook:
    """Binds the tools of each step to the session of the run, so that whatever they start inherits it."""

    allowed_hook_points = ("before_tool",)

    def run(self, state: State) -> None:
        """
        Replace each tool of this step by a bound copy.

        :param state: The Agent's live `State`. The list under `tools` is the executor's own and made anew for each
            step, so its entries are replaced in place and nothing has to be put back.
        """
        tools = state.data.get("tools")
        if not isinstance(tools, list):
            return
        binding = binding_of(state)
        report_foreign(binding)
        tools[:] = [_bound_or_as_it_is(tool, binding=binding, state=state) for tool in tools]

    async def run_async(self, state: State) -> None:
        """Do what `run` does. It waits for nothing, so it needs no thread."""
        self.run(state)

    def to_dict(self) -> dict[str, Any]:
        """Serialise the hook. There is nothing to hold."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SessionBindingHook":
        """Make the hook from what `to_dict` returned."""
        return default_from_dict(cls, data)


def _bound_or_as_it_is(tool: Tool, *, binding: Binding, state: State) -> Tool:
    try:
        return bind_tool(tool, binding=binding, state=state)
    except Exception as error:  # noqa: BLE001 - a raising hook would end the run; unbound, the tool finds no session
        emit("binding_failed", error=type(error).__name__)
        return tool


def _own_hooks(more: dict[HookPoint, list[Hook]] | None) -> dict[HookPoint, list[Hook]]:
    if not isinstance(more, dict | None):
        raise ConfigurationError("more must map hook points to lists of hooks.")
    for point, own in (more or {}).items():
        if point not in VALID_HOOK_POINTS:
            raise ConfigurationError(f"more knows the hook points {', '.join(VALID_HOOK_POINTS)}, and no others.")
        if not isinstance(own, list | tuple) or not all(callable(getattr(hook, "run", None)) for hook in own):
            raise ConfigurationError(
                f"more must hold a list of hooks at {point}; wrap functions with Haystack's @hook."
            )
    return {point: list(own) for point, own in (more or {}).items()}


def _require_number(name: str, value: Any, *, at_least: int) -> None:
    if type(value) is not int or value < at_least:
        raise ConfigurationError(f"{name} must be a whole number of at least {at_least}.")
