"""Reading by lines and from the end: the same text, found another way."""

import asyncio
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.seam.answers import tokens_of
from tenancy.seam.tokens import SafeTokenCounter
from tenancy.seam.tools import SessionToolset
from tests.haystack.test_tools import use

#: Only a newline ends a line: the others are ends of lines to `str.splitlines`, and to nobody who counts newlines.
LINES = st.lists(st.text(st.sampled_from("ab \r\x0b\x85\u2028\u00e9\U0001f600\ud800"), max_size=30), max_size=60)
COUNTED = re.compile(r"\[characters (\d+)-\d+ of \d+, lines? (\d+)(?:-\d+)? of \d+(?:, the end|; next: .*)\]")
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lines_of(text: str) -> list[str]:
    return re.findall("[^\n]*\n|[^\n]+$", text)


@SLOW
@given(lines=LINES, repeat=st.integers(1, 300), data=st.data())
def test_a_line_begins_where_the_one_before_it_ends(lines: list[str], repeat: int, data: Any, session: Any) -> None:
    text = "\n".join(lines) * repeat
    reference = session.write(text, name="x.txt")
    expected = lines_of(text)
    number = data.draw(st.integers(1, len(expected) + 2))
    count = data.draw(st.integers(1, 5))
    page = session.read_page(reference, line=number, max_lines=count, max_chars=10**6)
    assert page.text == "".join(expected[number - 1 : number - 1 + count])
    assert page.offset == len("".join(expected[: number - 1]))
    assert (page.total_lines, page.next_offset) == (
        len(expected),
        None if page.offset + len(page.text) == len(text) else page.offset + len(page.text),
    )
    if page.text:
        assert page.line == number
    back = data.draw(st.integers(1, len(expected) + 2))
    page = session.read_page(reference, line=-back, max_chars=10**6)
    assert page.text == "".join(expected[-back:])
    tail = data.draw(st.integers(1, len(text) + 5))
    assert session.read_page(reference, offset=-tail, max_chars=10**6).text == text[-tail:]


@SLOW
@given(text=st.text(st.sampled_from("ab\n\r\u2028\U0001f600"), min_size=1, max_size=2000), offset=st.integers(0, 2000))
def test_a_page_knows_the_line_it_begins_in(text: str, offset: int, session: Any) -> None:
    reference = session.write(text * 30, name="x.txt")
    page = session.read_page(reference, offset=offset, max_chars=50)
    if page.text:
        assert page.line == 1 + (text * 30).count("\n", 0, offset)


@pytest.mark.parametrize(
    "wrong",
    [
        {"line": 0},
        {"line": 2, "offset": 3},
        {"max_lines": 0},
        {"max_chars": 0},
        {"line": 2, "offset": -3},
    ],
)
def test_a_place_that_is_none_is_refused(wrong: dict[str, int], session: Any) -> None:
    reference = session.write("a\nb\n", name="x.txt")
    with pytest.raises(ValueError, match=r"at least 1|not at both"):
        session.read_page(reference, **{"max_chars": 5, **wrong})


def test_coroutines_read_by_lines_too(session: Any) -> None:
    reference = session.write("a\nb\nc\n", name="x.txt")
    page = asyncio.run(session.read_page_async(reference, line=-2, max_lines=1, max_chars=9))
    assert (page.text, page.line) == ("b\n", 2)


@pytest.mark.case(118, 119)
@pytest.mark.parametrize(
    "text", ["".join(f"row {n}: some words\n" for n in range(1, 3001)), "\n" * 3000, ("x" * 9000 + "\n") * 40]
)
def test_the_lines_that_were_asked_for_come_in_as_many_pages_as_they_take(text: str, session: Any) -> None:
    reference = session.write(text, name="x.txt")
    toolset, counter = SessionToolset(page_tokens=300), SafeTokenCounter()
    expected = lines_of(text)
    first, wanted = 7, 25
    where: dict[str, int] = {"line": first, "lines": wanted}
    read = ""
    for _ in range(1000):
        answer = use(session, "read_result", toolset, reference=reference, **where)
        assert tokens_of(answer, counter) <= 300
        header, body = answer.split("\n", 1)
        found = COUNTED.fullmatch(header)
        assert found is not None, header
        assert int(found[2]) == 1 + text.count("\n", 0, int(found[1]))
        read += body
        hint = re.search(
            rf"next: read_result\(reference='{re.escape(reference)}', offset=(\d+)(?:, lines=(\d+))?\)", header
        )
        assert hint is not None
        if hint[2] is None:
            break
        where = {"offset": int(hint[1]), "lines": int(hint[2])}
    assert read == "".join(expected[first - 1 : first - 1 + wanted])


def test_the_end_is_read_without_what_comes_before_it(session: Any) -> None:
    text = "".join(f"row {n}\n" for n in range(1, 100_001))
    reference = session.write(text, name="x.txt")
    answer = use(session, "read_result", reference=reference, line=-3)
    assert answer.splitlines()[0].endswith("lines 99998-100000 of 100000, the end]")
    assert answer.splitlines()[1:] == ["row 99998", "row 99999", "row 100000"]
    answer = use(session, "read_result", reference=reference, offset=-11)
    assert answer.splitlines()[1:] == ["row 100000"]
    # Before the beginning it begins there.
    for where in ({"offset": -(10**9)}, {"line": -(10**9)}):
        assert use(session, "read_result", reference=reference, **where).splitlines()[1] == "row 1"


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"line": 0}, "line must"),
        ({"line": "two"}, "line must"),
        ({"lines": -1}, "lines must"),
        ({"offset": "there"}, "offset must"),
        ({"line": 3, "offset": 7}, "not both"),
    ],
)
def test_a_model_is_told_what_is_wrong_with_a_place(where: dict[str, Any], says: str, session: Any) -> None:
    reference = session.write("a\nb\n", name="x.txt")
    assert says in use(session, "read_result", reference=reference, **where)


def test_a_model_may_send_every_parameter_there_is(session: Any) -> None:
    reference = session.write("a\nb\nc\n", name="x.txt")
    for where in (
        {"offset": 0, "line": 2, "lines": 1},
        {"offset": 2, "line": 0, "lines": 1},
        {"offset": "", "line": 2, "lines": 1},
    ):
        assert use(session, "read_result", reference=reference, **where).splitlines()[1:] == ["b"]
    assert use(session, "read_result", reference=reference, offset=2, line=0, lines=0).splitlines()[1:] == ["b", "c"]
    assert use(session, "read_result", reference=session.write("", name="x.txt")) == "[The result is empty.]"
