"""Regular expressions of a model's: found where they are, and never a danger to anybody else."""

import re
import threading
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.seam import scanning
from tenancy.seam.answers import tokens_of
from tenancy.seam.tokens import SafeTokenCounter
from tenancy.seam.tools import SessionToolset
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


@pytest.mark.parametrize(
    "query",
    [
        *["(", ")", "[a", "a{2,1}", "(?P<x>a)(?P<x", "*", "(?<=a*b", "\\", "(" * 250 + ")" * 250, "a" * 10 + "(?"],
        # Written out they would take gigabytes, and the interpreter for seconds.
        *["a{10000000}", "(?:x{3000}){3000}", "a{100000000,}", "((a{100}){100}){100}", "[ab]{99999}"],
        # They take memory while they match, find the last match first, or one that begins elsewhere.
        *["(?R)?a", "(a)(?1)", "(?:abc){e<=2}", "(?e)(abc){e}", "(?r)a", r"key\Kvalue", r"\L<words>", "(?(1)a|b)"],
        *["(*PRUNE)a", "(?|a|b)", "(?&x)", "(?P>x)", "(?V1)[a--b]", "(?b)a", "(?p)a", "(?x) a"],
    ],
)
def test_what_is_no_pattern_or_could_do_harm_is_told(query: str, session: Any) -> None:
    session.write("text", name="x.txt")
    tracemalloc.start()
    began = time.thread_time()
    assert "not a regular expression" in use(session, "search_result", query=query, regex=True)
    assert time.thread_time() - began < 0.5
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()
    # Literally it is a text like any other.
    assert use(session, "search_result", query=query, regex=False).startswith("No match.")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (r'{"id": \d+, "tags": \[', '[{"id": 7, "tags": ["x"]}]'),
        (r'"name":\s*"[^"]{1,80}"', '{"name": "x"}'),
        (r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])", "on 2030-01-31"),
        (r"(?i:error|warn(?:ing)?)\b.{0,200}$", "a WARNING here"),
        (r"[\]\[a-z]+(?!x)", "[abc]"),
        (r"\$\d{1,3}(?:,\d{3})*\.\d\d", "costs $1,234.50"),
    ],
)
def test_what_models_write_is_understood(query: str, text: str, session: Any) -> None:
    reference = session.write(text, name="x.txt")
    expected = re.search(query, text)
    assert expected is not None
    assert offsets(use(session, "search_result", query=query, reference=reference, regex=True))[0] == expected.start()


@pytest.mark.parametrize("query", [".+", r"(?s).+", r"(?s).{1,100000}", "x[^y]*", r"\w*"])
@pytest.mark.parametrize("page_tokens", [100, 1000])
def test_a_long_match_is_shown_in_few_tokens(query: str, page_tokens: int, session: Any) -> None:
    reference = session.write("x" * 600_000, name="x.txt")
    answer = use(
        session, "search_result", SessionToolset(page_tokens=page_tokens), query=query, reference=reference, regex=True
    )
    assert tokens_of(answer, SafeTokenCounter()) <= page_tokens
    assert "offset 0: x" in answer


def test_the_end_of_a_window_is_not_the_end_of_the_text(session: Any) -> None:
    window = scanning._WINDOW_CHARS
    text = "q" * (window - 1000) + "A" + "q" * 1500 + "B" + "q" * window
    reference = session.write(text, name="x.txt")
    for query in (r"Aq*$", r"Aq*\Z"):
        assert use(session, "search_result", query=query, reference=reference, regex=True).startswith("No match.")
    answer = use(session, "search_result", query="Aq*B", reference=reference, regex=True)
    assert offsets(answer) == [window - 1000]


def test_a_search_that_was_stopped_says_where_and_does_not_say_that_there_is_nothing(session: Any) -> None:
    reference = session.write(HARD["(a+)+$"], name="x.txt")
    answer = use(session, "search_result", query="(a+)+$", regex=True)
    assert answer.startswith(f"No match in what was searched. The search took too long and stopped in '{reference}'")


def test_searches_at_the_same_time_do_not_end_each_other(session: Any) -> None:
    # A third of its half second: of the process's own time four of them would have spent it in no time.
    reference = session.write("ab" * 130_000, name="x.txt")
    answers: list[str] = []

    def search() -> None:
        answers.append(use(session, "search_result", query=r"\w{1,20}[yz]", regex=True, reference=reference))

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer[:9] for answer in answers] == ["No match."] * 4


def test_a_pattern_is_looked_for_in_all_results_and_stopped_once(session: Any) -> None:
    for _ in range(20):
        session.write(HARD["(a+)+$"], name="x.txt")
    began = time.thread_time()
    answer = use(session, "search_result", query="(a+)+$", regex=True)
    assert time.thread_time() - began < 1.5
    assert "took too long" in answer
