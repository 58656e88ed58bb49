"""What leaves the conversation is read back in bounded pages and stays read back. What cannot leave it is told."""

import base64
import time
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import FileContent, ImageContent, TextContent
from haystack.hooks.tool_result_offloading import AlwaysOffload
from hypothesis import example, given
from hypothesis import strategies as st

from tenancy.manager import SessionManager
from tenancy.seam.hooks import session_hooks
from tenancy.seam.scanning import folded
from tenancy.seam.tools import SessionToolset
from tenancy.session import Session
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
    assert any(text.startswith("[Removed to free up context. Read it again with kb_read_result(") for text in old)
    assert "stored stored" in page
    assert f"{reference} line 1" in found
    assert reference in listed
    assert [result.reference for result in session.results()] == [reference]


@pytest.mark.case(118)
@pytest.mark.parametrize(
    ("chars", "page_tokens", "most"), [(MEGABYTE, 2000, 600), (5 * MEGABYTE, 9000, 700)], ids=["1 MB", "5 MB"]
)
def test_a_long_line_is_read_in_a_bounded_number_of_bounded_pages(
    chars: int, page_tokens: int, most: int, session: Session
) -> None:
    for letter in ("x", "🧑"):
        line = "".join(f"{n}{letter}" for n in range(MEGABYTE))[:chars]
        reference = session.write(line, name="x.txt")

        read = pages(session, reference, page_tokens)

        assert len(line) == chars
        assert "".join(read) == line
        assert len(read) <= most


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
        assert answer.startswith("No match.")


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
