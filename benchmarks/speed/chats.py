"""What a chat feels: a step of an agent that offloads, the opening of its session, and reading on page by page."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.tool_result_offloading import (
    FileSystemToolResultStore,
    OffloadOverChars,
    OffloadPolicy,
    ToolResultOffloadHook,
)
from haystack.tools.tool import Tool

from benchmarks.place import sqlite_place
from benchmarks.speed.peers import HaystackStore
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.timing import interleaved
from benchmarks.speed.works import INLINE_BYTES, PAGE_CHARS, SIZES, opened_session, own_folder
from tenancy import SessionManager, SessionToolset, session_hooks

_OFFLOADED: Final[dict[str | tuple[str, ...], OffloadPolicy]] = {"*": OffloadOverChars(4_000)}
#: No pointer is longer.
_POINTER_CHARS: Final = 1_000


def agent_rows(rounds: int) -> Iterator[Row]:
    """
    One whole run of an agent, whose tool returns 64 KB that are offloaded, with ours and with Haystack's own store.

    The model is a mock: what a real one takes would hide both. Ours has the tools to read with as well, without which
    nothing is offloaded. The last line is beside a run in which the text stays in the conversation.
    """
    texts = sample_texts(SIZES["64 KB"])
    with opened_session(sqlite_place(files_from=INLINE_BYTES)) as session, own_folder() as folder:
        plain = ToolResultOffloadHook(store=FileSystemToolResultStore(folder), offload_strategies=_OFFLOADED)
        ours = _agent(texts, session_hooks(offload=_OFFLOADED), SessionToolset())
        theirs, bare = _agent(texts, {"after_tool": [plain]}), _agent(texts, {})
        calls = {
            "ours": lambda _: _run(ours, offloads=True, hook_context=session.hook_context),
            "theirs": lambda _: _run(theirs, offloads=True),
            "bare": lambda _: _run(bare, offloads=False),
        }
        times = interleaved(calls, rounds=rounds, block=4)
    yield Row("agent run, 64 KB offloaded", "H", None, times["ours"], times["theirs"])
    yield Row("agent run, 64 KB offloaded", "nothing offloaded", None, times["ours"], times["bare"])


def opening_rows(rounds: int) -> Iterator[Row]:
    """Open a session that is there, and one that is not, of a user who is."""
    numbers = count()
    with (
        sqlite_place(files_from=INLINE_BYTES) as place,
        SessionManager.from_settings(place.settings(durability="process")) as manager,
    ):
        calls = {
            "existing": lambda _: manager.session(tenant="acme", user="u", session="chat"),
            "new": lambda _: manager.session(tenant="acme", user="u", session=f"chat {next(numbers)}"),
        }
        times = interleaved(calls, rounds=rounds, block=8)
    for which, goal in (("existing", 0.5), ("new", 1.0)):
        row = times[which]
        yield Row(f"open {which} session", "", goal, row, figure=row.median_us / 1000, unit="ms")


def sequence_rows(rounds: int) -> Iterator[Row]:
    """
    Read 1 MB in pages of 4 KB, one after the other. One call is all of them, so that its ratio is that of the means.
    """
    text = sample_texts(SIZES["1 MB"])[0]
    with opened_session(sqlite_place(files_from=INLINE_BYTES)) as session, own_folder() as folder:
        haystack = HaystackStore(folder)
        reference, other = session.write(text), haystack.write(text)

        def walk(_: int) -> None:
            offset: int | None = 0
            while offset is not None:
                offset = session.read_page(reference, offset=offset, max_chars=PAGE_CHARS).next_offset

        def slices(_: int) -> None:
            for offset in range(0, len(text), PAGE_CHARS):
                haystack.read(other)[offset : offset + PAGE_CHARS]

        times = interleaved({"ours": walk, "theirs": slices}, rounds=max(2, rounds // 4), block=1)
    yield Row("all 4 KB pages of 1 MB, in turn", "H, read and slice", 0.08, times["ours"], times["theirs"])


def _agent(texts: list[str], hooks: dict[Any, Any], *more: Any) -> Agent:
    numbers = count()

    def respond(messages: list[ChatMessage]) -> ChatMessage:
        if messages[-1].tool_call_result is not None:
            return ChatMessage.from_assistant("Read it.")
        # Another id each time: Haystack's store names the file after it, and would write over the last one.
        return ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {}, id=f"call_{next(numbers)}")])

    def fetch() -> str:
        return texts[next(fetched) % len(texts)]

    fetched = count()
    tool = Tool("fetch", "Fetch a page.", {"type": "object", "properties": {}}, fetch)
    agent = Agent(chat_generator=MockChatGenerator(response_fn=respond), tools=[tool, *more], hooks=hooks)
    agent.warm_up()
    return agent


def _run(agent: Agent, *, offloads: bool, **options: Any) -> None:
    messages = agent.run(messages=[ChatMessage.from_user("Fetch it.")], **options)["messages"]
    (result,) = (str(message.tool_call_result.result) for message in messages if message.tool_call_result is not None)
    if (len(result) < _POINTER_CHARS) != offloads:
        raise RuntimeError("What should have been offloaded was not, or the other way round.")
