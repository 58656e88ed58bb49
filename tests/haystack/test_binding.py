"""Which session a run is bound to, and that nothing stays bound."""

import asyncio
import contextvars
import copy
import functools
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY, AlwaysOffload, FileSystemToolResultStore
from haystack.tools import ComponentTool, PipelineTool
from haystack.tools.tool import Tool

from tenancy.errors import NoActiveSession, SessionNotFound
from tenancy.seam.binding import (
    Binding,
    RoutedStore,
    binding_of,
    bound,
    session_of,
    unbound_context,
)
from tenancy.seam.hooks import SessionBindingHook, session_hooks
from tenancy.seam.tool_binding import bind_tool, forgeable_inputs
from tenancy.seam.tools import ReadTool, SessionToolset
from tests.haystack.support import agent, call, is_bound, model, piped, results_of, run, sub_agent_tool, text_tool

NOTHING = {"type": "object", "properties": {}}


def state_with(context: Any, tools: list[Tool] | None = None) -> State:
    schema = {"hook_context": {"type": dict[str, Any]}, "tools": {"type": list}}
    return State(schema, {"hook_context": context, "tools": tools or []})


def routed_tool(*, name: str = "route", is_async: bool = False) -> Tool:
    """Writes where the routed store says, as a compactor inside a sub-agent would."""

    def route() -> str:
        return RoutedStore().write(key="routed.txt", content="routed")

    async def route_async() -> str:
        return RoutedStore().write(key="routed.txt", content="routed")

    functions = {"async_function": route_async} if is_async else {"function": route}
    return Tool(name=name, description="Writes.", parameters=NOTHING, **functions)


@pytest.mark.case(103)
def test_the_routed_store_refuses_when_nothing_is_bound_whoever_used_it_before(session: Any, events: Any) -> None:
    with bound(Binding(session)):
        RoutedStore().read(RoutedStore().write(key="x.txt", content="x"))
    with pytest.raises(NoActiveSession):
        RoutedStore().write(key="x.txt", content="x")
    with pytest.raises(NoActiveSession):
        RoutedStore().read("x-1-aaaaaaaaaa.txt")
    assert events.names == ["unbound"]
    assert session.usage().results == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_is_bound_while_it_runs_and_not_after(is_async: bool, session: Any) -> None:
    asked = agent(call("route"), "done", tools=[routed_tool(is_async=is_async)], offload={})

    answer = run(asked, "run_async", session=session)

    assert session.read(results_of(answer["messages"])[0]) == "routed"
    assert not is_bound()


@pytest.mark.case(106)
@pytest.mark.parametrize("way", ["run", "run_async"])
@pytest.mark.parametrize("limit", [1, 8])
def test_parallel_calls_of_one_step_all_see_their_session(limit: int, way: str, session: Any) -> None:
    asked = agent([call("route") for _ in range(8)], "done", tools=[routed_tool()], offload={})
    asked.tool_concurrency_limit = limit

    answer = run(asked, way, session=session)

    assert len({session.read(reference) for reference in results_of(answer["messages"])}) == 1
    assert session.usage().results == 8


def test_a_run_that_raises_leaves_nothing_bound(session: Any) -> None:
    def fails() -> str:
        assert is_bound()
        raise ValueError("no")

    tool = Tool(name="fails", description="Fails.", parameters=NOTHING, function=fails)
    asked = agent(call("fails"), "done", tools=[tool], offload={})
    asked.raise_on_tool_invocation_failure = True
    with ThreadPoolExecutor(max_workers=2) as pool:
        for _ in range(100):
            with pytest.raises(Exception, match="no"):
                pool.submit(asked.run, [ChatMessage.from_user("go")], hook_context=session.hook_context).result()
            assert not pool.submit(is_bound).result()
    assert not is_bound()


def test_a_cancelled_run_leaves_nothing_bound_and_its_closed_session_takes_nothing(session: Any) -> None:
    async def story() -> list[Any]:
        started, go_on = asyncio.Event(), asyncio.Event()
        outcomes: list[Any] = []

        async def waits() -> str:
            started.set()
            try:
                await go_on.wait()
            finally:
                outcomes.append(is_bound())
                session.close()
                try:
                    RoutedStore().write(key="late.txt", content="late")
                except SessionNotFound as error:
                    outcomes.append(type(error))
            return "never"

        tool = Tool(name="waits", description="Waits.", parameters=NOTHING, async_function=waits)
        asked = agent(call("waits"), "done", tools=[tool], offload={})
        running = asyncio.create_task(asked.run_async([ChatMessage.from_user("go")], hook_context=session.hook_context))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        outcomes.append(is_bound())
        return outcomes

    assert asyncio.run(story()) == [True, SessionNotFound, False]


def test_a_plain_executor_inside_a_tool_is_not_bound(session: Any) -> None:
    # The standard library does not pass context variables on there. Refusing is the only safe answer.
    def delegates() -> str:
        with ThreadPoolExecutor() as pool:
            return f"{pool.submit(is_bound).result()} {pool.submit(contextvars.copy_context().run, is_bound).result()}"

    tool = Tool(name="delegates", description="Delegates.", parameters=NOTHING, function=delegates)
    answer = run(agent(call("delegates"), "done", tools=[tool], offload={}), session=session)

    assert results_of(answer["messages"]) == ["False True"]


@pytest.mark.parametrize("way", ["run", "run_async"])
def test_another_sessions_handle_inside_a_bound_run_counts_as_none(
    way: str, session: Any, open_session: Any, events: Any
) -> None:
    other = open_session("u-other")
    inner = agent(
        call("fetch"),
        call("list_results"),
        "inner done",
        tools=[text_tool("fetch", "x" * 900)],
        offload={"*": AlwaysOffload()},
    )

    def smuggles() -> str:
        answer = inner.run(messages=[ChatMessage.from_user("go")], hook_context=other.hook_context)
        return "\n".join(results_of(answer["messages"]))

    tool = Tool(name="smuggles", description="Smuggles.", parameters=NOTHING, function=smuggles)
    answer = run(agent(call("smuggles"), "done", tools=[tool], offload={}), way, session=session)

    seen = results_of(answer["messages"])[0]
    assert seen.startswith("[Not stored: this run has no session")
    assert seen.endswith("so there are no stored results to read.")
    assert other.usage().results == session.usage().results == 0
    assert set(events.names) == {"foreign_session"}


def test_a_refusal_is_inherited_by_whatever_runs_inside_and_told_once(
    session: Any, open_session: Any, events: Any
) -> None:
    other = open_session("u-other")
    with bound(Binding(session)):
        assert session_of(state_with(other.hook_context)) is None
        refused = binding_of(state_with(other.hook_context))
        with bound(refused):
            assert session_of(state_with(other.hook_context)) is None
            assert session_of(state_with(session.hook_context)) is None
            assert session_of(state_with({})) is None
    assert events.names == ["foreign_session"]
    assert events.records[0].session == session.scope.short_hash


def test_a_handle_of_the_same_scope_is_the_same_session(session: Any, open_session: Any) -> None:
    again = open_session("u-1")
    with bound(Binding(session)):
        assert session_of(state_with(again.hook_context)) is again
        assert session_of(state_with({})) is session


def test_an_unbound_run_may_open_a_session_inside(session: Any) -> None:
    with bound(Binding()):
        assert session_of(state_with(session.hook_context)) is session


@pytest.mark.case(108)
def test_a_session_used_inside_a_bound_tool_is_its_own_and_the_outer_one_comes_back(
    session: Any, open_session: Any
) -> None:
    other = open_session("u-other")
    inner = agent(call("route"), "inner", tools=[routed_tool()], offload={})
    references: list[str] = []

    def nests() -> str:
        references.append(results_of(other.run(inner, [ChatMessage.from_user("go")])["messages"])[0])
        references.append(RoutedStore().write(key="outer.txt", content="outer"))
        return "ok"

    async def nests_async() -> str:
        answer = await other.run_async(inner, [ChatMessage.from_user("go")])
        references.append(results_of(answer["messages"])[0])
        references.append(RoutedStore().write(key="outer.txt", content="outer"))
        return "ok"

    tool = Tool(name="nests", description="Nests.", parameters=NOTHING, function=nests, async_function=nests_async)
    outer = agent(call("nests"), "done", tools=[tool], offload={})
    run(outer, "run", session=session)
    run(outer, "run_async", session=session)

    assert [other.read(references[0]), other.read(references[2])] == ["routed", "routed"]
    assert [session.read(references[1]), session.read(references[3])] == ["outer", "outer"]


def test_an_unbound_context_leaves_the_callers_alone(session: Any) -> None:
    with bound(Binding(session)):
        assert not unbound_context().run(is_bound)
        assert is_bound()


JUNK = [None, "text", 3, {}, FileSystemToolResultStore("nowhere")]


@pytest.mark.parametrize("junk", JUNK, ids=["none", "text", "number", "empty", "foreign"])
def test_what_is_no_handle_of_ours_counts_as_absent(junk: Any, session: Any) -> None:
    context = {RESULT_STORE_CONTEXT_KEY: junk}
    assert session_of(state_with(context)) is None
    with bound(Binding(session)):
        assert session_of(state_with(context)) is session


@pytest.mark.case(142)
def test_a_handle_that_comes_back_from_its_serialised_form_refuses_everything(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tenancy")
    serialised = state_with(session.hook_context).to_dict()
    assert session.scope.user not in repr(serialised)
    revived = State.from_dict(serialised)
    store = revived.data["hook_context"][RESULT_STORE_CONTEXT_KEY]

    with bound(Binding(session)):
        assert session_of(revived) is None
    with pytest.raises(NoActiveSession):
        store.write(key="x", content="x")
    with pytest.raises(NoActiveSession):
        store.read("x")
    assert repr(store) == "SessionStore(revived)"


@pytest.mark.case(43)
def test_a_handle_is_never_copied_pickled_or_shown(session: Any) -> None:
    store = session.store
    assert copy.copy(store) is store
    assert copy.deepcopy({"deep": [store]})["deep"][0] is store
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(store, protocol)
    assert store.to_dict() == {"type": "tenancy.seam.binding.SessionStore", "init_parameters": {}}
    assert repr(store) == f"SessionStore({session.scope.short_hash})"
    assert session.store.read(session.store.write(key="a.txt", content=b"\x00ab")) == b"\x00ab"


def test_a_bound_copy_keeps_what_haystack_looks_at(session: Any) -> None:
    def takes_state(state: State, word: str) -> str:
        return word

    async def takes_state_async(state: State, word: str) -> str:
        return word

    tool = Tool(name="t", description="d", parameters=NOTHING, function=takes_state, async_function=takes_state_async)
    copied = bind_tool(tool, binding=Binding(session), state=state_with({}))

    assert tool.function is takes_state
    assert inspect.signature(copied.function) == inspect.signature(takes_state)
    assert inspect.iscoroutinefunction(copied.async_function)
    assert not inspect.iscoroutinefunction(copied.function)
    assert copied.tool_spec == tool.tool_spec


def test_binding_twice_is_binding_once_and_a_strangers_wrapper_stays(session: Any) -> None:
    calls: list[str] = []
    tool = routed_tool()
    once = bind_tool(tool, binding=Binding(session), state=state_with({}))
    twice = bind_tool(once, binding=Binding(session), state=state_with({}))
    assert inspect.unwrap(twice.function) is twice.function.__wrapped__ is tool.function

    @functools.wraps(once.function)
    def stranger() -> str:
        calls.append("stranger")
        return once.function()

    once_more = copy.copy(once)
    once_more.function = stranger
    bind_tool(once_more, binding=Binding(session), state=state_with({})).function()
    assert calls == ["stranger"]


@pytest.mark.case(117)
def test_read_tools_stay_recognisable_when_bound(session: Any) -> None:
    tools: list[Tool] = list(SessionToolset())
    state = state_with(session.hook_context, tools)
    SessionBindingHook().run(state)
    assert all(type(tool) is ReadTool for tool in state.data["tools"])
    assert state.data["tools"] is tools


def _component_agent() -> Agent:
    return Agent(chat_generator=model("done"))


def test_only_what_leads_to_an_agent_is_forgeable() -> None:
    wanted = {"hook_context", "tools", "generation_kwargs"}
    assert forgeable_inputs(sub_agent_tool(_component_agent())._component) == wanted
    assert forgeable_inputs(ComponentTool(_component_agent(), name="c", description="c")._component) == wanted
    pipeline = piped(_component_agent())
    pipeline.add_component("llm", model("done"))
    tool = PipelineTool(
        pipeline=pipeline,
        name="p",
        description="p",
        input_mapping={
            "messages": ["agent.messages", "llm.messages"],
            "context": ["agent.hook_context"],
            "tools": ["agent.tools"],
            "kwargs": ["llm.generation_kwargs"],
        },
        output_mapping={"agent.last_message": "answer"},
        parameters=NOTHING,
    )
    assert forgeable_inputs(tool._component) == {"context", "tools"}
    nested = PipelineTool(
        pipeline=piped(tool._component),
        name="n",
        description="n",
        input_mapping={"messages": ["agent.messages"], "inner": ["agent.context"]},
        output_mapping={"agent.answer": "answer"},
        parameters=NOTHING,
    )
    assert forgeable_inputs(nested._component) == {"inner"}
    assert forgeable_inputs(routed_tool()) == set()


@pytest.mark.case(105)
def test_what_the_developer_takes_from_the_state_wins_over_the_model(session: Any) -> None:
    seen: list[Any] = []

    def watch(messages: list[ChatMessage], tools: Any = None) -> str:
        seen.append([tool.name for tool in tools or []])
        return "inner"

    inner = Agent(chat_generator=model(lambda m: "inner"), tools=[routed_tool(), routed_tool(name="other")])
    inner.chat_generator.response_fn, inner.chat_generator._response_fn_wants_tools = watch, True
    tool = ComponentTool(
        inner, name="delegate", description="d", inputs_from_state={"allowed": "tools"}, parameters=NOTHING
    )
    outer = Agent(
        chat_generator=model(
            call("delegate", messages=[ChatMessage.from_user("x").to_dict()], tools=[], generation_kwargs={"n": 9}),
            "done",
        ),
        tools=[tool],
        state_schema={"allowed": {"type": list[str]}},
        hooks=session_hooks(offload={}),
    )

    answer = outer.run(messages=[ChatMessage.from_user("go")], allowed=["route"], hook_context=session.hook_context)

    assert answer["last_message"].text == "done"
    assert seen == [["route"]]


def test_everything_else_a_model_may_choose_and_what_the_state_lacks_is_not_given() -> None:
    seen: list[dict[str, Any]] = []
    tool = ComponentTool(
        Agent(chat_generator=model("inner")),
        name="delegate",
        description="d",
        inputs_from_state={"allowed": "tools", "missing": "generation_kwargs", "said": "messages"},
        parameters=NOTHING,
    )
    tool.function = lambda **arguments: seen.append(arguments)
    schema = {"allowed": {"type": list}, "missing": {"type": dict}, "said": {"type": list}}
    state = State(schema, {"allowed": ["route"], "said": ["what the state says"]})

    function = bind_tool(tool, binding=Binding(), state=state).function
    assert function is not None
    function(messages=["what the model says"], tools=["every one"], generation_kwargs={"n": 9})

    assert seen == [{"messages": ["what the model says"], "tools": ["route"]}]


def test_other_tools_keep_their_arguments_of_those_names(session: Any) -> None:
    def takes(hook_context: str, tools: str, generation_kwargs: str) -> str:
        return f"{hook_context} {tools} {generation_kwargs}"

    tool = Tool(name="takes", description="Takes.", parameters=NOTHING, function=takes)
    asked = agent(call("takes", hook_context="a", tools="b", generation_kwargs="c"), "done", tools=[tool], offload={})

    assert results_of(run(asked, session=session)["messages"]) == ["a b c"]
