"""A chat backend in small: an agent everybody shares, and what a web framework does around it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading import AlwaysOffload
from haystack.tools import Tool

from tenancy.manager import SessionManager
from tenancy.session import Session
from tests.haystack.support import CANARY, agent, call, canary_of, is_bound, last_pointer, sub_agent_tool, text_tool

TOPIC = {"type": "object", "properties": {"topic": {"type": "string"}}}


def fetched(topic: str) -> str:
    """What the tools return."""
    return f"{topic} " * 300


def canary(user: int | str) -> str:
    """What is in everything of a user's, and in nothing of anybody else's. No preview can cut it into another one."""
    return f"canary-{user}-x"


def asked(user: int | str) -> list[ChatMessage]:
    """What a user asks."""
    return [ChatMessage.from_user(f"Tell me about {canary(user)}")]


def shared_agent(fetch: Tool | None = None, *, name: str = "fetch", **settings: Any) -> Agent:
    """An agent for everybody: it fetches, reads back, delegates to an agent that fetches, and is done."""
    tool = fetch or text_tool(name, fetched)

    def hand_on(messages: list[ChatMessage]) -> Any:
        return call("delegate", messages=[{"role": "user", "content": canary_of(messages)}])

    def fetch_it(messages: list[ChatMessage]) -> Any:
        return call(tool.name, topic=canary_of(messages))

    def read_it(messages: list[ChatMessage]) -> Any:
        return call("read_result", reference=last_pointer(messages))

    policy = {"offload": {tool.name: AlwaysOffload()}, **settings}
    inner = agent(fetch_it, lambda messages: f"found {canary_of(messages)}", tools=[tool], **policy)
    return agent(fetch_it, read_it, hand_on, "done", tools=[tool, sub_agent_tool(inner)], **policy)


def stored_in(session: Session) -> list[str]:
    """All texts of a session, oldest first."""
    return [str(session.read(result.reference)) for result in session.results()][::-1]


def stored_for(manager: SessionManager, user: int | str) -> list[str]:
    """All texts of a user's chat, by a handle that is opened for this look."""
    with chat_of(manager, user) as session:
        return stored_in(session)


def chat_of(manager: SessionManager, user: int | str) -> Session:
    """The session of a user's chat."""
    return manager.session(tenant="acme", user=f"u-{user}", session="chat")


def canaries_in(answer: Any) -> set[str]:
    """Whose canaries are in an answer."""
    return set(CANARY.findall(repr(answer)))


@asynccontextmanager
async def contextmanager_in_threadpool(manager: AbstractContextManager[Session]) -> AsyncIterator[Session]:
    """
    What FastAPI makes of a `def` dependency with `yield` (`fastapi.concurrency`, 0.115).

    It is entered in one worker thread and left in another, each time in a new copy of the request's context: what is
    set in there never reaches the handler.
    """
    session = await asyncio.to_thread(manager.__enter__)
    try:
        yield session
    except Exception as error:
        if not await asyncio.to_thread(manager.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(manager.__exit__, None, None, None)


class Waiting:
    """A tool that works when it is let go, and says when somebody has called it."""

    def __init__(self, work: Callable[[str], str]) -> None:
        self.called, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.outcome = ""
        self._work = work

    def tool(self) -> Tool:
        """The tool. It runs in a worker thread, since it is no coroutine."""

        def fetch(topic: str = "") -> str:
            self.called.set()
            assert self.go_on.wait(timeout=60)
            try:
                self.outcome = self._work(topic)
            except Exception as error:
                self.outcome = type(error).__name__
                raise
            finally:
                self.ended.set()
            return "fetched"

        return Tool(name="fetch", description="Fetches.", parameters=TOPIC, function=fetch)


class Workers:
    """
    A pool of threads for a backend, which can say whether anything stayed bound in any of them.

    :param count: How many threads.
    """

    def __init__(self, count: int = 4) -> None:
        self.pool = ThreadPoolExecutor(max_workers=count)
        self._count = count

    def bound(self) -> int:
        """In how many of the threads something is bound, in the context that is the thread's own."""
        everybody_is_here = threading.Barrier(self._count)

        def look() -> bool:
            everybody_is_here.wait(timeout=30)
            return is_bound()

        return sum(future.result(timeout=60) for future in [self.pool.submit(look) for _ in range(self._count)])

    def serve(self, story: Callable[[], Any]) -> Any:
        """
        Run a coroutine as a server does, with these threads as those of the event loop.

        :returns: What it returns, when nothing is bound in any thread or in the loop.
        """

        async def main() -> Any:
            asyncio.get_running_loop().set_default_executor(self.pool)
            result = await story()
            assert not is_bound()
            assert self.bound() == 0
            return result

        result = asyncio.run(main())
        assert not is_bound()
        return result
