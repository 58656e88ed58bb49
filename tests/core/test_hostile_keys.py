"""Keys that come from tools and models: whatever they are, they are names in a listing and nothing else."""

import itertools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenancy import Session, SessionManager
from tests.conftest import ManagerFactory
from tests.core.hostile import PIECES, SHARED, TEXTS, require_nothing_outside
from tests.core.ledger import Ledger

Open = Callable[..., Session]
GRAMMAR = re.compile(r"\A[a-z]{1,8}-[1-9][0-9]{0,9}-[a-z2-7]{10}(\.[a-z0-9]{1,8})?\Z")
#: What of a key is kept.
KEPT_CHARS = 1024

#: Pairs that a sanitiser, a file system or a database makes the same.
SAME_TO_SOMEBODY = [
    ("a.b", "a_b"),
    ("a:b", "a_b"),
    ("a/b", "a_b"),
    ("a b", "a-b"),
    ("a\\b", "a/b"),
    ("A", "a"),
    ("\u00e9", "e\u0301"),
    ("\u017f", "s"),
    ("\ufb01", "fi"),
    ("\u212a", "K"),
    ("a", "a."),
    ("a", "a "),
    ("a", "a\0b"),
    ("a%2fb", "a/b"),
    ("x" * 255, "x" * 256),
    ("x" * KEPT_CHARS + "a", "x" * KEPT_CHARS + "b"),
    ("\ud800", "\ufffd"),
    ("", "result"),
]


@pytest.mark.case(1, 2, 3, 4, 6, 79, 85)
@SHARED
@given(keys=st.lists(TEXTS, min_size=1, max_size=5))
@example(["../../x_a/b.txt", "/etc/cron.d/x", "C:\\x", "\\\\srv\\share\\x", "..\\..\\x"])
@example(["CON", "nul.txt", "COM1", "COM\u00b9", "aux.", "a:stream", "a.txt::$DATA"])
@example(["", "x" * 255, "x" * 256, "x" * 4096, "x" * 1_000_000])
@example(["i" * 5000 + "." + "s" * 300, "\ud800.txt", "x\udfff"])
def test_a_key_is_kept_as_it_is_and_nothing_is_called_after_it(
    manager: SessionManager, make_manager: ManagerFactory, ledger: Ledger, keys: list[str]
) -> None:
    session = manager.session(tenant="acme", user="ann")
    written = {session.store.write(key=key, content=f"content of {number}"): key for number, key in enumerate(keys)}
    assert len(written) == len(keys)
    for number, reference in enumerate(written):
        assert GRAMMAR.match(reference)
        assert session.read(reference) == f"content of {number}"
    listed = {result.reference: result.name for result in session.results()}
    assert {reference: listed[reference] for reference in written} == {
        reference: key[:KEPT_CHARS] for reference, key in written.items()
    }
    require_nothing_outside(make_manager)
    assert ledger.where() == ledger.ways(small=len(keys))
    manager.delete_session(tenant="acme", user="ann", session=None)


@pytest.mark.case(7, 84)
@SHARED
@given(key=TEXTS)
@example("1_web_search_None.txt")
@example("1_web_search_.txt")
def test_one_key_written_again_is_another_result(manager: SessionManager, key: str) -> None:
    session = manager.session(tenant="acme", user="ann")
    one, other = session.store.write(key=key, content="first"), session.store.write(key=key, content=b"second")
    assert one != other
    assert (session.read(one), session.read(other)) == ("first", b"second")
    session.delete(one)
    assert session.read(other) == b"second"


@pytest.mark.case(5, 86)
def test_keys_that_are_the_same_to_somebody_are_two_results(session: Session, ledger: Ledger) -> None:
    written = [
        session.store.write(key=key, content=f"of {key[-1:]!r} {at}")
        for at, pair in enumerate(SAME_TO_SOMEBODY)
        for key in pair
    ]
    contents = [f"of {key[-1:]!r} {at}" for at, pair in enumerate(SAME_TO_SOMEBODY) for key in pair]
    assert [session.read(reference) for reference in written] == contents
    names = [result.name for result in session.results()]
    assert names == [key[:KEPT_CHARS] for key in reversed([key for pair in SAME_TO_SOMEBODY for key in pair])]
    assert ledger.where() == ledger.ways(small=len(written))
    ledger.require_balanced()


@pytest.mark.case(5, 86)
@SHARED
@given(piece=st.sampled_from(PIECES), other=st.sampled_from(PIECES), around=st.tuples(TEXTS, TEXTS))
def test_keys_that_differ_anywhere_are_two_results(
    manager: SessionManager, piece: str, other: str, around: tuple[str, str]
) -> None:
    session = manager.session(tenant="acme", user="ann")
    keys = [around[0] + middle + around[1] for middle in (piece, other)]
    one, two = (session.store.write(key=key, content=str(at)) for at, key in enumerate(keys))
    assert (session.read(one), session.read(two)) == ("0", "1")


@pytest.mark.case(115)
@pytest.mark.parametrize("content", ["text", b"bytes", b"\x89PNG\r\n", "\u00e9"])
def test_a_plain_suffix_is_kept_and_decides_nothing(session: Session, content: str | bytes) -> None:
    kind = "text" if isinstance(content, str) else "bytes"
    for key, suffix in (
        ("a.txt", ".txt"),
        ("a.PNG", ".png"),
        ("a.tar.gz", ".gz"),
        ("a.json", ".json"),
        ("a.x/../y", ""),
        ("a." + "s" * 300, ""),
        ("a.t\u00d7t", ""),
        ("a.", ""),
        ("a", ""),
    ):
        reference = session.store.write(key=key, content=content)
        assert reference[len(reference) - len(suffix) :] == suffix
        assert ("." in reference) == bool(suffix)
        found = session.read(reference)
        assert (type(found), found) == (type(content), content)
    assert {result.kind for result in session.results()} == {kind}


@pytest.mark.case(110)
def test_fifty_writes_of_one_key_at_once_are_fifty_results(session: Session, ledger: Ledger) -> None:
    with ThreadPoolExecutor(10) as pool:
        written = list(
            pool.map(lambda number: session.store.write(key="1_same_call.txt", content=str(number)), range(50))
        )
    assert len(set(written)) == 50
    assert [session.read(reference) for reference in written] == [str(number) for number in range(50)]
    numbers = sorted(int(reference.split("-")[1]) for reference in written)
    assert numbers == list(range(1, 51))
    assert ledger.where() == ledger.ways(small=50)
    ledger.require_balanced()


@pytest.mark.case(112)
def test_what_one_of_two_writers_does_takes_nothing_from_the_other(
    make_manager: ManagerFactory, open_session: Open
) -> None:
    one, two = open_session(), make_manager(durability="process").session(tenant="acme", user="ann", session="chat")
    written: dict[str, tuple[Session, str]] = {}
    for number, session in zip(range(20), itertools.cycle([one, two])):
        reference = session.store.write(key="1_search_call-1.txt", content=f"{number}")
        assert reference not in written
        written[reference] = session, f"{number}"
    doomed = [reference for reference, (session, _) in written.items() if session is two][::2]
    for reference in doomed:
        two.delete(reference)
        del written[reference]
    two.close()
    for reference, (_, content) in written.items():
        assert one.read(reference) == content
    assert len(list(one.results())) == len(written)
