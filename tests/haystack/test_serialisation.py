"""Agents with our hooks and tools are serialised and come back, without secrets and without a session."""

import json
import warnings
from typing import Any

import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.generators.chat.mock import MockChatGenerator
from haystack.core.errors import DeserializationError
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.tool_result_offloading import AlwaysOffload, NeverOffload, OffloadOverChars
from haystack.token_counters import ApproximateTokenCounter, TokenCounter
from haystack.tools import tool

from tenancy.errors import ConfigurationError
from tenancy.seam.answers import tokens_of
from tenancy.seam.hooks import session_hooks
from tenancy.seam.tools import ReadTool, SessionToolset
from tests.haystack.support import last_pointer, piped, results_of, run
from tests.haystack.test_tools import use


@tool
def fetch_page(topic: str) -> str:
    """Fetch a page."""
    return f"{topic} " * 500


class WordCounter(TokenCounter):
    """A counter of somebody's own."""

    def __init__(self, tokens_a_word: int) -> None:
        self.tokens_a_word = tokens_a_word
        self.is_warm = False

    def warm_up(self) -> None:
        self.is_warm = True

    def count(self, messages: list[ChatMessage], tools: Any = None) -> int:
        assert self.is_warm
        return self.tokens_a_word * sum(len((message.text or "").split()) for message in messages)

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, tokens_a_word=self.tokens_a_word)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "WordCounter":
        return default_from_dict(cls, data)


REPLIES = [
    ChatMessage.from_assistant(tool_calls=[ToolCall("fetch_page", {"topic": "x"})]),
    ChatMessage.from_assistant("done"),
]


@pytest.fixture(autouse=True)
def allowed_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    # What `allow_deserialization_module("tenancy")` does, for this test only. The tool of this file needs the second.
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tenancy,tests")


def _agent() -> Agent:
    offload = {"fetch_page": AlwaysOffload(), ("a", "b"): NeverOffload(), "*": OffloadOverChars(7)}
    parameters = {"type": "object", "properties": {"reference": {"type": "string"}}}
    single = ReadTool(name="fetch_stored", description="Reads.", parameters=parameters, page_tokens=200)
    return Agent(
        chat_generator=MockChatGenerator(REPLIES),
        tools=[
            fetch_page,
            SessionToolset(page_tokens=500, images=True, files=True, token_counter=WordCounter(2)),
            single,
        ],
        hooks=session_hooks(
            offload=offload,
            context_window=9000,
            preview_chars=50,
            on_failure="keep",
            token_counter=ApproximateTokenCounter(chars_per_token=3.0),
        ),
    )


@pytest.mark.case(75)
def test_an_agent_comes_back_the_same_and_works(session: Any) -> None:
    data = _agent().to_dict()
    again = Agent.from_dict(json.loads(json.dumps(data)))
    assert again.to_dict() == data

    answer = run(again, session=session)

    assert session.read(last_pointer(answer["messages"])) == "x " * 500
    assert len(results_of(answer["messages"])[0]) < 250


@pytest.mark.case(75)
def test_a_pipeline_comes_back_from_yaml_the_same_and_works(session: Any) -> None:
    text = piped(_agent()).dumps()
    again = Pipeline.loads(text)
    assert again.dumps() == text

    answer = again.run({"agent": {"messages": [ChatMessage.from_user("go")], "hook_context": session.hook_context}})

    assert session.read(last_pointer(answer["agent"]["messages"])) == "x " * 500


@pytest.mark.case(75, 142)
def test_nothing_of_a_session_is_in_what_is_serialised(session: Any) -> None:
    shared = _agent()
    run(shared, session=session)
    text = json.dumps(shared.to_dict()) + piped(_agent()).dumps()
    for secret in ("acme", "u-1", "SessionStore", session.scope.short_hash):
        assert secret not in text


def test_the_users_own_policies_are_what_is_serialised() -> None:
    hook = _agent().to_dict()["init_parameters"]["hooks"]["after_tool"][0]["init_parameters"]["hook"]
    assert hook["type"] == "haystack.hooks.tool_result_offloading.hooks.ToolResultOffloadHook"
    policies = hook["init_parameters"]["offload_strategies"]
    types = {name: policy["type"].rpartition(".")[2] for name, policy in policies.items()}
    assert types == {"fetch_page": "AlwaysOffload", '["a", "b"]': "NeverOffload", "*": "OffloadOverChars"}


@pytest.mark.case(75)
def test_a_loaded_agent_is_bound_to_nothing(manager: Any, session: Any, events: Any) -> None:
    again = Agent.from_dict(_agent().to_dict())
    answer = run(again)
    assert results_of(answer["messages"]) == ["x " * 500]
    assert session.usage().results == 0
    assert events.names == ["unbound"]


def test_modules_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _agent().to_dict()
    monkeypatch.delenv("HAYSTACK_DESERIALIZATION_ALLOWLIST")
    with pytest.raises(DeserializationError, match="allowlist"):
        Agent.from_dict(data)


def test_haystacks_warnings_about_compaction_are_not_our_users() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Agent.from_dict(_agent().to_dict())
        session_hooks(offload={}, context_window=10)
    assert caught == []


def test_answers_are_measured_by_a_counter_of_the_users_own(session: Any) -> None:
    reference = session.write("word " * 3000, name="x.txt")
    reading = Agent(
        chat_generator=MockChatGenerator(
            [ChatMessage.from_assistant(tool_calls=[ToolCall("read_result", {"reference": reference})]), REPLIES[-1]]
        ),
        tools=[SessionToolset(page_tokens=400, token_counter=WordCounter(4))],
        hooks=session_hooks(offload={"*": AlwaysOffload()}),
    )
    (page,) = results_of(run(reading, session=session)["messages"])
    # A hundred words, its first line included; by any other counter it would be some four hundred.
    assert 60 < len(page.split()) <= 100


@pytest.mark.parametrize("wrong", ["x", 5, WordCounter, lambda messages: 7])
def test_what_is_no_counter_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="token_counter"):
        SessionToolset(token_counter=wrong)


@pytest.mark.parametrize("answer", [None, "9", float("nan"), RuntimeError("secret")])
def test_a_counter_that_does_not_count_makes_no_result_unreadable(answer: Any, session: Any) -> None:
    class Broken(WordCounter):
        def count(self, messages: list[ChatMessage], tools: Any = None) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    reference = session.write("word " * 3000, name="x.txt")
    page = use(session, "read_result", SessionToolset(token_counter=Broken(1)), reference=reference)
    assert "word word" in page
    assert tokens_of(page, ApproximateTokenCounter()) <= 1000
