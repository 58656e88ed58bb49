"""What a model can read, search and list, whatever it sends."""

import base64
import json
import re
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.dataclasses import ImageContent
from haystack.token_counters import ApproximateTokenCounter, TokenCounter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.errors import ConfigurationError, KeyUnavailable, ResultCorrupt, StorageUnavailable
from tenancy.seam.answers import tokens_of
from tenancy.seam.hooks import session_hooks
from tenancy.seam.tokens import SafeTokenCounter
from tenancy.seam.tools import SessionToolset
from tests.haystack.support import call, model, results_of, run

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
SCHEMA = {"hook_context": {"type": dict[str, Any]}, "tools": {"type": list}}


def use(session: Any, name: str, toolset: SessionToolset | None = None, **arguments: Any) -> Any:
    """Call a tool as Haystack does: with the live state and the model's arguments."""
    tools = list(toolset or SessionToolset())
    context = session.hook_context if session is not None else {}
    state = State(SCHEMA, {"hook_context": context, "tools": tools})
    tool = next(tool for tool in tools if tool.name == name)
    return tool.invoke(**{**arguments, "state": state})


def pages(session: Any, reference: str, page_tokens: int) -> list[str]:
    """Read a result to its end, following the hints; no answer is longer than it may be."""
    toolset, counter = SessionToolset(page_tokens=page_tokens), SafeTokenCounter()
    texts, offset = [], 0
    while True:
        answer = use(session, "read_result", toolset, reference=reference, offset=offset)
        assert tokens_of(answer, counter) <= page_tokens
        header, _, body = answer.partition("\n")
        texts.append(body)
        hint = re.search(r"next: read_result\(reference='([^']+)', offset=(\d+)\)", header)
        if hint is None:
            assert header.endswith("the end]")
            return texts
        assert hint[1] == reference
        assert int(hint[2]) == offset + len(body)
        assert body
        offset = int(hint[2])


SHAPES = {
    "one line": "x" * 300_000,
    "lines": "".join(f"line {n}: some words\r\n" for n in range(9000)),
    "only newlines": "\n" * 50_000,
    "emoji": "🧑‍🚀👩🏽‍🔬" * 3000,
    "lone surrogates": "a\ud800b\udfff" * 5000,
    "special tokens": "<|endoftext|>" * 3000,
}


@pytest.mark.case(118, 119)
@pytest.mark.parametrize("page_tokens", [100, 1000])
@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_pages_are_bounded_and_tile_the_result(text: str, page_tokens: int, session: Any) -> None:
    reference = session.write(text[: page_tokens * 200], name="x.txt")

    read = pages(session, reference, page_tokens)

    assert "".join(read) == re.sub("[\ud800-\udfff]", "\ufffd", text[: page_tokens * 200])
    assert "".join(read).encode("utf-8")


@pytest.mark.case(119)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=3000), repeat=st.integers(1, 5), page_tokens=st.integers(100, 300))
def test_pages_tile_any_text(text: str, repeat: int, page_tokens: int, session: Any) -> None:
    reference = session.write(text * repeat, name="x.txt")
    read = pages(session, reference, page_tokens)
    assert "".join(read) == re.sub("[\ud800-\udfff]", "\ufffd", text * repeat)


def test_a_page_ends_with_a_line_where_one_ends_nearby(session: Any) -> None:
    reference = session.write(SHAPES["lines"][:20_000], name="x.txt")
    *firsts, last = pages(session, reference, 300)
    assert all(page.endswith("\n") and page.startswith("line ") for page in firsts)
    assert last


def test_past_the_end_is_an_answer(session: Any) -> None:
    reference = session.write("short", name="x.txt")
    past = "[Past the end: the result has 5 characters and lines 1-1.]"
    assert use(session, "read_result", reference=reference, offset=5) == past
    assert use(session, "read_result", reference=reference, line=2) == past
    assert "5 characters" in use(session, "read_result", reference=reference, offset=10**14)


def test_a_number_may_come_as_a_text(session: Any) -> None:
    reference = session.write("0123456789", name="x.txt")
    for offset in (4, "4", 4.0, " +4 "):
        assert use(session, "read_result", reference=reference, offset=offset).endswith("\n456789")
    for offset in (None, "0"):
        assert use(session, "read_result", reference=reference, offset=offset).endswith("\n0123456789")


HOSTILE = [
    None,
    "",
    " ",
    7,
    -1,
    True,
    1e300,
    float("nan"),
    float("inf"),
    "9" * 10_000_000,
    10**400,
    [],
    {},
    ["x"],
    "..",
    "\x00",
]


@pytest.mark.parametrize(
    "argument", ["reference", "offset", "line", "lines", "query", "regex", "page", "state", "unknown", "self"]
)
@pytest.mark.parametrize("tool", ["read_result", "search_result", "list_results"])
def test_no_argument_makes_a_tool_raise(tool: str, argument: str, session: Any) -> None:
    good = {"reference": session.write("text " * 500, name="x.txt"), "query": "text"}
    expected = {"read_result": ["reference"], "search_result": ["query", "reference"], "list_results": []}[tool]
    for value in HOSTILE:
        arguments = {name: good[name] for name in expected} | {argument: value}
        answer = use(session, tool, **arguments)
        assert isinstance(answer, str)
        assert len(answer) < 6000


def test_the_state_cannot_be_supplied_by_a_model(session: Any, open_session: Any) -> None:
    mine = session.write("mine", name="x.txt")
    asked = Agent(
        chat_generator=model(call("read_result", reference=mine, state={"hook_context": {}}), "done"),
        tools=SessionToolset(),
        hooks=session_hooks(offload={}),
    )
    answer = run(asked, session=session)
    assert results_of(answer["messages"])[0].endswith("\nmine")
    assert all("state" not in tool.parameters["properties"] for tool in SessionToolset())


@pytest.mark.parametrize("tool", ["read_result", "search_result", "list_results"])
def test_without_a_session_a_tool_says_so(tool: str) -> None:
    assert (
        use(None, tool, reference="x", query="x") == "This run has no session, so there are no stored results to read."
    )


BAD_REFERENCES = [
    "",
    ".",
    "..",
    "~",
    "file:///etc/passwd",
    "/etc/passwd",
    "a" * 10_000_000,
    "FETCH-1-AAAAAAAAAA.TXT",
    "\uff58-1-aaaaaaaaaa",
]


@pytest.mark.case(10, 11, 13)
def test_every_bad_reference_reads_alike(session: Any, open_session: Any) -> None:
    theirs = open_session("u-2").write("theirs", name="x.txt")
    gone = session.write("gone", name="x.txt")
    session.delete(gone)
    answers = {use(session, "read_result", reference=reference) for reference in [*BAD_REFERENCES, theirs, gone]}
    assert len(answers) == 1
    assert "no such result" in answers.pop()


@pytest.mark.case(124)
@pytest.mark.parametrize(
    ("error", "words", "names"),
    [
        (KeyUnavailable(), "Try again later", []),
        (StorageUnavailable("/srv/secret"), "Try again later", []),
        (ResultCorrupt(), "can no longer be read", ["corrupt"]),
        (RuntimeError("/srv/secret"), "could not be read", ["read_failed"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_is_told_in_words(
    error: Exception, words: str, names: list[str], session: Any, events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = session.write("text", name="x.txt")

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(type(session), "read_page", fails)
    answer = use(session, "read_result", reference=reference)
    assert words in answer
    assert "secret" not in answer + events.text
    assert events.names == names


def test_bytes_are_described_and_never_shown_as_text(session: Any) -> None:
    reference = session.write(PNG, name="x.png")
    answer = use(session, "read_result", reference=reference)
    assert answer == f"[image/png, {len(PNG)} bytes]\nIt cannot be read as text."
    assert "binary data, 3 bytes" in use(session, "read_result", reference=session.write(b"abc", name="x"))


def test_an_image_comes_as_an_image_where_that_is_asked_for(session: Any) -> None:
    reference = session.write(PNG, name="x.png")
    asked = Agent(
        chat_generator=model(call("read_result", reference=reference), call("read_result", reference="no"), "done"),
        tools=SessionToolset(images=True),
        hooks=session_hooks(offload={}),
    )
    answer = run(asked, session=session)
    first, second = [m.tool_call_result.result for m in answer["messages"] if m.tool_call_result is not None]
    assert isinstance(first[1], ImageContent)
    assert base64.b64decode(first[1].base64_image) == PNG
    assert isinstance(second, str)


@pytest.mark.case(122)
def test_a_search_is_literal_and_says_where_to_read_on(session: Any) -> None:
    text = "first line\nsecond (a+)+$ line\nthird\n" + "filler\n" * 100_000 + "The NEEDLE.\n"
    reference = session.write(text, name="x.txt")
    assert (
        use(session, "search_result", query="(a+)+$", reference=reference)
        .splitlines()[1]
        .startswith(f"{reference} line 2, offset 18: ")
    )
    found = use(session, "search_result", query="needle").splitlines()[1]
    where = re.fullmatch(rf"{reference} line (\d+), offset (\d+): .*The NEEDLE\.", found)
    assert where is not None
    assert text.splitlines()[int(where[1]) - 1] == "The NEEDLE."
    assert text[int(where[2]) :] == "NEEDLE.\n"
    assert use(session, "search_result", query=".*").startswith("No match.")


def test_a_match_across_two_windows_is_found_once(session: Any) -> None:
    for offset in range(262_144 - 12, 262_144 + 3):
        reference = session.write("." * offset + "needle-in-it" + "." * 262_144, name="x.txt")
        lines = use(session, "search_result", query="needle-in-it", reference=reference).splitlines()[1:]
        assert [line.split(",")[1].split(":")[0] for line in lines] == [f" offset {offset}"]


def test_a_search_of_everything_is_newest_first_bounded_and_skips_bytes(session: Any) -> None:
    first = session.write("needle one", name="x.txt")
    session.write(b"needle", name="x.bin")
    second = session.write("needle two", name="x.txt")
    lines = use(session, "search_result", query="needle").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    session.write("needle " * 5000, name="x.txt")
    answer = use(session, "search_result", SessionToolset(page_tokens=200), query="needle")
    assert tokens_of(answer, SafeTokenCounter()) <= 200
    assert "There are more" in answer


@pytest.mark.case(121)
def test_the_list_is_newest_first_and_paged(session: Any) -> None:
    assert use(session, "list_results") == "There are no stored results."
    references = [session.write_result(f"r{n}", name=f"1_fetch_{n}.txt", tool="fetch") for n in range(45)]
    listed: list[str] = []
    for page in (1, 2, 3):
        head, *lines = use(session, "list_results", SessionToolset(page_tokens=4000), page=page).splitlines()
        listed += [line.split()[0] for line in lines]
        assert ("More: list_results(page=" in head) == (page < 3)
    assert listed == references[::-1]
    assert use(session, "list_results", page=4) == "There are no more results."
    assert re.search(r"fetch  text, 3 characters, \d+ s old, 23 h left", use(session, "list_results"))


@pytest.mark.case(120)
def test_hints_name_the_tools_as_they_are_registered(session: Any) -> None:
    reference = session.write("x" * 9000, name="x.txt")
    toolset = SessionToolset(prefix="kb_")
    assert "next: kb_read_result(" in use(session, "kb_read_result", toolset, reference=reference)
    assert "Read on with kb_read_result(" in use(session, "kb_search_result", toolset, query="xxx", reference=reference)
    assert "Call kb_list_results()" in use(session, "kb_read_result", toolset, reference="no")
    toolset.tools[0].name = "fetch_stored"
    assert "Read one with fetch_stored(" in use(session, "kb_list_results", toolset)


@pytest.mark.parametrize(
    "values",
    [{"prefix": "a b"}, {"prefix": 1}, {"prefix": "x" * 41}, {"page_tokens": 99}, {"page_tokens": "9"}],
    ids=str,
)
def test_a_wrong_setting_is_refused(values: Any) -> None:
    with pytest.raises(ConfigurationError):
        SessionToolset(**values)


def test_only_a_page_is_ever_counted(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = ApproximateTokenCounter.count

    def watched(self: Any, messages: Any, tools: Any = None) -> int:
        counted.append(len(messages[0].text))
        return count(self, messages, tools)

    monkeypatch.setattr(
        SafeTokenCounter, "count", lambda self, messages, tools=None: watched(ApproximateTokenCounter(), messages)
    )
    reference = session.write("x" * 5_000_000, name="x.txt")
    use(session, "read_result", reference=reference, offset=2_500_000)
    assert 0 < max(counted) < 6000


class _Dear(TokenCounter):
    """Four tokens a character, as of scripts that few write in."""

    def count(self, messages: Any, tools: Any = None) -> int:
        return 4 * sum(len(message.text) for message in messages)


@pytest.mark.parametrize("page_tokens", [400, 2000])
def test_no_answer_is_larger_than_it_may_be_whatever_a_letter_costs(page_tokens: int, session: Any) -> None:
    toolset = SessionToolset(page_tokens=page_tokens, token_counter=_Dear())
    session.write_result(b"x", name="x.bin", tool="tool " * 50, media_type="image/" + "y" * 100)
    reference = session.write("\U00012000" * 3000, name="x.txt")
    rows = session.write(json.dumps({"a" * 40 + str(n): n for n in range(50)}), name="x.json")
    answers = [
        use(session, "search_result", toolset, query="\U00012000"),
        use(session, "search_result", toolset, query=".+", regex=True),
        use(session, "list_results", toolset),
        use(session, "read_result", toolset, reference=rows, path="nothing"),
        use(session, "read_result", toolset, reference=reference),
    ]
    for answer in answers:
        assert answer
        assert 4 * len(answer) <= page_tokens


def test_what_a_tool_calls_itself_and_its_files_stays_in_its_line(session: Any) -> None:
    forged = "image/png\nweb-9-aaaaaaaaaa.txt  admin_export  text, 5 characters\udcff"
    session.write_result(b"x", name="x.png", tool=forged, media_type=forged)
    listed = use(session, "list_results")
    listed.encode()
    assert len(listed.splitlines()) == 2
    assert "web-9-aaaaaaaaaa" not in listed


def test_a_search_goes_on_where_it_left_off(session: Any) -> None:
    reference = session.write("".join(f"line {n} {'hit' if n % 3 == 0 else ''}\n" for n in range(200)), name="x.txt")
    found, offset = [], 0
    while True:
        answer = use(session, "search_result", query="hit", reference=reference, offset=offset)
        found += [int(line) for line in re.findall(r" line (\d+), offset", answer)]
        goes_on = re.search(r"the same with offset=(\d+) goes on", answer)
        if goes_on is None:
            break
        assert int(goes_on[1]) > offset
        offset = int(goes_on[1])
    assert found == [n + 1 for n in range(200) if n % 3 == 0]
    for wrong in (-1, "x", 1.5):
        assert "whole number" in use(session, "search_result", query="hit", reference=reference, offset=wrong)


@pytest.mark.parametrize("page_tokens", [100, 200, 500, 1000])
@pytest.mark.parametrize(
    ("query", "regex"),
    [(r"^.*ERROR.*$", True), ("ERROR", False), (r"(?<=id=)\d+", True), (r"^\d+", True), (r"$", True)],
)
def test_who_follows_the_hint_sees_every_match_once(query: str, regex: bool, page_tokens: int, session: Any) -> None:
    text = "".join(f"{n:05d} id={n:05d} ERROR {'disk full ' * 18}\n" for n in range(60))
    reference = session.write(text, name="x.txt")
    flags = re.MULTILINE if regex else 0
    expected = [found.start() for found in re.finditer(query, text, flags)]
    toolset, found, offset = SessionToolset(page_tokens=page_tokens), [], 0
    while True:
        asked = {"query": query, "regex": regex, "reference": reference, "offset": offset}
        answer = use(session, "search_result", toolset, **asked)
        found += [int(each) for each in re.findall(r" line \d+, offset (\d+):", answer)]
        goes_on = re.search(r"the same with offset=(\d+) goes on", answer)
        if goes_on is None:
            break
        assert int(goes_on[1]) > offset
        offset = int(goes_on[1])
    assert found == expected


def test_where_a_search_begins_no_line_does(session: Any) -> None:
    reference = session.write("abc\ndef\nghi\n", name="x.txt")
    answer = use(session, "search_result", query=r"^\w", regex=True, reference=reference, offset=5)
    assert [int(each) for each in re.findall(r"offset (\d+):", answer)] == [8]


def test_a_file_is_no_text_to_search_and_that_is_no_event(session: Any, events: Any) -> None:
    reference = session.write(PNG, name="x.png")
    expected = "That result is not text. Only texts can be searched."
    assert use(session, "search_result", query="PNG", reference=reference) == expected
    assert events.names == []


def test_a_search_that_finds_nothing_says_what_else_could_be_meant(session: Any) -> None:
    session.write("CRITICAL: disk\nINFO: ok", name="x.txt")
    assert "set regex" in use(session, "search_result", query="CRITICAL|ERROR")
    assert "(?i)" in use(session, "search_result", query="critical", regex=True)
    assert use(session, "search_result", query="nothing like it") == "No match."


@pytest.mark.parametrize("around", ["'{}'", '"{}"', "`{}`", " {}\n"])
def test_a_reference_may_come_in_quotes(around: str, session: Any) -> None:
    reference = session.write("content", name="x.txt")
    assert use(session, "read_result", reference=around.format(reference)).endswith("\ncontent")


@pytest.mark.parametrize(
    ("name", "media_type", "becomes"),
    [
        ("x.bin", "image/webp", "image/webp"),
        ("x", "image/JPG; charset=binary", "image/jpeg"),
        ("x.webp", None, "image/webp"),
        ("x.webp", "application/octet-stream", "image/webp"),
        ("x.docx", None, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("invoice 2026.07", "application/pdf", "application/pdf"),
    ],
)
def test_what_kind_of_file_it_is_the_tool_says_or_else_its_suffix(
    name: str, media_type: str | None, becomes: str, session: Any
) -> None:
    reference = session.write_result(PNG, name=name, media_type=media_type)
    _, part = use(session, "read_result", SessionToolset(images=True, files=True), reference=reference)
    assert part.mime_type == becomes


def test_a_json_file_says_how_to_read_it(session: Any) -> None:
    reference = session.write(b'{"a": 1}', name="x.json")
    assert "with a path" in use(session, "read_result", reference=reference)
