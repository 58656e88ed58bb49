"""A run of one cell: the sessions around it, the run itself, and what can be known afterwards."""

import asyncio
import itertools
import logging
from collections.abc import Iterator
from typing import Any, Final

from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY

from tenancy.manager import SessionManager
from tenancy.session import Session
from tests.haystack.conftest import Events
from tests.haystack.matrix.agents import Cast, fetched, question
from tests.haystack.matrix.table import Cell, NotApplicable, expected
from tests.haystack.matrix.verdict import Evidence, complaints
from tests.haystack.matrix.ways import WAYS, Answer, Chunks
from tests.haystack.support import is_bound

_TENANTS: Final = ("acme", "rival")
#: Whoever else logs something, such as Haystack's telemetry that finds no network, has nothing to do with the run.
_LOGGERS: Final = ("haystack", "tenancy", "stores", "asyncio", "sqlalchemy")


class Trial:
    """
    Tries cells on one manager.

    :param cast: The agents that all of them share.
    :param manager: Holds the caller's sessions, one for each cell, and three neighbours': another session of the same
        user, another user's of the same tenant, another tenant's.
    """

    def __init__(self, cast: Cast, manager: SessionManager, events: Events) -> None:
        self._cast = cast
        self._manager = manager
        self._events = events
        self._numbers = itertools.count(1)
        self._neighbours = [
            manager.session(tenant="acme", user="caller", session="another"),
            manager.session(tenant="acme", user="neighbour", session="chat"),
            manager.session(tenant="rival", user="caller", session="chat"),
        ]
        self._secrets = {
            session: {(secret := fetched(f"canary-0{n}-n")): session.write(secret, name="1_fetch_x.txt")}
            for n, session in enumerate(self._neighbours)
        }

    def failures(self, cells: list[Cell]) -> list[str]:
        """Try cells, and return what is not as the table has it, with the name of the cell before it."""
        failures = []
        with asyncio.Runner() as runner:
            for cell in cells:
                outcome = expected(cell)
                if isinstance(outcome, NotApplicable):
                    continue
                evidence = self._tried(cell, runner)
                streams = WAYS[cell.way].streams
                failures += [
                    f"{cell} {complaint}" for complaint in complaints(cell, outcome, evidence, streams=streams)
                ]
        return failures + [f"{session} was changed" for session in self._neighbours if not self._is_intact(session)]

    def _tried(self, cell: Cell, runner: asyncio.Runner) -> Evidence:
        number = next(self._numbers)
        # The last group is one letter, so that a preview cannot cut a canary into another one.
        canary = f"canary-{number}-c"
        session = self._manager.session(tenant="acme", user="caller", session=f"cell-{number}")
        earlier = {}
        if cell.part == "read tools":
            earlier[session.write(fetched(canary), name="1_fetch_x.txt")] = fetched(canary)
        before = self._grown()
        self._cast.log.clear()
        self._events.records.clear()
        references = [*earlier, *(reference for secret in self._secrets.values() for reference in secret.values())]
        inputs = {"messages": [ChatMessage.from_user(question(canary, given=cell.given, references=references))]}
        chunks: Chunks = []
        answer = self._run(cell, inputs, session=session, chunks=chunks, runner=runner)
        bound = list(self._still_bound(runner))
        stored = {result.reference: session.read(result.reference) for result in session.results()}
        return Evidence(
            canary=canary,
            earlier=earlier,
            stored=stored,
            names=[result.name for result in session.results()],
            unwarranted=self._grown() - before - (len(stored) - len(earlier)),
            asked=list(self._cast.log.asked),
            contexts=list(self._cast.log.contexts),
            answer=answer,
            events=self._events.names,
            noise=[record.getMessage() for record in self._events.records if _is_noise(record)],
            bound=bound,
            chunks=len(chunks),
        )

    def _run(self, cell: Cell, inputs: Answer, *, session: Session, chunks: Chunks, runner: asyncio.Runner) -> Answer:
        way = WAYS[cell.way]
        target = self._target(cell)
        match cell.given:
            case "another's, when bound":
                inputs["hook_context"] = self._neighbours[1].hook_context
            case "nothing":
                pass
            case "{}":
                inputs["hook_context"] = {}
            case "None under the key":
                inputs["hook_context"] = {RESULT_STORE_CONTEXT_KEY: None}
            case "a text under the key":
                inputs["hook_context"] = {RESULT_STORE_CONTEXT_KEY: "acme/caller/chat"}
            case _:
                inputs["hook_context"] = session.hook_context
        if cell.given == "another's, when bound":
            return self._run_inside(cell, target, inputs, session=session, chunks=chunks, runner=runner)
        if way.run is not None:
            return way.run(target, inputs, chunks)
        assert way.run_async is not None
        return runner.run(way.run_async(target, inputs, chunks))

    def _run_inside(
        self, cell: Cell, target: Any, inputs: Answer, *, session: Session, chunks: Chunks, runner: asyncio.Runner
    ) -> Answer:
        """Run it inside a tool of another agent, which is bound to the caller's session."""
        answers: list[Answer] = []
        run, run_async = WAYS[cell.way].run, WAYS[cell.way].run_async
        outer = {"messages": [ChatMessage.from_user("go")], "hook_context": session.hook_context}
        if run is not None:

            def errand() -> None:
                answers.append(run(target, inputs, chunks))

            self._cast.smuggler(errand).run(**outer)
        else:
            assert run_async is not None

            async def errand_async() -> None:
                answers.append(await run_async(target, inputs, chunks))

            runner.run(self._cast.smuggler(errand_async).run_async(**outer))
        return answers[0]

    def _target(self, cell: Cell) -> Any:
        make = self._cast.pipeline if WAYS[cell.way].in_pipeline else self._cast.agent
        return make(shape=cell.shape, part=cell.part)

    def _grown(self) -> int:
        usages = [self._manager.usage(tenant=tenant) for tenant in _TENANTS]
        return sum(usage.results + usage.sessions for usage in usages)

    def _still_bound(self, runner: asyncio.Runner) -> Iterator[str]:
        async def in_a_worker() -> bool:
            # Not `to_thread`, which would bring a context along: in the thread's own one, where a stale value stays.
            return await asyncio.get_running_loop().run_in_executor(None, is_bound)

        async def in_the_loop() -> bool:
            return is_bound()

        if is_bound():
            yield "the caller's thread"
        if runner.run(in_the_loop()):
            yield "the event loop"
        if runner.run(in_a_worker()):
            yield "a worker thread"

    def _is_intact(self, session: Session) -> bool:
        stored = {session.read(result.reference): result.reference for result in session.results()}
        return stored == self._secrets[session]


def _is_noise(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _LOGGERS and not hasattr(record, "event")
