"""What leaves the conversation is read back in bounded pages and stays read back. What cannot leave it is told."""

import base64
import inspect
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import FileContent, ImageContent, TextContent
from haystack.hooks.tool_result_offloading import AlwaysOffload
from hypothesis import example, given
from hypothesis import strategies as st

from stores.errors import StoreDenied, StoreFull, StoreUnavailable
from tenancy.manager import SessionManager
from tenancy.quotas import Limits
from tenancy.seam.hooks import session_hooks
from tenancy.seam.offload import OnFailure
from tenancy.seam.scanning import folded
from tenancy.seam.tools import SessionToolset
from tenancy.session import Session
from tests.core.interposed import interpose
from tests.haystack.conftest import Events
from tests.haystack.support import agent, call, model, parts_tool, results_of, run, text_tool
from tests.haystack.test_tools import pages, use

ALWAYS = {"*": AlwaysOffload()}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
MEGABYTE = 1_000_000


@pytest.mark.case(117)
@pytest.mark.parametrize("way", ["run", "run_async"])
def test_what_is_read_back_stays_read_back_whatever_its_tool_is_called(way: str, session: Session) -> None:
    reference = session.write("stored " * 3000, name="a.txt")
    toolset = SessionToolset(prefix="kb_", page_tokens=500)
    toolset.tools[1].name = "look_into"
    reading = Agent(
        chat_generator=model(
            *[call("kb_read_result", reference=reference, offset=n * 1000) for n in range(4)],
            [
                call("kb_read_result", reference=reference),
                call("look_into", query="stored"),
                call("kb_list_results"),
            ],
            "done",
        ),
        tools=[toolset],
        hooks=session_hooks(offload=ALWAYS, context_window=1500),
    )

    answer = run(reading, way, session=session)

    *old, page, found, listed = results_of(answer["messages"])
    # The compactor has been at work all along, and took away what it must not store.
    assert any(text.startswith("[Removed to free up context. It is still stored: kb_read_result(") for text in old)
    assert "stored stored" in page
    assert f"{reference} line 1" in found
    assert reference in listed
    assert [result.reference for result in session.results()] == [reference]


@pytest.mark.case(118)
def test_a_line_of_a_megabyte_is_read_in_a_bounded_number_of_bounded_pages(session: Session) -> None:
    for letter in ("x", "🧑"):
        line = "".join(f"{n}{letter}" for n in range(MEGABYTE))[:MEGABYTE]
        reference = session.write(line, name="x.txt")

        read = pages(session, reference, 2000)

        assert "".join(read) == line
        assert len(read) <= 600


def _json(name: str, value: Any) -> Any:
    tool = text_tool(name, "")
    tool.function = lambda topic="": value
    return tool


_IMAGE = ImageContent(base64_image=base64.b64encode(PNG).decode(), mime_type="image/png", validation=False)
_FILE = FileContent(base64_data=base64.b64encode(b"%PDF").decode(), mime_type="application/pdf", validation=False)
#: A tool, and what it is stored as: one content for each part that leaves the conversation.
RETURNS: dict[str, tuple[Any, list[str | bytes]]] = {
    "a str": (text_tool("t", "text"), ["text"]),
    "a list": (_json("t", ["a", "b", 3]), ['["a", "b", 3]']),
    "a dict": (_json("t", {"a": {"b": None}}), ['{"a": {"b": null}}']),
    "an image": (parts_tool("t", [_IMAGE]), [PNG]),
    "a text, two images and a file": (
        parts_tool("t", [TextContent(text="text"), _IMAGE, _IMAGE, _FILE]),
        ["text", PNG, PNG, b"%PDF"],
    ),
}


@pytest.mark.case(123)
def test_each_part_that_leaves_the_conversation_is_stored_once(manager: SessionManager) -> None:
    for number, (returns, (tool, contents)) in enumerate(RETURNS.items()):
        with manager.session(tenant="acme", user="u", session=f"s{number}") as session:
            run(agent(call("t"), "done", tools=[tool], offload=ALWAYS), session=session)
            stored = [session.read(result.reference) for result in session.results()]
            assert stored == contents[::-1], returns


#: What breaks a manager for a tenant, and what the model is told of it.
FAILURES: dict[str, tuple[Callable[[SessionManager, str], None], str]] = {
    "quota": (
        lambda manager, tenant: manager.set_limits(Limits(tenant_bytes=0), tenant=tenant),
        "the storage limit is reached",
    ),
    "too large": (
        lambda manager, tenant: manager.set_limits(Limits(max_result_bytes=10), tenant=tenant),
        "one may have 10",
    ),
    "disk full": (lambda manager, _: _break(manager, StoreFull("/srv/disk")), "the storage is full"),
    "access denied": (lambda manager, _: _break(manager, StoreDenied("/srv/disk")), "the storage does not answer"),
    "store down": (lambda manager, _: _break(manager, StoreUnavailable("/srv/disk")), "the storage does not answer"),
    "database down": (
        lambda manager, _: manager._backend.catalogue.database.close(),
        "the storage does not answer",
    ),
    "key service down": (lambda manager, _: manager._backend.keyring.close(), "the key service does not answer"),
}


def _break(manager: SessionManager, error: Exception) -> None:
    def before(operation: str, _: str) -> None:
        if operation == "put":
            raise error

    interpose(manager).before = before


@pytest.mark.case(124)
@pytest.mark.parametrize("policy", get_args(OnFailure))
def test_whatever_fails_is_told_in_a_bounded_notice_or_as_the_policy_says(
    policy: Any, make_manager: Callable[..., SessionManager], events: Events
) -> None:
    text = "canary-content " * 3000
    for number, (failure, (breaks, why)) in enumerate(FAILURES.items()):
        manager = make_manager(durability="process")
        session = manager.session(tenant=f"canary-{number}", user="canary-user", session="chat")
        breaks(manager, f"canary-{number}")
        events.records.clear()
        asked = agent(call("fetch"), "done", tools=[text_tool("fetch", text)], offload=ALWAYS, on_failure=policy)

        answer = run(asked, session=session)

        (seen,) = results_of(answer["messages"])
        assert (seen == text) == (policy == "keep"), failure
        if policy != "keep":
            assert seen.startswith("[Not stored: "), failure
            assert why in seen.partition("\n")[0], failure
            assert len(seen) < 2000, failure
        assert answer["exit_reason"] == ("result_not_stored" if policy == "stop" else "text"), failure
        assert events.names == ["not_stored"], failure
        assert "/srv/disk" not in seen + events.text, failure
        assert "canary-" not in events.text, failure
    with make_manager(durability="process") as another:
        assert [another.usage(tenant=f"canary-{number}").results for number in range(len(FAILURES))] == [0] * 7


@pytest.mark.case(124)
def test_the_policy_is_a_notice_unless_somebody_says_otherwise_and_the_documentation_says_so() -> None:
    assert inspect.signature(session_hooks).parameters["on_failure"].default == "notice"
    documented = inspect.getdoc(session_hooks) or ""
    assert all(f'`"{policy}"`' in documented for policy in get_args(OnFailure))


#: Texts and questions for which a regular expression or a naive search would take minutes.
HARD: dict[str, tuple[str, str]] = {
    "nested repetition": ("(a+)+$", "a" * MEGABYTE + "!"),
    "almost everywhere": ("a" * 500, ("a" * 499 + "b") * 8000),
    "almost, in two letters": ("Ab" * 250, ("aB" * 249 + "aa") * 8000),
    "almost, in another script": ("Ж" * 500, ("ж" * 499 + "з") * 4000),
}


@pytest.mark.case(122)
def test_no_question_and_no_text_make_a_search_slow(session: Session) -> None:
    for hard, (query, text) in HARD.items():
        reference = session.write(text, name="x.txt")

        started = time.thread_time()
        answer = use(session, "search_result", query=query, reference=reference)

        # Of this thread alone, so that a busy machine makes no difference. It takes hundredths of a second.
        assert time.thread_time() - started < 2, hard
        assert answer == "No match."


@given(st.text(max_size=50))
@example("İ")
@example("ΑΣ")
def test_ignoring_case_changes_no_length_and_no_part(text: str) -> None:
    alike = folded(text)
    assert len(alike) == len(text)
    # A part is folded as it is in the whole, or it would not be found in there.
    assert all(folded(text[:n]) + folded(text[n:]) == alike for n in range(len(text)))


def test_a_word_is_found_whatever_its_case_and_whatever_stands_around_it(session: Session) -> None:
    for word, query in [("ΟΔΟΣ", "οδος"), ("οδοσ", "ΟΔΟΣ"), ("İstanbul", "istanbul"), ("Straße", "STRAßE"), ("ǅ", "ǆ")]:
        reference = session.write(f"x{word}x", name="x.txt")
        for asked in (word, query):
            answer = use(session, "search_result", query=asked, reference=reference)
            assert "line 1, offset 1" in answer, asked
