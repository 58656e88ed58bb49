"""
With content tracing off, nothing of a session, of its keys or of what is stored gets out by Haystack: spans, logs,
errors, snapshots, serialised agents.

What Haystack shows of a conversation (messages in its tags and snapshots, arguments of a failing tool in its log) is
the application's. So the names of a session may occur nowhere at all, the part of a result that left the conversation
nowhere at all, and what is still in the conversation in nothing that we say.
"""

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from haystack import Pipeline, component, tracing
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.generators.chat.mock import MockChatGenerator
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ChatMessage
from haystack.hooks import hook
from haystack.hooks.compaction import CompactionHook, ToolResultOffloadCompactor
from haystack.hooks.tool_result_offloading import AlwaysOffload, OffloadPolicy
from haystack.tools import Tool, tool
from haystack.tools.errors import ToolInvocationError
from haystack.tracing import Span, Tracer
from haystack.tracing.utils import coerce_tag_value

from stores.errors import StoreUnavailable
from stores.names import mint_name
from tenancy import (
    Limits,
    NoActiveSession,
    QuotaExceeded,
    ResultCorrupt,
    RoutedStore,
    Session,
    SessionManager,
    SessionToolset,
    session_hooks,
)
from tenancy.events import Event
from tenancy.seam.binding import Binding, bound
from tests.conftest import ManagerFactory
from tests.core.failing import House
from tests.haystack.support import WAYS, agent, call, last_pointer, piped, run, sub_agent_tool, text_tool
from tests.leaks import (
    CANARY,
    PASSWORD,
    SESSION,
    TENANT,
    USER,
    WHO,
    Log,
    everything_logged,
    key_forms,
    keys_in_memory,
    leaks_in,
    living_objects,
    locals_shown_by,
    objects_behind,
    shown_by,
    shown_by_error,
)

#: The data directory's name.
FOLDER = "canary-folder"
#: Stands where a result has left the conversation: behind the preview, before the tail that a notice shows.
DEEP = "canary-deep-in-a-result"
LONG = "beginning " * 200 + DEEP + " end" * 500
NOTHING = {"type": "object", "properties": {}}


class RecordingSpan(Span):
    def __init__(self, tags: dict[str, Any]) -> None:
        self.tags = tags

    def set_tag(self, key: str, value: Any) -> None:
        self.tags[key] = value


class RecordingTracer(Tracer):
    """Keeps all tags of all spans, as they are and as tracing back ends get them."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, RecordingSpan]] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def trace(self, operation_name: str, tags: Any = None, parent_span: Any = None) -> Iterator[Span]:
        span = RecordingSpan(dict(tags or {}))
        with self._lock:
            self.spans.append((operation_name, span))
        yield span

    def current_span(self) -> Span | None:
        return None

    def texts(self) -> list[str]:
        tags = [(key, value) for _, span in self.spans for key, value in span.tags.items()]
        return [text for key, value in tags for text in (f"{key} {value!r}", f"{key} {coerce_tag_value(value)}")]


@pytest.fixture
def tracer() -> Iterator[RecordingTracer]:
    recording = RecordingTracer()
    tracing.enable_tracing(recording)
    assert not tracing.tracer.is_content_tracing_enabled
    yield recording
    tracing.disable_tracing()


@pytest.fixture
def log() -> Iterator[Log]:
    with everything_logged() as everything:
        yield everything


@pytest.fixture
def house(make_manager: ManagerFactory) -> House:
    return House(make_manager)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[SessionManager]:
    """For what does not depend on where anything is stored."""
    with SessionManager.local(tmp_path / FOLDER, durability="process") as manager:
        yield manager


def secrets(living: list[object], *paths: object) -> list[str]:
    """What may stand nowhere, whoever says it."""
    keys = key_forms(keys_in_memory(living))
    assert keys
    return [TENANT, USER, SESSION, PASSWORD, DEEP, *map(str, paths), *keys]


def require_silence(*texts: str, log: Log, tracer: RecordingTracer, paths: Any = ()) -> None:
    """Nothing secret was said by anybody, and nothing of the conversation by us."""
    living = living_objects()
    unspeakable = secrets(living, *paths)
    assert leaks_in([*texts, *tracer.texts()], unspeakable) == []
    assert leaks_in(log.texts(but_of=("psycopg", "sqlalchemy")), unspeakable) == []
    ours = [record for record in log.records if record.name.startswith(("tenancy", "stores"))]
    assert leaks_in([f"{record.getMessage()} {vars(record)}" for record in ours], [CANARY]) == []
    assert leaks_in(shown_by(living), [TENANT, USER, SESSION, DEEP]) == []


def failing_tool() -> Tool:
    def fails(topic: str = "") -> str:
        raise RuntimeError(f"a tool's own words about {topic}")

    parameters = {"type": "object", "properties": {"topic": {"type": "string"}}}
    return Tool(name="fails", description="Fails.", parameters=parameters, function=fails)


def owned_tool(session: Session) -> Tool:
    """A tool that is a bound method of a session: Haystack tags an agent's tools with their owners' reprs."""
    return Tool(name="usage", description="Tells.", parameters=NOTHING, function=session.usage)


def read(messages: list[ChatMessage]) -> Any:
    return call("read_result", reference=last_pointer(messages))


def busy_agent(session: Session) -> Agent:
    """One that offloads, delegates, fails, lists, searches and reads, in a window that is too small for it."""
    inner = agent(
        call("fetch", call_id="canary-call"),
        "inner done",
        tools=[text_tool("fetch", LONG)],
        offload={"*": AlwaysOffload()},
    )
    task = [{"role": "user", "content": "look it up"}]
    return agent(
        call("fetch", call_id="canary-call-id"),
        call("delegate", messages=task),
        call("fails", topic="canary-argument"),
        call("usage"),
        call("list_results"),
        call("search_result", query="nothing like it"),
        call("fetch"),
        "done",
        tools=[text_tool("fetch", LONG), sub_agent_tool(inner), failing_tool(), owned_tool(session)],
        offload={"*": AlwaysOffload()},
        context_window=600,
    )  # fmt: skip


def be_busy(session: Session, way: str, *, log: Log, tracer: RecordingTracer, paths: list[str]) -> None:
    answer = run(busy_agent(session), way, session=session, text="canary-question")
    assert answer["last_message"].text == "done"
    assert len([one for one in session.results() if session.read(one.reference) == LONG]) >= 3
    assert {"haystack.agent.run", "haystack.agent.step.tool"} <= {name for name, _ in tracer.spans}
    assert any("Session(" in text for text in tracer.texts())
    require_silence(str(answer), log=log, tracer=tracer, paths=paths)


@pytest.mark.case(142)
@pytest.mark.parametrize("way", WAYS)
def test_a_busy_run_says_nothing_of_whose_it_is_or_what_it_stored(
    way: str, local: SessionManager, log: Log, tracer: RecordingTracer
) -> None:
    be_busy(local.session(**WHO), way, log=log, tracer=tracer, paths=[FOLDER])


@pytest.mark.case(142)
def test_a_busy_run_says_nothing_of_it_on_any_database(house: House, log: Log, tracer: RecordingTracer) -> None:
    be_busy(house.session, "pipeline_run", log=log, tracer=tracer, paths=house.paths)


class RaisingPolicy(OffloadPolicy):
    def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        raise LookupError(f"{CANARY}-policy")


class Uncopyable(Tool):
    def __copy__(self) -> Any:
        raise LookupError(f"{CANARY}-copy")


def raises(*_: Any, **__: Any) -> Any:
    raise LookupError(f"{CANARY}-bug")


def fetching(*steps: Any, policy: OffloadPolicy | None = None, **settings: Any) -> Agent:
    offload = {"*": policy or AlwaysOffload()}
    return agent(call("fetch"), *steps, "done", tools=[text_tool("fetch", LONG)], offload=offload, **settings)


def unbound(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    run(fetching())
    with pytest.raises(NoActiveSession):
        RoutedStore().write(key=f"0_{CANARY}", content=LONG)


def not_stored(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    session = manager.session(**WHO, limits=Limits(session_bytes=10))
    run(fetching(), session=session)
    with pytest.raises(QuotaExceeded):
        session.store.write(key=f"0_{CANARY}", content=LONG)
    patch.setattr("tenancy.writing.seal", raises)
    run(fetching(), session=session)


def foreign_session(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    with bound(Binding(manager.session(tenant=TENANT, user=f"{USER}-other"))):
        run(fetching(), session=manager.session(**WHO))


def no_read_tools(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    run(fetching(), session=manager.session(**WHO), tools=[text_tool("fetch", LONG)])


def policy_failed(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    run(fetching(policy=RaisingPolicy()), session=manager.session(**WHO))


def compaction_failed(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CompactionHook, "run", raises)
    run(fetching(context_window=600), session=manager.session(**WHO))


def binding_failed(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    fetch = Uncopyable(name="fetch", description="Returns a text.", parameters=NOTHING, function=lambda: LONG)
    run(agent(call("fetch"), "done", tools=[fetch], offload={"*": AlwaysOffload()}), session=manager.session(**WHO))


def read_failed(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "read_page", raises)
    run(fetching(read), session=manager.session(**WHO))


def corrupt(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tenancy.reading.Reader._fetch", lambda *_: lambda ranges: [CANARY.encode() * 20 for _ in ranges])
    run(fetching(read), session=manager.session(**WHO))


def not_reclaimed(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise StoreUnavailable("A store's own words.")

    run(fetching(), session=manager.session(**WHO))
    manager.clock.advance(timedelta(days=99))
    patch.setattr("stores.filesystem.FilesystemNamespace.destroy", away)
    manager.cleanup()


def not_rotated(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    def damaged(*_: Any, **__: Any) -> None:
        raise ResultCorrupt(CANARY)

    manager.session(**WHO)
    patch.setattr("tenancy.rotation.rotator._PAUSE_SECONDS", 0)
    patch.setattr("tenancy.keys.keyring.Keyring.rewrap_session_key", damaged)
    assert manager.rotate_keys("tenant").failed == 1


def many_unknown(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    reference = manager.session(**WHO).write(os.urandom(50_000), name=CANARY)
    assert reference
    (row,) = manager.sessions(tenant=TENANT)
    store = manager._backend.store
    for outer, inner in store.namespaces():
        store.namespace(outer, inner).put(mint_name(), f"{CANARY} {row}".encode())
    assert manager.verify(repair=True).alarm


def janitor_failed(manager: SessionManager, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tenancy.cleanup.Cleaner.run", raises)
    manager._rounds(300.0, 500).run(lambda: False)


@pytest.mark.case(76)
@pytest.mark.case(142)
@pytest.mark.parametrize("event", get_args(Event))
def test_an_event_says_nothing_of_whose_it_is_or_what_it_is_about(
    event: Event, local: SessionManager, log: Log, tracer: RecordingTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        globals()[event](local, patch)
    assert event in log.events
    require_silence(log=log, tracer=tracer, paths=[FOLDER])


@component
class Crashing:
    """What comes after an agent in a pipeline, and fails."""

    @component.output_types(never=str)
    def run(self, last_message: ChatMessage) -> dict[str, str]:
        raise LookupError("the component's own words")


def crashing_pipeline(asked: Agent) -> Pipeline:
    pipeline = piped(asked)
    pipeline.add_component("crashing", Crashing())
    pipeline.connect("agent.last_message", "crashing.last_message")
    return pipeline


def failing_pipelines() -> dict[str, Pipeline]:
    """Pipelines that fail when a result was offloaded: in what comes after the agent, in its model, in its tool."""
    strict = agent(
        call("fetch"),
        call("fails", topic="canary-argument"),
        tools=[text_tool("fetch", LONG), failing_tool()],
        hooks=session_hooks(offload={"*": AlwaysOffload()}),
    )
    strict.raise_on_tool_invocation_failure = True
    return {
        "component": crashing_pipeline(fetching()),
        "model": piped(fetching(raises)),
        "tool": piped(strict),
    }


@pytest.mark.case(142)
@pytest.mark.parametrize("failing", ["component", "model", "tool"])
@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("pipeline")])
def test_a_crashed_pipeline_shows_no_session_in_its_error_and_its_snapshot(
    way: str,
    failing: str,
    local: SessionManager,
    log: Log,
    tracer: RecordingTracer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HAYSTACK_PIPELINE_SNAPSHOT_SAVE_ENABLED", "true")
    monkeypatch.setattr("haystack.core.pipeline.pipeline._get_output_dir", lambda _: str(tmp_path / "snapshots"))
    session = local.session(**WHO)
    inputs = {"messages": [ChatMessage.from_user("canary-question")], "hook_context": session.hook_context}
    with pytest.raises(PipelineRuntimeError) as failure:
        asyncio.run(WAYS[way](failing_pipelines()[failing], inputs))
    error = failure.value
    assert session.usage().results == 1
    texts = [*shown_by_error(error), *shown_by(objects_behind(error))]
    snapshot = error.pipeline_snapshot
    if way == "pipeline_run":
        assert snapshot is not None
        (saved,) = (tmp_path / "snapshots").iterdir()
        texts += [json.dumps(snapshot.to_dict()), repr(snapshot), saved.read_text()]
        assert "SessionStore" in texts[-1]
    require_silence(*texts, log=log, tracer=tracer, paths=[FOLDER])


@tool
def fetch_long() -> str:
    """Fetch something long."""
    return LONG


STATES: list[State] = []


@hook
def keep_state(state: State) -> None:
    """Keep the live state."""
    STATES[:] = [state]


@pytest.mark.case(75)
@pytest.mark.case(142)
def test_nothing_that_is_serialised_knows_a_session(local: SessionManager, log: Log, tracer: RecordingTracer) -> None:
    session = local.session(**WHO)
    replies = [ChatMessage.from_assistant(tool_calls=[call("fetch_long")]), ChatMessage.from_assistant("done")]
    asked = Agent(
        chat_generator=MockChatGenerator(replies),
        tools=[fetch_long, SessionToolset()],
        hooks=session_hooks(offload={"*": AlwaysOffload()}, context_window=600, more={"before_llm": [keep_state]}),
    )
    run(asked, session=session)
    state = STATES.pop()
    texts = [json.dumps(state.to_dict()), repr(state), json.dumps(asked.to_dict()), piped(asked).dumps()]
    hooks = [one for hooks in asked.hooks.values() for one in hooks if one is not keep_state]
    toolset = SessionToolset()
    compactors = [ToolResultOffloadCompactor(store=store) for store in (RoutedStore(), session.store)]
    for one in (*hooks, toolset, *toolset, *compactors, RoutedStore(), session.store):
        texts.append(json.dumps(one.to_dict()))
    assert "SessionStore" in texts[0]
    assert session.usage().results == 1
    require_silence(*texts, log=log, tracer=tracer, paths=[FOLDER])


@pytest.mark.case(142)
def test_a_tool_that_raises_takes_no_session_with_it(local: SessionManager, log: Log, tracer: RecordingTracer) -> None:
    def fails(state: State, topic: str = "") -> str:
        raise RuntimeError("a tool's own words")

    session = local.session(**WHO)
    failing = Tool(name="fails", description="Fails.", parameters=NOTHING, function=fails)
    asked = agent(
        call("fetch"), call("fails"), tools=[text_tool("fetch", LONG), failing], offload={"*": AlwaysOffload()}
    )
    asked.raise_on_tool_invocation_failure = True
    with pytest.raises(ToolInvocationError) as failure:
        session.run(asked, [ChatMessage.from_user("go")])
    assert leaks_in([locals_shown_by(failure.value)], [TENANT, USER, SESSION, *key_forms(keys_in_memory())]) == []
    texts = [*shown_by_error(failure.value), *shown_by(objects_behind(failure.value))]
    require_silence(*texts, log=log, tracer=tracer, paths=[FOLDER])
