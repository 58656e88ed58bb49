"""The scripted model. It knows the conversation and nothing else, and finds in it what a model would find."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from haystack.dataclasses import ChatMessage, ChatRole, ToolCall
from haystack.token_counters import TokenCounter
from haystack.tools import ToolsType

from tenancy.demo.requests import asks_to_read_on, calls_in

#: Pages of one result the script reads through the agent; a model would not read a book either.
MAX_PAGES: Final = 60
#: How Haystack's hook begins a pointer. Anchored: what a document says later must not pass for a reference.
_POINTER = re.compile(r"Tool result offloaded to [^']{1,80} at '([^']+)'")
_PAGE = re.compile(
    r"\[characters (\d+)-(\d+) of (\d+), lines? \d+(?:-\d+)? of \d+"
    r"(?:, the end|; next: (\w+)\(reference='([^']+)', offset=\d+\))\]\n"
)
_READ: Final = "read_result"
_NOTE: Final = "Read to the end: {reference}"


@dataclass(frozen=True, slots=True)
class SeenPage:
    """
    A page as the model got it.

    :param end: Where the next one begins.
    :param is_last: Whether there is none.
    """

    start: int
    end: int
    is_last: bool
    text: str = field(repr=False)


class Script:
    """What a model does with a request: make the calls, then follow the pointers page by page, then say so."""

    def __init__(self, counter: TokenCounter) -> None:
        """
        Make the script.

        :param counter: Counts for the reply's `usage`, which compaction goes by as it goes by a provider's.
        """
        self._counter = counter

    def reply(self, messages: list[ChatMessage], tools: ToolsType | None) -> ChatMessage:
        """
        Return the next message of the assistant. The `response_fn` of a `MockChatGenerator`.

        :param messages: The conversation as it is sent to a model.
        :param tools: What can be called.
        """
        text, calls = _next_step(latest_turn(messages))
        numbered = sum(len(message.tool_calls) for message in messages)
        answer = ChatMessage.from_assistant(
            text,
            tool_calls=[
                ToolCall(tool_name=call.tool_name, arguments=call.arguments, id=f"call_{numbered + position}")
                for position, call in enumerate(calls)
            ],
        )
        answer.meta["usage"] = {
            "prompt_tokens": self._counter.count(messages, tools),
            "completion_tokens": self._counter.count([answer]),
        }
        return answer


def latest_turn(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the conversation from the latest user message on."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].is_from(ChatRole.USER):
            return list(messages[index:])
    return []


def reference_in(answer: str) -> str | None:
    """Return the reference in a pointer, or `None` if the answer is not a pointer."""
    found = _POINTER.match(answer)
    return found.group(1) if found else None


def page_in(answer: str) -> SeenPage | None:
    """Return the page in an answer of the read tool, or `None` if there is none."""
    found = _PAGE.match(answer)
    if found is None:
        return None
    start, end, _total, following, _reference = found.groups()
    return SeenPage(int(start), int(end), following is None, answer[found.end() :])


def _next_step(turn: list[ChatMessage]) -> tuple[str | None, list[ToolCall]]:
    text = (turn[0].text or "") if turn else ""
    made = [call for message in turn for call in message.tool_calls]
    if not made:
        wanted = calls_in(text)
        return (None, wanted) if wanted else ("There is nothing to do.", [])
    if not asks_to_read_on(text):
        return "Done.", []
    finished: list[str] = []
    for reference in _references(turn):
        if any(_NOTE.format(reference=reference) in (message.text or "") for message in turn[1:]):
            continue
        offset = _next_offset(turn, reference)
        if offset is None:
            finished.append(_NOTE.format(reference=reference))
            continue
        # The note stays in the conversation when the pages are pruned from it.
        call = ToolCall(tool_name=_READ, arguments={"reference": reference, "offset": offset})
        return "\n".join(finished) or None, [call]
    return "\n".join([*finished, "Everything is read."]), []


def _references(turn: list[ChatMessage]) -> Iterator[str]:
    for message in turn:
        result = message.tool_call_result
        if result is not None and result.origin.tool_name != _READ and isinstance(result.result, str):
            reference = reference_in(result.result)
            if reference is not None:
                yield reference


def _next_offset(turn: list[ChatMessage], reference: str) -> int | None:
    """Where to read on; `None` at the end, or where nothing can be read."""
    answers = [
        message.tool_call_result
        for message in turn
        if message.tool_call_result is not None
        and message.tool_call_result.origin.tool_name == _READ
        and message.tool_call_result.origin.arguments.get("reference") == reference
    ]
    if not answers:
        return 0
    page = page_in(str(answers[-1].result))
    if page is None or page.is_last or len(answers) >= MAX_PAGES:
        return None
    return page.end
