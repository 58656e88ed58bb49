"""Server-sent events: a stream outlives its handler, is pulled by many tasks, and ends when its client goes away."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from tenancy.manager import SessionManager
from tenancy.seam.binding import RoutedStore
from tests.haystack.backend import Waiting, Workers, asked, canary, chat_of, fetched, shared_agent, stored_for
from tests.haystack.conftest import Events
from tests.haystack.support import is_bound, piped

Chunks = AsyncIterator[Any]


async def _pipeline_chunks(manager: SessionManager, pipeline: Any, user: int | str) -> Chunks:
    """A response by `Pipeline.stream`, in a session that lives as long as the response."""
    async with manager.session_async(tenant="acme", user=f"u-{user}", session="chat") as session:
        inputs = {"messages": asked(user), "hook_context": session.hook_context}
        # Closed when this ends: what a plain `async for` leaves behind is closed when it is collected.
        async with aclosing(aiter(pipeline.stream(data={"agent": inputs}))) as chunks:
            async for chunk in chunks:
                yield chunk


async def _callback_chunks(manager: SessionManager, agent: Any, user: int | str) -> Chunks:
    """A response by a streaming callback that fills a queue, as most examples have it."""
    async with manager.session_async(tenant="acme", user=f"u-{user}", session="chat") as session:
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def run() -> None:
            try:
                await agent.run_async(asked(user), hook_context=session.hook_context, streaming_callback=queue.put)
            finally:
                queue.put_nowait(None)

        running = asyncio.create_task(run())
        try:
            while (chunk := await queue.get()) is not None:
                yield chunk
        finally:
            running.cancel()
            await asyncio.wait([running])


#: How a response comes about: what makes it, and of what.
STREAMS: dict[str, tuple[Callable[..., Chunks], Callable[[Any], Any]]] = {
    "Pipeline.stream": (_pipeline_chunks, piped),
    "streaming_callback": (_callback_chunks, lambda agent: agent),
}


async def _pulled(chunks: Chunks, most: int | None = None) -> int:
    """Pull chunks, each in a task of its own, as servers do; return how many there were."""
    count = 0
    while most is None or count < most:
        try:
            await asyncio.create_task(anext(chunks))  # type: ignore[arg-type]
        except StopAsyncIteration:
            break
        count += 1
    return count


async def _everything_else_ends() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


def test_streams_pulled_by_many_tasks_stay_their_users(manager: SessionManager, events: Events) -> None:
    agents = {kind: made_of(shared_agent()) for kind, (_, made_of) in STREAMS.items()}
    responses = [(kind, user) for user, kind in enumerate([*STREAMS, *STREAMS, *STREAMS])]

    async def story() -> list[int]:
        return await asyncio.gather(
            *(_pulled(STREAMS[kind][0](manager, agents[kind], user)) for kind, user in responses)
        )

    assert min(Workers().serve(story)) > 5
    for _, user in responses:
        assert stored_for(manager, user) == [fetched(canary(user))] * 2
    assert events.names == []


@pytest.mark.parametrize("kind", STREAMS)
def test_a_client_that_goes_away_at_any_moment_leaves_only_what_is_its_own(kind: str, manager: SessionManager) -> None:
    stream, made_of = STREAMS[kind]
    target = made_of(shared_agent())

    async def goes_away(user: str, after: int, *, while_it_waits: bool) -> None:
        chunks = stream(manager, target, user)
        await _pulled(chunks, after)
        if while_it_waits:
            waits = asyncio.create_task(anext(chunks))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            waits.cancel()
            await asyncio.wait([waits])
        await asyncio.create_task(chunks.aclose())  # type: ignore[attr-defined]

    async def story() -> int:
        total = await _pulled(stream(manager, target, "first"))
        stays = asyncio.create_task(_pulled(stream(manager, target, "stays")))
        await asyncio.gather(*(goes_away(f"closed{n}", n, while_it_waits=False) for n in range(total + 1)))
        await asyncio.gather(*(goes_away(f"cancelled{n}", n, while_it_waits=True) for n in range(total + 1)))
        assert await stays == total
        await _everything_else_ends()
        return total

    total = Workers().serve(story)
    for user in ("first", "stays"):
        assert stored_for(manager, user) == [fetched(canary(user))] * 2
    for how in ("closed", "cancelled"):
        kept = {f"{how}{n}": stored_for(manager, f"{how}{n}") for n in range(total + 1)}
        for user, texts in kept.items():
            assert texts in ([], [fetched(canary(user))], [fetched(canary(user))] * 2)
        # Whoever was there to the end has everything.
        assert len(kept[f"{how}{total}"]) == 2
    assert stored_for(manager, "closed0") == []


def test_a_tool_at_work_when_the_client_goes_away_stores_nothing_any_more(manager: SessionManager) -> None:
    others = shared_agent()

    async def left_alone(user: int, stream: Callable[..., Chunks], made_of: Callable[[Any], Any]) -> str:
        waiting = Waiting(lambda topic: RoutedStore().write(key="late.txt", content=fetched(topic)))
        chunks = stream(manager, made_of(shared_agent(waiting.tool())), user)
        await _pulled(chunks, 1)
        assert await asyncio.to_thread(waiting.called.wait, 60)
        await asyncio.create_task(chunks.aclose())  # type: ignore[attr-defined]
        next_one = asyncio.create_task(_pulled(_callback_chunks(manager, others, f"{user}next")))
        waiting.go_on.set()
        assert await next_one > 5
        assert await asyncio.to_thread(waiting.ended.wait, 60)
        await _everything_else_ends()
        assert stored_for(manager, user) == []
        assert len(stored_for(manager, f"{user}next")) == 2
        return waiting.outcome

    async def story() -> list[str]:
        return [await left_alone(user, *kind) for user, kind in enumerate(STREAMS.values())]

    assert Workers().serve(story) == ["SessionNotFound"] * len(STREAMS)


def test_a_consumer_that_abandons_a_stream_is_not_left_in_its_session(manager: SessionManager) -> None:
    async def story() -> None:
        for user, (stream, made_of) in enumerate(STREAMS.values()):
            shared = shared_agent()
            async for _ in stream(manager, made_of(shared), user):
                break
            # Nobody has closed it. It is the same task that now serves nobody in particular, and then somebody else.
            assert not is_bound()
            with chat_of(manager, f"{user}next") as session:
                await shared.run_async(asked(f"{user}next"), hook_context=session.hook_context)
        gc.collect()
        await _everything_else_ends()

    Workers().serve(story)
    for user in range(len(STREAMS)):
        assert stored_for(manager, f"{user}next") == [fetched(canary(f"{user}next"))] * 2
        assert set(stored_for(manager, user)) <= {fetched(canary(user))}
