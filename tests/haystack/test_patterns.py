"""Regular expressions of a model's: found where they are, and never a danger to anybody else."""

import re
import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.seam import scanning
from tests.haystack.test_tools import use

#: Each takes a backtracking matcher without a bound longer than anybody waits, on the text beside it.
HARD = {
    "(a+)+$": "a" * 1_000_000 + "b",
    "(a|aa)+$": "a" * 1_000_000 + "b",
    "(a|a?)+$": "a" * 1_000_000 + "b",
    "(.*a){25}$": "a" * 1_000_000 + "b",
    "([a-zA-Z]+)*$": "a" * 1_000_000 + "!",
    r"(\w+\s?)*$": "word " * 200_000 + "!",
    "(a*)*b$": "a" * 1_000_000 + "c",
    "(x+x+)+y": "x" * 1_000_000,
    r"^(([a-z])+.)+[A-Z]([a-z])+$": "a" * 1_000_000,
    r"(a?){60}a{60}$": "a" * 1_000_000 + "b",
    "(?:a{1,1000}){1,1000}$": "a" * 1_000_000 + "b",
    r"(?i)(a|A|[aA])+\Z.": "aA" * 500_000,
}


@pytest.fixture
def database_kind() -> str:
    """What finds a pattern does not know where the text is from."""
    return "sqlite"


@pytest.fixture
def inline_bytes() -> int:
    """Nor how it was stored."""
    return 0


def offsets(answer: str) -> list[int]:
    return [int(offset) for offset in re.findall(r"line \d+, offset (\d+):", answer)]


@pytest.mark.parametrize("query", HARD)
def test_a_pattern_that_would_take_for_ever_is_stopped_within_a_second(query: str, session: Any) -> None:
    reference = session.write(HARD[query], name="x.txt")
    # Of this thread's own: how long somebody else's work keeps it waiting is not the question.
    began = time.thread_time()
    answer = use(session, "search_result", query=query, reference=reference, regex=True)
    assert time.thread_time() - began < 1
    assert "took too long" in answer or answer.startswith("No match.")


def test_other_threads_run_on_while_a_pattern_is_at_work(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = session.write(HARD["(a+)+$"], name="x.txt")
    search = scanning.Pattern._next
    at_work = threading.Event()

    def watched(pattern: scanning.Pattern, window: str, start: int) -> Any:
        at_work.set()
        try:
            return search(pattern, window, start)
        finally:
            at_work.clear()

    monkeypatch.setattr(scanning.Pattern, "_next", watched)
    answers: list[str] = []
    searching = threading.Thread(
        target=lambda: answers.append(use(session, "search_result", query="(a+)+$", regex=True, reference=reference))
    )
    searching.start()
    seen = []
    while searching.is_alive():
        if at_work.is_set():
            seen.append(time.monotonic())
    assert "took too long" in answers[0]
    # Held by the search, the interpreter would have come here for some thousandths of a second at its very end.
    assert seen[-1] - seen[0] > 0.1


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        (r"colou?r", "Colour color colour", [7, 13]),
        (r"(?i)colou?r", "Colour color colour", [0, 7, 13]),
        (r"^row \d+$", "row 1\nrow x\nrow 22\n", [0, 12]),
        (r"(?<=key=)\w+", "key=one, key=two", [4, 13]),
        (r"\bcat\b", "concatenate cat", [12]),
        (r"a\nb", "a\nb a\nb", [0, 4]),
        (r"x*", "yx", [0, 1, 2]),
        (r"\p{Lu}\w+", "ein Haus", [4]),
    ],
)
def test_matches_are_where_they_are(query: str, text: str, expected: list[int], session: Any) -> None:
    reference = session.write(text, name="x.txt")
    assert offsets(use(session, "search_result", query=query, reference=reference, regex=True)) == expected
    assert use(session, "search_result", query=query, reference=reference, regex="true").startswith("Read on")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.sampled_from("ab\n \U0001f600"), min_size=1, max_size=400),
    query=st.sampled_from([r"a+b", r"^a", r"b$", r"\ba", r"(?<=a)b", r"a\nb", r"[ab]{3}", r"(?<!a)b"]),
)
def test_windows_hide_no_match_and_show_none_twice(
    text: str, query: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_WINDOW_CHARS", 64)
    monkeypatch.setattr(scanning.Pattern, "overlap", 32)
    reference = session.write(text, name="x.txt")
    found = scanning.Scan(session, scanning.Pattern(query), one_only=True)
    expected = [match.start() for match in re.finditer(query, text, re.MULTILINE) if match.end() - match.start() < 16]
    shown = offsets("\n".join(found.matches(iter([reference]))))
    assert [offset for offset in shown if offset in expected] == expected
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("query", ["(", "[a", "a{2,1}", "(?P<x>a)(?P<x", "*", "(?<=a*b", "\\", "(" * 250 + ")" * 250])
def test_what_is_no_pattern_is_told_and_does_no_harm(query: str, session: Any) -> None:
    session.write("text", name="x.txt")
    answer = use(session, "search_result", query=query, regex=True)
    assert "not a regular expression" in answer or answer.startswith(("No match.", "Read on"))
    # Literally it is a text like any other.
    assert use(session, "search_result", query=query, regex=False) == "No match."


def test_a_pattern_is_looked_for_in_all_results_and_stopped_once(session: Any) -> None:
    for _ in range(20):
        session.write(HARD["(a+)+$"], name="x.txt")
    began = time.thread_time()
    answer = use(session, "search_result", query="(a+)+$", regex=True)
    assert time.thread_time() - began < 1.5
    assert "took too long" in answer
