"""The `before_llm` hook: old results move into the session, or away, before the context window is full."""

import warnings
from typing import TYPE_CHECKING, Any

from haystack.components.agents.state import State, replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction import CompactionHook, ToolResultOffloadCompactor, ToolResultPruningCompactor
from haystack.token_counters import TokenCounter
from haystack.utils.experimental import ExperimentalWarning

from tenancy.events import emit
from tenancy.seam.binding import Binding, RoutedStore, binding_of, bound
from tenancy.seam.parts import with_plain_labels
from tenancy.seam.pointers import META_KEY, OFFLOADED, finished, read_back_removed, replaced
from tenancy.seam.state_view import StateView
from tenancy.seam.tokens import SafeTokenCounter
from tenancy.seam.tools import read_tool_of

if TYPE_CHECKING:
    from tenancy.session import Session


class SessionCompactionHook:
    """
    Haystack's `CompactionHook` twice: old results are offloaded into the session, then, if need be, pruned.

    Read-backs are never stored again: where pruning takes one away, the original's reference takes its place. Without a
    session, or without a tool that could read back, only pruning runs. It never raises by accident.
    """

    allowed_hook_points = ("before_llm",)

    def __init__(
        self, *, context_window: int, preview_chars: int = 200, token_counter: TokenCounter | None = None
    ) -> None:
        """
        Make the hook.

        :param context_window: The model's window in tokens.
        :param preview_chars: Leading characters of each offloaded text that stay in its pointer.
        :param token_counter: Measures the conversation. `SafeTokenCounter` by default.
        :raises ValueError: From Haystack, if the window is not positive or the preview is negative.
        """
        self.context_window = context_window
        self.preview_chars = preview_chars
        self.token_counter = token_counter or SafeTokenCounter()
        with warnings.catch_warnings():
            # Haystack says at each construction that its compaction may change. Canary tests watch that for our users.
            warnings.simplefilter("ignore", ExperimentalWarning)
            self._offload = CompactionHook(
                ToolResultOffloadCompactor(RoutedStore(), preview_chars=preview_chars),
                context_window=context_window,
                token_counter=self.token_counter,
            )
            self._prune = CompactionHook(
                ToolResultPruningCompactor(), context_window=context_window, token_counter=self.token_counter
            )

    def run(self, state: State) -> None:
        """
        Compact the conversation if it fills too much of the window.

        :param state: The Agent's live `State`. Its `messages` are rewritten if something was compacted.
        """
        # There is no `run_async`: the Agent then calls this one in a worker thread, where it may wait for the store.
        for step in (self._run_offload, self._run_prune):
            try:
                step(state)
            except Exception as error:  # noqa: BLE001 - a raising hook would end the run
                emit("compaction_failed", error=type(error).__name__)

    def _run_offload(self, state: State) -> None:
        session = binding_of(state).session
        if session is None or read_tool_of(state) is None:
            return
        messages: list[ChatMessage] = state.data.get("messages") or []
        disguised = [_disguised(message) for message in messages]
        originals = {id(new): old for new, old in zip(disguised, messages, strict=True)}
        view = StateView(state, messages=disguised)
        written: list[str] = []
        with bound(Binding(session, written=written)):
            self._offload.run(view)
        compacted: list[ChatMessage] = view.data["messages"]
        if compacted is not disguised:
            # Haystack puts a pointer where the result was.
            restored = [
                originals.get(id(new)) or finished(new, state, content=_content(old), preview_chars=self.preview_chars)
                for new, old in zip(compacted, messages, strict=True)
            ]
            state.set("messages", restored, replace_values)
        _forget(session, written, kept=compacted)

    def _run_prune(self, state: State) -> None:
        before: list[ChatMessage] = state.data.get("messages") or []
        self._prune.run(state)
        after: list[ChatMessage] = state.data.get("messages") or []
        if after is not before:
            # Haystack puts a placeholder where the result was.
            told = [
                new if new is old else read_back_removed(new, state) for new, old in zip(after, before, strict=True)
            ]
            state.set("messages", told, replace_values)

    def warm_up(self) -> None:
        """Warm up the token counter."""
        self._offload.warm_up()

    def close(self) -> None:
        """Release the token counter's resources."""
        self._offload.close()

    def to_dict(self) -> dict[str, Any]:
        """Serialise the settings. There is no session and no secret in it."""
        return default_to_dict(
            self,
            context_window=self.context_window,
            preview_chars=self.preview_chars,
            token_counter=self.token_counter,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SessionCompactionHook":
        """Make the hook from what `to_dict` returned."""
        return default_from_dict(cls, data)


def _content(message: ChatMessage) -> Any:
    result = message.tool_call_result
    return "" if result is None else result.result


def _disguised(message: ChatMessage) -> ChatMessage:
    result = message.tool_call_result
    if result is None:
        return message
    if META_KEY not in message.meta:
        # Their labels go into the pointer.
        return message if isinstance(result.result, str) else replaced(message, with_plain_labels(result.result))
    # The offload compactor leaves alone what is offloaded already. A read-back is, and a notice must not be.
    return ChatMessage.from_tool(
        tool_result=result.result, origin=result.origin, error=result.error, meta={**message.meta, OFFLOADED: ["-"]}
    )


def _forget(session: "Session", written: list[str], *, kept: list[ChatMessage]) -> None:
    # Haystack drops a pointer that would be longer than its result, and the parts before one that failed.
    referenced = {reference for message in kept for reference in message.meta.get(OFFLOADED) or ()}
    session.unwanted.add(reference for reference in written if reference not in referenced)
