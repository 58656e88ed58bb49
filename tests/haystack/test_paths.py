"""A part of a JSON result by a path: the right part, in pages, and no path and no document does harm."""

import json
import re
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import jmespath
import pytest
from haystack.components.agents import Agent
from haystack.hooks.tool_result_offloading import AlwaysOffload
from haystack.tools import Tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jmespath.parser import Parser

from tenancy.reading import page_of
from tenancy.seam import path_expressions as paths
from tenancy.seam.answers import tokens_of
from tenancy.seam.hooks import session_hooks
from tenancy.seam.path_expressions import NotUsable
from tenancy.seam.paths import _MAX_CONTAINERS, _MAX_VALUES, MAX_JSON_CHARS, NoPart, part_of
from tenancy.seam.tokens import SafeTokenCounter
from tenancy.seam.tools import SessionToolset
from tenancy.session import Session
from tests.haystack.support import call, last_pointer, model, results_of, run
from tests.haystack.test_tools import use

ORDERS = {
    "orders": [
        {
            "id": number,
            "customer": f"c-{number % 7}",
            "lines": [{"sku": f"s{number}", "count": number % 3}],
            "note": None,
        }
        for number in range(500)
    ],
    "next-page": {"cursor": "abc"},
    "text": "first line\nsecond line\nthird line",
    "empty": {"list": [], "object": {}, "string": ""},
}
DOCUMENT = json.dumps(ORDERS)


def _records(values: int) -> str:
    return json.dumps([{"a": f"{number}", "b": "x" * 90} for number in range(values // 4)])


#: Each is as large as a JSON result may be that a path reaches into, or a little larger.
LARGE = {
    "[35000].a": _records(140_000),
    "[?contains(b, 'y') || a == '9'].a": _records(140_000),
    "sort_by(@, &to_number(a))[-1].a": _records(140_000),
    "length(c)": '{"c": [' + "[0.0011, 0.0007]," * 49_000 + "[0, 0]]}",
    "c[-1]": '{"c": [' + "[0.0011, 0.0007]," * 230_000 + "[0, 0]]}",
    "length(@)": "[" + "[]," * 49_000 + "[]]",
    "[a,a,a,a,a]==[b,b,b,b,b]": json.dumps({"a": [[]] * 24_000, "b": [[]] * 24_000}),
}


@pytest.fixture
def database_kind() -> str:
    """What finds a part does not know where the text is from."""
    return "sqlite"


@pytest.fixture
def inline_bytes() -> int:
    """Nor how it was stored."""
    return 0


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("orders[7].customer", "c-0"),
        ("orders[-1].id", 499),
        ("orders[?id==`7`].customer | [0]", "c-0"),
        ("orders[?customer=='c-3' && lines[0].count==`2`].id | [:2]", [17, 38]),
        ("orders[2:4].[id, lines[].sku]", [[2, ["s2"]], [3, ["s3"]]]),
        ("orders[0].{number: id, who: customer}", {"number": 0, "who": "c-0"}),
        ('"next-page".cursor', "abc"),
        ("length(orders)", 500),
        ("max_by(orders, &id).id", 499),
        ("sort_by(orders, &customer)[0].id", 0),
        ("keys(@)", list(ORDERS)),
        ("text", "first line\nsecond line\nthird line"),
        ("empty", ORDERS["empty"]),
        ("empty.list", []),
        ("@", ORDERS),
        # JSONPath, as far as it means the same.
        ("$.orders[1].id", 1),
        ("$", ORDERS),
        ("$['orders'][1]['id']", 1),
        ("$['next-page']", {"cursor": "abc"}),
        ('$["next-page"]["cursor"]', "abc"),
        # Numbers as everybody writes them.
        ("orders[?id==7].customer | [0]", "c-0"),
        ("orders[?id >= 498 && id<499.5].id", [498, 499]),
        ("orders[?customer=='c-3' && lines[0].count == 2].id | [:2]", [17, 38]),
        ("orders[?customer=='==7'] || 'a==7'", "a==7"),
        (" orders[1].id ", 1),
    ],
)
def test_a_path_leads_to_the_part(path: str, expected: Any) -> None:
    found = part_of(DOCUMENT, path)
    assert (found if isinstance(expected, str) else json.loads(found)) == expected


@pytest.mark.parametrize("way", ["run", "run_async"])
def test_a_model_gets_one_field_of_a_megabyte_in_one_call(way: str, session: Session) -> None:
    value = {"rows": [{"id": number, "name": f"name-{number}", "filler": "x" * 80} for number in range(9000)]}
    fetch = Tool("fetch", "Fetches.", {"type": "object", "properties": {}}, function=lambda: value)
    asked = Agent(
        chat_generator=model(
            call("fetch"),
            lambda messages: call(
                "kb_read_result", reference=last_pointer(messages), path="rows[?id==`8765`].name | [0]"
            ),
            "done",
        ),
        tools=[fetch, SessionToolset(prefix="kb_")],
        hooks=session_hooks(offload={"*": AlwaysOffload()}),
    )

    _, answer = results_of(run(asked, way, session=session)["messages"])

    assert answer == "[part: characters 0-9 of 9, line 1 of 1, the end]\nname-8765"
    assert next(session.results()).total_chars or 0 > 1_000_000


@pytest.mark.parametrize("page_tokens", [100, 400])
@pytest.mark.parametrize("path", ["orders", "orders[].lines[]", "text"])
def test_pages_of_a_part_are_bounded_and_tile_it(path: str, page_tokens: int, session: Session) -> None:
    reference = session.write(DOCUMENT, name="x.json")
    toolset, counter = SessionToolset(page_tokens=page_tokens), SafeTokenCounter()
    texts, offset = [], 0
    while True:
        answer = use(session, "read_result", toolset, reference=reference, path=path, offset=offset)
        assert tokens_of(answer, counter) <= page_tokens
        header, _, body = answer.partition("\n")
        texts.append(body)
        following = re.search(r"; next: the same with offset=(\d+)\]", header)
        if following is None:
            assert header.endswith("the end]")
            break
        assert int(following[1]) == offset + len(body) > offset
        offset = int(following[1])
    assert "".join(texts) == part_of(DOCUMENT, path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.sampled_from("ab\n"), max_size=30),
    place=st.fixed_dictionaries({}, optional={"max_lines": st.integers(1, 5)}),
    start=st.one_of(
        st.builds(lambda number: {"offset": number}, st.integers(-40, 40)),
        st.builds(lambda number: {"line": number}, st.integers(-9, 9).filter(bool)),
    ),
    max_chars=st.integers(1, 40),
)
def test_pages_of_a_part_are_those_of_a_result(
    text: str, place: dict[str, int], start: dict[str, int], max_chars: int, session: Session
) -> None:
    reference = session.write(text)
    assert page_of(text, **place, **start, max_chars=max_chars) == session.read_page(
        reference, **place, **start, max_chars=max_chars
    )


def test_lines_of_a_part_are_read_like_lines_of_a_result(session: Session) -> None:
    reference = session.write(DOCUMENT, name="x.json")
    part = {"reference": reference, "path": "text"}
    assert use(session, "read_result", **part, line=2, lines=1).startswith(
        "[part: characters 11-23 of 33, line 2 of 3; next: the same with offset=23 and no line]\nsecond line"
    )
    assert use(session, "read_result", **part, line=-1).endswith("the end]\nthird line")
    assert use(session, "read_result", **part, offset=40) == "[Past the end: the part has 33 characters and lines 1-3.]"
    assert use(session, "read_result", reference=reference, path="empty.string") == "[The part is empty.]"


def test_where_there_is_nothing_the_model_learns_what_there_is(session: Session) -> None:
    reference = session.write(DOCUMENT, name="x.json")
    before, keys = "What comes before it is there. It is an", '"id", "customer", "lines", "note"'
    for path, told in [
        ("customers", 'It is an object with the keys "orders", "next-page", "text", "empty".'),
        ("orders[0].nte", f"{before} object with the keys {keys}."),
        ("orders[0].lines.sku", f'{before} array of 1; the first is an object with the keys "sku", "count".'),
        ("orders[9999].id", f"{before} array of 500; the first is an object with the keys {keys}."),
    ]:
        assert use(session, "read_result", reference=reference, path=path) == f"Nothing is at that path. {told}", path
    assert use(session, "read_result", reference=reference, path="orders[0].note").endswith("the end]\nnull")
    rows = session.write(json.dumps([{"a": 1, "\ud800b" + "c" * 90: 2}] * 3), name="x.json")
    assert use(session, "read_result", reference=rows, path="a") == (
        f'Nothing is at that path. It is an array of 3; the first is an object with the keys "a", "\ufffdb{"c" * 38}".'
    )
    many = session.write(json.dumps({f"key {number} {'ж' * 30}": 1 for number in range(5000)}), name="x.json")
    answer = use(session, "read_result", SessionToolset(page_tokens=100), reference=many, path="a")
    assert tokens_of(answer, SafeTokenCounter()) <= 100
    assert "and 4980 more" in use(session, "read_result", reference=many, path="a")


@pytest.mark.parametrize(
    "content", ["plain words", "", "[" * 40_000, "1" * 5000, '{"a": 1} {"b": 2}', b"\xff\x00", b"PK"]
)
def test_what_is_no_json_says_so(content: str | bytes, session: Session) -> None:
    reference = session.write(content, name="x.json")
    expected = "This result is not JSON. Read it without a path."
    assert use(session, "read_result", reference=reference, path="a") == expected


def test_a_filter_that_nothing_fits_says_how_values_are_written(session: Session) -> None:
    reference = session.write(DOCUMENT, name="x.json")
    for path in ("orders[?id=='7'].customer", 'orders[?customer=="c-0"].id', "orders[?id==`nine`]"):
        answer = use(session, "read_result", reference=reference, path=path)
        assert "texts stand in single quotes, and numbers, true, false and null in backticks: [?id==`7`]" in answer, (
            path
        )


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        # Something fits, and there is nothing further in it.
        ({"orders": [{"id": 7, "tags": []}]}, "orders[?id==`7`].nope", "[]"),
        ({"orders": [{"id": 7, "tags": []}]}, "orders[?id==`7`].tags[]", "[]"),
        ({"why?": []}, '"why?"', "[]"),
        # There, and null.
        ([None, 1], "[0]", "null"),
        ({"a": [None]}, "a[-1]", "null"),
        # Long on one side only, so that there is nothing to compare.
        ({"orders": [{"id": 7, "items": list(range(1500))}]}, "orders[?items != `null`].id", "[7]"),
        # Commas and brackets in a text are no values.
        ({"rows": 2, "content": 'a,b,c,d,e\\"[{\n' * 60_001}, "rows", "2"),
    ],
)
def test_an_answer_says_what_is_so(document: Any, path: str, expected: str) -> None:
    assert part_of(json.dumps(document), path) == expected


@pytest.mark.parametrize("path", ["[]" * 249, "a" + "|a" * 249, "$.orders[*]['id','customer']", "$['it\\'s']"])
def test_what_cannot_be_taken_as_it_was_meant_is_refused(path: str) -> None:
    with pytest.raises(NoPart):
        part_of("[[1]]", path)


def test_what_a_function_cannot_take_is_named() -> None:
    document = json.dumps([{"name": "x"}, {"name": None}])
    with pytest.raises(NoPart, match=r"contains\(\) was given null\. It is an array of 2"):
        part_of(document, "[?contains(name, 'x')]")


def test_a_byte_order_mark_is_no_part_of_the_json(session: Session) -> None:
    for content in ("\ufeff" + DOCUMENT, b"\xef\xbb\xbf" + DOCUMENT.encode()):
        reference = session.write(content, name="x.json")
        assert use(session, "read_result", reference=reference, path="orders[7].id").endswith("\n7")


@pytest.mark.parametrize(
    ("document", "path"),
    [
        # What is parsed in one step, in which no other thread runs.
        ("[" + "[]," * 1_390_000 + "[]]", "length(@)"),
        ('{"c": [' + "[0.0011, 0.0007]," * 230_000 + "[0, 0]]}", "length(c)"),
        # And what is compared in one, again and again.
        (json.dumps({"a": [[]] * 20_000, "b": [[]] * 20_000}), "[a,a,a,a,a]==[b,b,b,b,b]"),
        (json.dumps([[[]] * 20_000, [[[]] * 20_000] * 2]), "contains([1], [0])"),
        (json.dumps([[]] * 49_000), f"[{','.join('@' * 30)}][] | length(@)"),
    ],
    ids=["many values", "many numbers", "compared", "contained", "made"],
)
def test_nothing_that_is_done_in_one_step_is_large(document: str, path: str) -> None:
    assert len(document) < MAX_JSON_CHARS
    began = time.thread_time()
    with pytest.raises(NoPart, match=r"at most 200000 values and 50000 objects|took too long|too much of this"):
        part_of(document, path)
    # Tens of milliseconds; several times as many on a machine that is busy.
    assert time.thread_time() - began < 2


def test_a_json_file_is_read_like_a_json_text(session: Session) -> None:
    reference = session.write(DOCUMENT.encode(), name="x.json")
    assert use(session, "read_result", reference=reference, path="orders[7].id").endswith("\n7")


def test_a_result_that_is_too_large_says_so(session: Session) -> None:
    for content in ('"' + "x" * MAX_JSON_CHARS + '"', b'"' + b"x" * MAX_JSON_CHARS + b'"'):
        reference = session.write(content, name="x.json")
        answer = use(session, "read_result", reference=reference, path="a")
        assert answer == "A path reaches into results of at most 4194304 characters. Search this one instead."


#: What is no expression, or one that could grow, or nest, without a bound.
REFUSED = [
    *["orders[", "]", "a..b", "a b", "'", "`{`", "orders[?id=7]", "\x00", "((((" * 100, "!" * 499, "a." * 249 + "a"],
    *["[@,@][]|" * 10 + "@", "[@,@]|" * 10 + "@", "{a:@,b:@}|" * 10 + "@", "[*].[@,@][]|" * 8 + "@"],
    *["map(&[@,@], @)|" * 8 + "@", "orders[*]." + "[@,@,@]|[]." * 8 + "id", "[" + "@," * 40 + "@]"],
    *["`[1,1,1,1,1,1]`[*]." * 8 + "`1`", "[*].[`[" + "1," * 60 + "1]`][][]", "merge({a:@},{b:@})|" * 8 + "@"],
    *["join(',', orders[].customer)", "to_string(@)", "nothing(@)", "[join('x', @)]", "orders[?join('x', @)]"],
    *["to_array(" * 40 + "@" + ")" * 40],
]


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_no_path_or_could_grow_without_bound_is_refused_before_it_runs(path: str) -> None:
    began = time.thread_time()
    with pytest.raises(NoPart):
        part_of(DOCUMENT, path)
    assert time.thread_time() - began < 4


#: Each takes long, or much room, and no more than that.
COSTLY = [
    "[*].[@,@][][]",
    "sort_by(@, &to_number(a))",
    "[?contains(a, b) || contains(b, a) || a == b || a < b || a > b]",
    "map(&length(keys(@)), @)",
    "[[@],[@],[@],[@]][*][*] == [[@],[@],[@],[@]][*][*]",
    "[*].*.to_array(@)",
    "@",
    "[@,@,@,@]",
    "reverse(sort(map(&a, @)))",
]


@pytest.mark.parametrize("path", COSTLY)
def test_no_path_takes_long(path: str) -> None:
    document = json.dumps([{"a": f"{number}", "b": "x" * 90} for number in range(36_000)])
    assert MAX_JSON_CHARS * 0.9 < len(document) < MAX_JSON_CHARS
    assert sum(map(document.count, ",[{")) < _MAX_VALUES
    assert sum(map(document.count, "[{")) < _MAX_CONTAINERS
    tracemalloc.start()
    try:
        # Of this thread alone, so that a busy machine makes no difference.
        began = time.thread_time()
        json.loads(document)
        parsing = time.thread_time() - began
        began = time.thread_time()
        with suppress(NoPart):
            part_of(document, path)
        # Half a second to find, as much to write, and to parse it; the tracing of memory slows down all of it.
        assert time.thread_time() - began < 3 + 4 * parsing
        assert tracemalloc.get_traced_memory()[1] < 60 * len(document)
    finally:
        tracemalloc.stop()


def test_a_part_of_few_long_strings_has_its_limit_too() -> None:
    document = json.dumps(["x" * (MAX_JSON_CHARS // 2)])
    assert len(part_of(document, "@")) < MAX_JSON_CHARS
    with pytest.raises(NoPart, match="That part is too large"):
        part_of(document, "[@, @, @]")


def test_what_was_looked_for_is_not_kept_in_the_process() -> None:
    part_of(DOCUMENT, "orders[?customer=='canary-secret'].id || `1`")
    with pytest.raises(NoPart):
        part_of(DOCUMENT, "orders[?join('canary-secret', id)]")
    assert "canary-secret" not in repr(Parser._CACHE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)
EXPRESSION = st.recursive(
    st.sampled_from(
        ["@", "a", "b", "`1`", "`[1, [2]]`", "'x'", "[0]", "[]", "[*]", "*", "[1:]", "keys(@)", "values(@)"]
    ),
    lambda inner: st.one_of(
        st.builds("{}|{}".format, inner, inner),
        st.builds("[{},{}]".format, inner, inner),
        st.builds("{{x:{},y:{}}}".format, inner, inner),
        st.builds("{}[]".format, inner),
        st.builds("({})[*].[{}]".format, inner, inner),
        st.builds("({})[?{}]".format, inner, inner),
        st.builds("map(&{}, to_array({}))".format, inner, inner),
        st.builds("merge({{x:{}}}, {{y:{}}})".format, inner, inner),
        st.builds("not_null({},{})".format, inner, inner),
        st.builds("({}||{})".format, inner, inner),
        st.builds("({}=={})".format, inner, inner),
        st.builds("sort_by({}, &{})".format, inner, inner),
    ),
    max_leaves=8,
)


@given(document=JSON, expression=EXPRESSION)
def test_no_expression_makes_more_than_it_was_judged_to(document: Any, expression: str) -> None:
    try:
        growth = paths._growth(jmespath.compile(expression).parsed)
        found = jmespath.search(expression, document)
    except (ValueError, TypeError, AttributeError, NotUsable):
        # No expression, one that is refused, or one that does not fit.
        return
    assert paths._size(found) <= growth * paths._size(document)
