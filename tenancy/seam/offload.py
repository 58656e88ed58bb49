"""The `after_tool` hook: results go into the session, or the model reads why not."""

from typing import TYPE_CHECKING, Any, Literal, get_args

from haystack.components.agents.state import State, replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ChatRole
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY, ToolResultOffloadHook
from haystack.hooks.tool_result_offloading.types import OffloadPolicy, ToolResultStore

from tenancy.errors import ConfigurationError, NoActiveSession, QuotaExceeded, ResultTooLarge, TenancyError
from tenancy.events import emit, facts_of
from tenancy.seam.binding import Binding, Holds, RoutedStore, binding_of, bound
from tenancy.seam.notices import notice
from tenancy.seam.parts import media_types, text_or_parts, with_plain_labels
from tenancy.seam.pointers import META_KEY, finished, replaced
from tenancy.seam.state_view import StateView
from tenancy.seam.tools import ReadTool, read_tool_of, tool_named

if TYPE_CHECKING:
    from tenancy.session import Session

OnFailure = Literal["notice", "keep", "stop"]

#: The `exit_reason` of a run that stops because a result could not be stored.
STOP_REASON = "result_not_stored"


class SessionOffloadHook:
    """
    Offloads tool results with Haystack's own `ToolResultOffloadHook`, into the session of the run.

    Read-back tools are recognised by their `Tool` object and never offloaded. A result that cannot be stored becomes a
    bounded notice (or stays, or stops the run); a result of several parts is stored whole or not at all. Error results
    and rejections by a human are left alone. It never raises by accident: a raising hook ends the run.
    """

    allowed_hook_points = ("after_tool",)

    def __init__(self, hook: ToolResultOffloadHook, *, on_failure: OnFailure = "notice") -> None:
        """
        Make the hook.

        :param hook: Haystack's hook with the user's policies. Its store is not used.
        :param on_failure: What becomes of a result that cannot be stored: `"notice"` replaces it by a notice, `"keep"`
            leaves it in the conversation, `"stop"` replaces it and ends the run with the reason `STOP_REASON`.
        :raises ConfigurationError: If `on_failure` is none of these.
        """
        if on_failure not in get_args(OnFailure):
            raise ConfigurationError('on_failure must be "notice", "keep" or "stop".')
        self.hook = hook
        self.on_failure = on_failure
        self._driven = ToolResultOffloadHook(
            store=RoutedStore(),
            offload_strategies={name: _LivePolicy(policy) for name, policy in hook.offload_strategies.items()},
            preview_chars=hook.preview_chars,
        )

    def run(self, state: State) -> None:
        """
        Offload the results of the step that just ended.

        :param state: The Agent's live `State`. Its `messages` are rewritten if a result changed.
        """
        messages: list[ChatMessage] = state.data.get("messages") or []
        binding = binding_of(state)
        rewritten = list(messages)
        with bound(binding):
            for index in _fresh_results(messages):
                rewritten[index] = self._rewritten(messages[index], state=state, binding=binding)
        if any(new is not old for new, old in zip(rewritten, messages, strict=True)):
            state.set("messages", rewritten, replace_values)

    def _rewritten(self, message: ChatMessage, *, state: State, binding: Binding) -> ChatMessage:
        result = message.tool_call_result
        if result is None or result.error or META_KEY in message.meta:
            return message
        tool = tool_named(state, result.origin.tool_name)
        if isinstance(tool, ReadTool):
            return replaced(message, result.result, kind="read_back")
        content = text_or_parts(result.result)
        view_of = replaced(message, with_plain_labels(content))
        # Without a read tool in this run nobody could follow a pointer.
        session = binding.session if read_tool_of(state) is not None else None
        recorder = _Recorder(session, tool=result.origin.tool_name, media_types=media_types(content))
        view = StateView(state, messages=[view_of], hook_context={RESULT_STORE_CONTEXT_KEY: recorder})
        try:
            # One message at a time: whose part a write is, is then never guessed from a key that a model chose.
            self._driven.run(view)
        except Exception as error:  # noqa: BLE001 - a raising hook would end the run
            recorder.fail(error)
        if not recorder.is_used:
            return message
        pointer: ChatMessage = view.data["messages"][-1]
        if recorder.failure is None and pointer is not view_of:
            return finished(pointer, state, content=content, preview_chars=self.hook.preview_chars)
        return self._not_stored(message, content=content, recorder=recorder, state=state, binding=binding)

    def _not_stored(
        self, message: ChatMessage, *, content: Any, recorder: "_Recorder", state: State, binding: Binding
    ) -> ChatMessage:
        recorder.undo()
        error = recorder.failure or TenancyError("Haystack's hook wrote the result and then kept it.")
        if binding.session is None:
            emit(binding.refused_as or "unbound", result_bytes=recorder.result_bytes)
        elif read_tool_of(state) is None:
            emit("no_read_tools", session=binding.session.scope.short_hash, result_bytes=recorder.result_bytes)
            return message
        else:
            scope = binding.session.scope
            emit("not_stored", session=scope.short_hash, result_bytes=recorder.result_bytes, **facts_of(error))
        if self.on_failure == "keep":
            return message
        if self.on_failure == "stop":
            state.set("stop_run", STOP_REASON)
        try:
            # Where it was the storage that failed, it is not asked again.
            asked = binding.session if isinstance(error, QuotaExceeded | ResultTooLarge) else None
            text = notice(content, error, show=self.hook.preview_chars > 0, is_known=Holds(asked))
        except Exception:  # noqa: BLE001 - parts whose fields are not what they should be; the run goes on all the same
            text = notice("", error, show=False)
        return replaced(message, text, kind="notice")

    def to_dict(self) -> dict[str, Any]:
        """Serialise the user's own policies. There is no session and no secret in it."""
        return default_to_dict(self, hook=self.hook.to_dict(), on_failure=self.on_failure)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SessionOffloadHook":
        """Make the hook from what `to_dict` returned."""
        return default_from_dict(cls, data)


class _Recorder(ToolResultStore):
    """
    The store one result is offloaded into. It never raises: Haystack would log the error and leave the parts behind.

    Instead it remembers the first failure, takes no further part, and can undo what was written.
    """

    supports_binary_content = True

    def __init__(self, session: "Session | None", *, tool: str, media_types: list[str | None]) -> None:
        self._session = session
        self._tool = tool
        self._media_types = iter(media_types)
        self._references: list[str] = []
        self.is_used = False
        self.result_bytes = 0
        self.failure: BaseException | None = NoActiveSession() if session is None else None

    def write(self, *, key: str, content: str | bytes) -> str:
        self.is_used = True
        self.result_bytes += len(content) if isinstance(content, bytes) else len(content.encode("utf-8", "replace"))
        if self.failure is not None or self._session is None:
            return ""
        try:
            reference = self._session.write_result(
                content, name=key, tool=self._tool, media_type=next(self._media_types, None)
            )
        except Exception as error:  # noqa: BLE001 - a bug in a store must not end the run either
            self.failure = error
            return ""
        self._references.append(reference)
        return reference

    def read(self, reference: str) -> str | bytes:  # noqa: ARG002 - offloading never reads
        raise NoActiveSession

    def fail(self, error: BaseException) -> None:
        self.is_used = True
        self.failure = self.failure or error

    def undo(self) -> None:
        if self._session is not None:
            self._session.unwanted.add(self._references)


class _LivePolicy(OffloadPolicy):
    """The user's policy, asked about the live `State`. If it raises, the result is offloaded: nothing is lost."""

    def __init__(self, policy: OffloadPolicy) -> None:
        self._policy = policy

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        live = state.live if isinstance(state, StateView) else state
        try:
            wanted = bool(self._policy.should_offload(tool_name=tool_name, result=result, state=live))
        except Exception as error:  # noqa: BLE001 - a raising policy would end the run
            emit("policy_failed", error=type(error).__name__)
            wanted = True
        recorder = (state.data.get("hook_context") or {}).get(RESULT_STORE_CONTEXT_KEY)
        if wanted and isinstance(recorder, _Recorder):
            # From here on a result that comes back unchanged could not be stored, whether or not a write was tried:
            # Haystack also gives up on parts it cannot decode, and leaves them in the conversation whole.
            recorder.is_used = True
        return wanted


def _fresh_results(messages: list[ChatMessage]) -> range:
    # As Haystack's hook, the last block of tool results; but a message that a user's hook put after it hides nothing.
    end = len(messages)
    while end > 0 and messages[end - 1].tool_call_result is None and not messages[end - 1].is_from(ChatRole.ASSISTANT):
        end -= 1
    start = end
    while start > 0 and messages[start - 1].tool_call_result is not None:
        start -= 1
    return range(start, end)
