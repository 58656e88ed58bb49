"""`--model`: the conversations are a real model's, and whatever depends on the script is still judged by the script."""

from pathlib import Path

import pytest
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.token_counters import ApproximateTokenCounter

from tenancy.demo.checks import CHECKS
from tenancy.demo.script import Script, latest_turn
from tests.demo.conftest import Run
from tests.demo.model_server import Mind, serving

SCRIPT = Script(ApproximateTokenCounter())
USAGE = {"usage": {"prompt_tokens": 100, "completion_tokens": 10}}


def diligent(messages: list[ChatMessage]) -> ChatMessage:
    """A model that does all it is asked to."""
    return SCRIPT.reply(messages, None)


def hasty(messages: list[ChatMessage]) -> ChatMessage:
    """A model that fetches the first document, reads one page and has had enough."""
    made = sum(len(message.tool_calls) for message in latest_turn(messages))
    if made > 1:
        return ChatMessage.from_assistant("That will do.", meta=dict(USAGE))
    answer = SCRIPT.reply(messages, None)
    return ChatMessage.from_assistant(answer.text, tool_calls=answer.tool_calls[:1], meta=dict(USAGE))


def silent(_messages: list[ChatMessage]) -> ChatMessage:
    """A model that uses no tools."""
    return ChatMessage.from_assistant("I would rather not.", meta=dict(USAGE))


def mistaken(messages: list[ChatMessage]) -> ChatMessage:
    """A model that fetches a document and then asks for what is not there."""
    answer = hasty(messages)
    if answer.tool_calls and answer.tool_calls[0].tool_name == "read_result":
        wrong = ToolCall("read_result", {"reference": "../../etc/passwd", "offset": "soon"}, id="call_1")
        return ChatMessage.from_assistant(None, tool_calls=[wrong], meta=dict(USAGE))
    return answer


@pytest.mark.parametrize("mind", [diligent, hasty, mistaken])
def test_every_check_holds_whatever_a_model_makes_of_the_task(run: Run, folder: Path, mind: Mind) -> None:
    with serving(mind) as server:
        ran = run("--input", folder, "--model", "some-model", "--base-url", server.url, "--output", "json")
    assert ran.code == 0, (ran.out, ran.err)
    assert ran.json["checks"] == dict.fromkeys(CHECKS, True)
    assert ran.json["figures"]["model"] == "some-model"
    assert ran.json["figures"]["results"] == (10 if mind is diligent else 6)
    assert {request["model"] for request in server.requests} == {"some-model"}
    # The script's own runs never reach the model, and nothing that is only for the demo does.
    assert all("demo_run" not in str(request) for request in server.requests)
    assert all("search_result" not in str(request["messages"]) for request in server.requests)


def test_a_model_that_uses_no_tools_shows_nothing(run: Run, folder: Path) -> None:
    with serving(silent) as server:
        ran = run("--input", folder, "--model", "m", "--base-url", server.url, "--output", "json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    for name in ("conversations_stay_small", "pages_equal_the_originals", "foreign_reference_is_not_found"):
        assert ran.json["checks"][name] is False
    assert ran.json["checks"]["quota_refusal_is_a_bounded_notice"] is True


def test_the_key_goes_to_the_server_and_nowhere_else(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with serving(hasty) as server:
        ran = run("--input", folder, "--model", "m", "--base-url", server.url, "--output", "json")
    assert ran.code == 0
    assert server.keys == {"Bearer sk-very-secret"}
    assert "very-secret" not in ran.out + ran.err


def test_a_server_of_ones_own_needs_no_key(run: Run, folder: Path) -> None:
    with serving(hasty) as server:
        assert run("--input", folder, "--model", "m", "--base-url", server.url).code == 0
    assert server.keys == {"Bearer none"}


def test_a_model_that_fails_is_named_as_what_failed(run: Run, folder: Path) -> None:
    with serving(silent, status=401) as server:
        ran = run("--input", folder, "--model", "m", "--base-url", server.url, "--output", "json")
    assert (ran.code, ran.json["checks"]) == (1, dict.fromkeys(CHECKS, False))
    assert "the conversations: " in ran.err
    assert "Traceback" not in ran.err
