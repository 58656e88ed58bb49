"""A notice is short, valid, and says why and what to do."""

import base64
from typing import Any

import pytest
import regex
from haystack.dataclasses import FileContent, ImageContent, TextContent
from hypothesis import given
from hypothesis import strategies as st

from tenancy.errors import (
    KeyDestroyed,
    KeyUnavailable,
    NoActiveSession,
    QuotaExceeded,
    ResultTooLarge,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
)
from tenancy.seam.graphemes import head_of, tail_of
from tenancy.seam.notices import MAX_NOTICE_CHARS, notice, printable

QUOTA = QuotaExceeded(level="tenant", unit="bytes", limit=12345, used=12000, requested=777)


@pytest.mark.case(113, 124)
@given(st.text(max_size=5000), st.integers(1, 4))
def test_every_notice_is_bounded_and_valid(text: str, repeat: int) -> None:
    told = notice(text * repeat, QUOTA)
    assert len(told) <= MAX_NOTICE_CHARS
    assert told.encode("utf-8")
    assert told.startswith("[Not stored: the storage limit is reached. Work with what is shown, or call")


@pytest.mark.parametrize("repeat", [1, 2, 3, 5000])
def test_many_parts_with_long_labels_stay_bounded(repeat: int) -> None:
    image = ImageContent(base64_image="QUJD" * 10, mime_type="image/" + "x\n" * 5000, validation=False)
    file = FileContent(base64_data=base64.b64encode(b"x" * 3000).decode(), mime_type="\ud800" * 900, validation=False)
    told = notice([TextContent(text="long " * 900), image, file] * repeat, StorageFull())
    assert len(told) <= MAX_NOTICE_CHARS
    assert told.encode("utf-8")
    assert "about 30 bytes, not shown" in told
    assert "QUJD" not in told
    assert ("more parts" in told) == (repeat > 2)


@pytest.mark.case(124)
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (QUOTA, "the storage limit is reached"),
        (ResultTooLarge(limit_bytes=5, requested_bytes=9), "the result has 9 bytes and one may have 5"),
        (StorageFull("/srv/x"), "the storage is full"),
        (StorageUnavailable("/srv/x"), "the storage does not answer"),
        (KeyUnavailable("/srv/x"), "the key service does not answer"),
        (KeyDestroyed("/srv/x"), "storing it failed"),
        (SessionNotFound(), "the session has ended"),
        (NoActiveSession(), "this run has no session to store results in"),
        (RuntimeError("/srv/x"), "storing it failed"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_failure_says_why(error: Exception, why: str) -> None:
    told = notice("some result", error)
    assert f"[Not stored: {why}. " in told
    assert "/srv/x" not in told


def test_numbers_and_lone_surrogates_keep_a_notice_bounded_and_valid() -> None:
    told = notice("\ud800" * 9000, ResultTooLarge(limit_bytes=10**900, requested_bytes=10**900))
    assert len(told) == MAX_NOTICE_CHARS
    assert notice("a\udfff" * 9000, QUOTA).encode("utf-8")


def test_a_notice_does_not_tell_what_a_tenant_has_in_use() -> None:
    told = notice("x", QUOTA)
    assert not any(number in told for number in ("12345", "12000", "777", "tenant"))


def test_head_and_tail_are_shown_and_what_lies_between_is_counted() -> None:
    told = notice("H" * 700 + "~" * 1234 + "T" * 400, QUOTA)
    assert "H" * 700 in told
    assert "~" not in told
    assert "[1234 characters left out." in told
    assert told.endswith("T" * 400)


def test_a_short_result_is_shown_whole() -> None:
    assert notice("short", QUOTA).endswith("All of it:\nshort")


def test_nothing_is_shown_where_previews_are_off() -> None:
    assert "secret" not in notice("secret", QUOTA, show=False)


@pytest.mark.case(113)
@given(st.text(alphabet=st.characters(categories=["Cs", "Lu", "So"]), max_size=60))
def test_making_a_text_printable_keeps_its_length(text: Any) -> None:
    assert len(printable(text)) == len(text)
    assert printable(text).encode("utf-8").decode("utf-8") == printable(text)


#: Each is one character to whoever reads it.
GRAPHEMES = [
    "\U0001f9d1\u200d\U0001f680",
    "\U0001f44b\U0001f3fd",
    "\U0001f1ee\U0001f1f3",
    "e\u0301",
    "\r\n",
    "\u0e01\u0e33",
]


@given(
    text=st.lists(st.sampled_from([*GRAPHEMES, "a", " "]), min_size=1, max_size=80).map("".join),
    limit=st.integers(1, 60),
)
def test_a_cut_goes_through_no_grapheme(text: str, limit: int) -> None:
    whole = regex.findall(r"\X", text)
    head, tail = head_of(text, limit), tail_of(text, limit)
    starts = {"".join(whole[:number]) for number in range(len(whole) + 1)}
    ends = {"".join(whole[number:]) for number in range(len(whole) + 1)}
    # Where not even one fits, there is no other way than to cut it.
    assert head in starts or len(whole[0]) > limit
    assert tail in ends or len(whole[-1]) > limit
    assert limit - 6 < len(head) <= limit or head == text
    assert limit - 6 < len(tail) <= limit or tail == text


def test_a_grapheme_without_end_costs_no_more_than_the_cut() -> None:
    text = "a" + "\u0301" * 1_000_000
    assert head_of(text, 700) == text[:700]
    assert tail_of(text, 400) == text[-400:]


@pytest.mark.parametrize("grapheme", GRAPHEMES)
def test_no_notice_splits_a_grapheme(grapheme: str) -> None:
    for shift in range(len(grapheme)):
        shown = notice("x" * shift + grapheme * 2000, QUOTA)
        head = shown.partition("Its beginning:\n")[2].partition("\n[")[0]
        tail = shown.partition("Its end:]\n")[2]
        assert head == "x" * shift + grapheme * ((len(head) - shift) // len(grapheme))
        assert tail == grapheme * (len(tail) // len(grapheme))
        assert min(len(head), len(tail)) > 390
