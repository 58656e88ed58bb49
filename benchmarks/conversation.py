"""
A long run over real documents in a small context window: what does the model get, with and without the library?

Ten documents of installed packages are fetched, each read back and looked into, in thirty steps of one agent. Every
result is offloaded, and the window has 16,000 tokens. It is done on SQLite and PostgreSQL, with results in the database
and in files, in `run` and `run_async`; and once without the library, where the ten documents stay in the conversation.

Ends with 1 if a request was larger than the window, if a read-back was stored again, or if a pointer led nowhere.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.tool_result_offloading import AlwaysOffload
from haystack.tools import Tool, ToolsType

from benchmarks.place import Place, sqlite_place, started_place
from tenancy import SessionManager, SessionToolset, session_hooks
from tenancy.demo.documents import Document, Kind
from tenancy.demo.installed import installed_documents
from tenancy.seam.tokens import SafeTokenCounter, vocabulary_on_disk
from tenancy.session import Session

_DOCUMENTS: Final = 10
_POINTER: Final = re.compile(r" at '([a-z0-9.-]+)'")
#: Where results of any size go into files. The rest of the table has them in the database.
_FILES_FROM: Final = 0
_PARAMETERS: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was sent: how many tokens, at each step."""

    tokens: list[int] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """The largest request."""
        return max(self.tokens)


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    where: str
    way: str
    steps: int
    peak_tokens: int
    sent_tokens: int
    stored: int
    removed: int
    faults: list[str]


class Reader:
    """A model that fetches each document, reads the beginning of it, and looks at another place in it."""

    def __init__(self, documents: Sequence[Document], *, reads: bool) -> None:
        self.asked = Asked()
        self._counter = SafeTokenCounter()
        self._steps = [step for each in documents for step in _steps(each, reads=reads)]
        self._reference = ""

    def reply(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> ChatMessage:
        """Answer as a provider does: with the next call, and with what the request took."""
        tokens = self._counter.count(messages, tools)
        self.asked.tokens.append(tokens)
        answer = self._next(messages)
        answer.meta["usage"] = {"prompt_tokens": tokens, "completion_tokens": self._counter.count([answer])}
        return answer

    def _next(self, messages: list[ChatMessage]) -> ChatMessage:
        number = len(self.asked.tokens) - 1
        if number >= len(self._steps):
            return ChatMessage.from_assistant("That is all there is in them.")
        last = messages[-1].tool_call_result
        found = _POINTER.search(str(last.result)) if last is not None else None
        self._reference = found[1] if found is not None else self._reference
        call = self._steps[number](self._reference)
        return ChatMessage.from_assistant(tool_calls=[replace(call, id=f"call_{number}")])


def _steps(document: Document, *, reads: bool) -> Iterator[Callable[[str], ToolCall]]:
    yield lambda _: ToolCall("fetch", {"name": document.name})
    if reads:
        yield lambda reference: ToolCall("read_result", {"reference": reference})
        if document.kind is Kind.JSON:
            yield lambda reference: ToolCall("read_result", {"reference": reference, "path": "@"})
        else:
            yield lambda reference: ToolCall("read_result", {"reference": reference, "line": -40})


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conversation", description=__doc__)
    parser.add_argument("--window", type=int, default=16_000, help="tokens of the model's context window")
    parser.add_argument("--only", choices=("sqlite", "postgresql"), help="one database")
    parser.add_argument("--json", action="store_true", help="print figures for a script")
    wanted = parser.parse_args(arguments)
    documents = [each for each in installed_documents(each=_DOCUMENTS) if each.kind is not Kind.IMAGE]
    # A share of each kind, the long ones first.
    chosen = sorted(documents, key=lambda each: len(each.content), reverse=True)[:_DOCUMENTS]
    whole = _without(chosen)
    rows = []
    for only, kind, place in _places():
        if wanted.only in (None, only):
            with place() as started, SessionManager.from_settings(started.settings()) as manager:
                for way in ("run", "run_async"):
                    with manager.session(tenant="acme", user="u", session=way) as session:
                        where = f"{started.database}, {kind}"
                        rows.append(_with(chosen, session, where=where, way=way, window=wanted.window))
    figures = {
        "counter": "o200k_base" if vocabulary_on_disk("o200k_base") else "approximate",
        "window": wanted.window,
        "characters": sum(len(each.content) for each in chosen),
        "without": {"steps": len(whole.tokens) - 1, "peak_tokens": whole.peak, "sent_tokens": sum(whole.tokens)},
        "with": [asdict(row) for row in rows],
        "ok": not any(row.faults for row in rows),
    }
    print(json.dumps(figures, indent=2) if wanted.json else _table(figures))
    for row in rows:
        for fault in row.faults:
            print(f"error: {row.where}, {row.way}: {fault}", file=sys.stderr)
    return 0 if figures["ok"] else 1


def _places() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    yield "sqlite", "in the database", sqlite_place
    yield "sqlite", "in files", lambda: sqlite_place(files_from=_FILES_FROM)
    yield "postgresql", "in the database", started_place
    yield "postgresql", "in files", _postgresql_with_files


@contextmanager
def _postgresql_with_files() -> Iterator[Place]:
    with ExitStack() as stack:
        files = stack.enter_context(sqlite_place(files_from=_FILES_FROM))
        place = stack.enter_context(started_place())
        yield replace(place, store_url=files.store_url, inline_bytes=files.inline_bytes)


def _fetching(documents: Sequence[Document]) -> Tool:
    contents = {each.name: each.content for each in documents}
    return Tool("fetch", "Fetches a document.", _PARAMETERS, function=lambda name: contents[name])


def _without(documents: Sequence[Document]) -> Asked:
    reader = Reader(documents, reads=False)
    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=reader.reply), tools=[_fetching(documents)], max_agent_steps=100
    )
    agent.run(messages=[ChatMessage.from_user("What is in these documents?")])
    return reader.asked


def _with(documents: Sequence[Document], session: Session, *, where: str, way: str, window: int) -> Row:
    reader = Reader(documents, reads=True)
    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=reader.reply),
        tools=[_fetching(documents), SessionToolset()],
        hooks=session_hooks(offload={"*": AlwaysOffload()}, context_window=window),
        max_agent_steps=100,
    )
    messages = [ChatMessage.from_user("What is in these documents?")]
    ways = {
        "run": lambda: session.run(agent, messages),
        "run_async": lambda: asyncio.run(session.run_async(agent, messages)),
    }
    answer = ways[way]()
    results = [message for message in answer["messages"] if message.tool_call_result is not None]
    pages = [message for message in results if message.tool_call_result.origin.tool_name != "fetch"]
    removed = [message for message in pages if "context_compaction" in message.meta]
    return Row(
        where=where,
        way=way,
        steps=len(reader.asked.tokens) - 1,
        peak_tokens=reader.asked.peak,
        sent_tokens=sum(reader.asked.tokens),
        stored=session.usage().results,
        removed=len(removed),
        faults=list(_faults(documents, session, results, pages, reader.asked, window)),
    )


def _faults(
    documents: Sequence[Document],
    session: Session,
    results: list[ChatMessage],
    pages: list[ChatMessage],
    asked: Asked,
    window: int,
) -> Iterator[str]:
    if asked.peak > window:
        yield f"a request took {asked.peak} of {window} tokens"
    if len(asked.tokens) != 3 * len(documents) + 1:
        yield f"the run took {len(asked.tokens) - 1} steps"
    if session.usage().results != len(documents):
        yield f"{session.usage().results} results are stored, of {len(documents)} documents"
    if any("tool_result_offloaded" in message.meta for message in pages):
        yield "a read-back was offloaded"
    if not all(str(_text(page)).startswith(("[characters", "[part: characters", "[Removed")) for page in pages):
        yield "a read-back is no page"
    whole = [session.resolve(message) for message in results if message not in pages]
    if whole != [each.content for each in documents]:
        yield "a pointer does not lead to what was fetched"
    named = [reference for message in results for reference in _POINTER.findall(str(_text(message)))]
    if [session.read(reference) for reference in named] != [each.content for each in documents]:
        yield "a reference in a pointer does not lead to what was fetched"


def _text(message: ChatMessage) -> Any:
    return message.tool_call_result.result if message.tool_call_result is not None else None


def _table(figures: dict[str, Any]) -> str:
    without = figures["without"]
    lines = [
        f"{_DOCUMENTS} documents of {figures['characters']:,} characters, a window of {figures['window']:,} tokens"
        f" (counted: {figures['counter']})",
        "",
        f"{'':<46}{'steps':>7}{'largest request':>17}{'sent in all':>13}{'stored':>8}{'pages pruned':>14}",
        f"{'without the library, documents fetched only':<46}{without['steps']:>7}{without['peak_tokens']:>17,}"
        f"{without['sent_tokens']:>13,}",
    ]
    lines += [
        f"{row['where'] + ', ' + row['way']:<46}{row['steps']:>7}{row['peak_tokens']:>17,}{row['sent_tokens']:>13,}"
        f"{row['stored']:>8}{row['removed']:>14}"
        for row in figures["with"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
