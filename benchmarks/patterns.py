"""
Regular expressions that would never end, on a megabyte each, and paths into large JSON: how long does a model wait, and
how long everybody else?

Each is asked by an agent in an event loop, as in a web server, beside a task that does nothing but look at the clock
every millisecond. How late that task is at the latest is what other requests in the same process feel.

Ends with 1 if an answer took longer than a second, or if a pattern held the loop for longer than 50 milliseconds. JSON
is parsed in one step, which may hold it for three times as long.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall

from benchmarks.place import sqlite_place
from tenancy import SessionManager, SessionToolset, session_hooks
from tenancy.session import Session
from tests.haystack.test_paths import LARGE
from tests.haystack.test_patterns import HARD

_LOOK_SECONDS: Final = 0.001


async def _latest(done: asyncio.Event) -> float:
    """Look at the clock until it is over, and return the longest delay, in seconds."""
    worst = 0.0
    while not done.is_set():
        began = time.perf_counter()
        await asyncio.sleep(_LOOK_SECONDS)
        worst = max(worst, time.perf_counter() - began - _LOOK_SECONDS)
    return worst


async def _ask(session: Session, query: str, text: str, *, is_path: bool = False) -> dict[str, Any]:
    reference = await session.write_async(text, name="x.txt")
    asked: dict[str, Any] = {"path": query} if is_path else {"query": query, "regex": True}
    arguments = {**asked, "reference": reference}
    tool = "read_result" if is_path else "search_result"
    agent = Agent(
        chat_generator=MockChatGenerator(
            [ChatMessage.from_assistant(tool_calls=[ToolCall(tool, arguments)]), "Found out."]
        ),
        tools=[SessionToolset()],
        hooks=session_hooks(offload={}),
    )
    done = asyncio.Event()
    watching = asyncio.create_task(_latest(done))
    await asyncio.sleep(0)
    began = time.perf_counter()
    answer = await session.run_async(agent, [ChatMessage.from_user("Find it.")])
    seconds = time.perf_counter() - began
    done.set()
    lag = await watching
    (told,) = [message.tool_call_result.result for message in answer["messages"] if message.tool_call_result]
    return {
        "query": query,
        "answer_ms": seconds * 1000,
        "lag_ms": lag * 1000,
        "is_stopped": "took too long" in str(told),
    }


async def _measure(session: Session, rounds: int) -> list[dict[str, Any]]:
    # Whatever is loaded at the first use is not what is measured.
    await _ask(session, "x", "y" * 1000)
    gc.collect()
    await _ask(session, "a", "{}", is_path=True)
    patterns = [await _ask(session, query, text) for _ in range(rounds) for query, text in HARD.items()]
    return patterns + [
        await _ask(session, path, text, is_path=True) for _ in range(rounds) for path, text in LARGE.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patterns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is asked")
    parser.add_argument("--longest-answer", type=float, default=1000.0, help="milliseconds; longer is a failure")
    parser.add_argument("--longest-lag", type=float, default=50.0, help="milliseconds; longer is a failure")
    parser.add_argument("--longest-path-lag", type=float, default=150.0, help="milliseconds, for JSON; likewise")
    parser.add_argument("--json", action="store_true", help="print figures for a script")
    wanted = parser.parse_args(arguments)
    with sqlite_place(files_from=0) as place, SessionManager.from_settings(place.settings()) as manager:
        session = manager.session(tenant="acme", user="u")
        asked = asyncio.run(_measure(session, wanted.rounds))
    rows = []
    for query in [*HARD, *LARGE]:
        same = [each for each in asked if each["query"] == query]
        rows.append({**same[0], **{field: max(each[field] for each in same) for field in ("answer_ms", "lag_ms")}})
    if wanted.json:
        print(json.dumps(rows, indent=2))
    else:
        print(f"{'the worst of ' + str(wanted.rounds):<44}{'answer':>11}{'loop held':>12}")
        for row in rows:
            how = "stopped" if row["is_stopped"] else "to its end"
            print(f"{row['query']:<44}{row['answer_ms']:>8.0f} ms{row['lag_ms']:>9.1f} ms  {how}")
    slow = []
    for row in rows:
        longest = wanted.longest_lag if row["query"] in HARD else wanted.longest_path_lag
        if row["answer_ms"] > wanted.longest_answer or row["lag_ms"] > longest:
            slow.append(row)
    for row in slow:
        print(f"error: {row['query']} took {row['answer_ms']:.0f} ms, the loop {row['lag_ms']:.1f} ms", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
