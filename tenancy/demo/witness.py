"""Standing between the agent and its model, and taking down what the model gets to see."""

import threading
from dataclasses import dataclass, field
from typing import Any

from haystack import component
from haystack.components.generators.chat import MockChatGenerator, OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, StreamingCallbackT, ToolCall
from haystack.token_counters import TokenCounter
from haystack.tools import ToolsType

from tenancy.demo.requests import RUN, SCRIPTED
from tenancy.demo.script import latest_turn

ToolCallingGenerator = MockChatGenerator | OpenAIChatGenerator


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a tool call came to, as the model saw it first.

    :param call: The call.
    :param text: The answer, whole.
    """

    call: ToolCall
    text: str = field(repr=False)


@dataclass(slots=True)
class Testimony:
    """
    What the model saw in one run.

    :param answers: Of its tools, in order.
    :param said: What the model itself wrote.
    :param fetched: The conversation when results had come in and nothing had been read back yet.
    :param peak_tokens: The most that was ever sent at once.
    """

    answers: list[Answer] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    fetched: list[ChatMessage] = field(default_factory=list)
    peak_tokens: int = 0

    def of_tool(self, name: str) -> list[Answer]:
        """The answers of one tool."""
        return [answer for answer in self.answers if answer.call.tool_name == name]

    @property
    def seen(self) -> bytes:
        """All the model read or wrote."""
        return "\n".join([*(answer.text for answer in self.answers), *self.said]).encode("utf-8", "surrogatepass")


class Stopped(Exception):
    """The demo was interrupted, so this run ends too."""


@component
class WitnessedGenerator:
    """
    A chat generator that passes everything on to another one. One serves all runs at once.

    Which run a request belongs to stands in the `meta` of the user's message.
    """

    def __init__(self, model: ToolCallingGenerator, *, script: ToolCallingGenerator, counter: TokenCounter) -> None:
        """
        Make the generator.

        :param model: Answers the conversations.
        :param script: Answers what must go as planned whatever the model is. The same as `model` by default.
        :param counter: Counts what is sent.
        """
        self._model = model
        self._script = script
        self._counter = counter
        self._lock = threading.Lock()
        self._testimonies: dict[str, Testimony] = {}
        self._under_way: set[str] = set()
        self._stopped = threading.Event()
        self.most_at_once = 0

    def testimony(self, run: str) -> Testimony:
        """Return what was taken down for a run; empty if there was no such run."""
        with self._lock:
            return self._testimonies.setdefault(run, Testimony())

    def stop(self) -> None:
        """End every run at its next step."""
        self._stopped.set()

    def warm_up(self) -> None:
        """Warm up what is behind it."""
        for generator in (self._model, self._script):
            generator.warm_up()

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,  # noqa: ARG002 - the demo does not stream
        generation_kwargs: dict[str, Any] | None = None,  # noqa: ARG002 - nor does it tune
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, Any]:
        """
        Take down what is sent, pass it on, take down the reply.

        :param messages: The conversation.
        :param streaming_callback: Not used.
        :param generation_kwargs: Not used.
        :param tools: What the model may call.
        :returns: The reply, under `replies`.
        """
        if self._stopped.is_set():
            raise Stopped
        turn = latest_turn(messages)
        meta = turn[0].meta if turn else {}
        run = str(meta.get(RUN, ""))
        testimony = self.testimony(run)
        self._take_down(testimony, messages, turn=turn, tools=tools)
        with self._lock:
            self._under_way.add(run)
            self.most_at_once = max(self.most_at_once, len(self._under_way))
        generator = self._script if meta.get(SCRIPTED) else self._model
        replied: dict[str, Any] = generator.run(messages=messages, tools=tools)
        if not any(reply.tool_calls for reply in replied["replies"]):
            with self._lock:
                self._under_way.discard(run)
        testimony.said += [reply.text for reply in replied["replies"] if reply.text]
        return replied

    def _take_down(
        self, testimony: Testimony, messages: list[ChatMessage], *, turn: list[ChatMessage], tools: ToolsType | None
    ) -> None:
        results = [message.tool_call_result for message in turn if message.tool_call_result is not None]
        # Compaction replaces messages where they stand, so what is new is what has been added.
        for result in results[len(testimony.answers) :]:
            testimony.answers.append(Answer(result.origin, _text(result.result)))
        testimony.peak_tokens = max(testimony.peak_tokens, self._counter.count(messages, tools))
        if results and all(result.origin.tool_name.startswith("fetch_") for result in results):
            testimony.fetched = list(messages)


def _text(result: Any) -> str:
    # An image that stayed in the conversation counts with all its base64.
    if isinstance(result, str):
        return result
    return "\n".join(str(getattr(part, "text", None) or getattr(part, "base64_image", "")) for part in result)
