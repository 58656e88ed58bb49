"""The ways to run an agent, as a caller in ordinary code or in a coroutine starts them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

Answer = dict[str, Any]
Chunks = list[Any]


@dataclass(frozen=True, slots=True)
class Way:
    """
    How a run is started.

    :param run: Starts it in the thread of the caller, or `None`.
    :param run_async: Starts it in the event loop of the caller, or `None`.
    :param in_pipeline: Whether it takes a pipeline around the agent.
    :param streams: Whether chunks arrive while it runs.
    """

    run: Callable[[Any, Answer, Chunks], Answer] | None = None
    run_async: Callable[[Any, Answer, Chunks], Awaitable[Answer]] | None = None
    in_pipeline: bool = False
    streams: bool = False


def _run(agent: Any, inputs: Answer, _: Chunks) -> Answer:
    return dict(agent.run(**inputs))


def _run_streaming(agent: Any, inputs: Answer, chunks: Chunks) -> Answer:
    return dict(agent.run(**inputs, streaming_callback=chunks.append))


def _pipeline_run(pipeline: Any, inputs: Answer, _: Chunks) -> Answer:
    return dict(pipeline.run({"agent": inputs})["agent"])


async def _run_async(agent: Any, inputs: Answer, _: Chunks) -> Answer:
    return dict(await agent.run_async(**inputs))


async def _run_async_streaming(agent: Any, inputs: Answer, chunks: Chunks) -> Answer:
    async def take(chunk: Any) -> None:
        chunks.append(chunk)

    return dict(await agent.run_async(**inputs, streaming_callback=take))


async def _pipeline_run_async(pipeline: Any, inputs: Answer, _: Chunks) -> Answer:
    return dict((await pipeline.run_async({"agent": inputs}))["agent"])


async def _pipeline_stream(pipeline: Any, inputs: Answer, chunks: Chunks) -> Answer:
    handle = pipeline.stream(data={"agent": inputs})
    async for chunk in handle:
        chunks.append(chunk)
    return dict(handle.result["agent"])


WAYS: Final = {
    "run": Way(run=_run),
    "run_async": Way(run_async=_run_async),
    "run, streaming": Way(run=_run_streaming, streams=True),
    "run_async, streaming": Way(run_async=_run_async_streaming, streams=True),
    "Pipeline.run": Way(run=_pipeline_run, in_pipeline=True),
    "Pipeline.run_async": Way(run_async=_pipeline_run_async, in_pipeline=True),
    "Pipeline.stream": Way(run_async=_pipeline_stream, in_pipeline=True, streams=True),
}
