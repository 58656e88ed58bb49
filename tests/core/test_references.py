"""References: one grammar, one room, one answer for everything else."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy import Lifetime, ResultNotFound, Session, SessionManager, SessionNotFound
from tenancy.references import (
    Reference,
    hint_for,
    mint_tag,
    parse_reference,
    reference_hash,
    suffix_of,
    without_references,
)
from tests.core.interposed import Statements, Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]
GRAMMAR = re.compile(r"\A[a-z]{1,8}-[1-9][0-9]{0,9}-[a-z2-7]{10}(\.[a-z0-9]{1,8})?\Z")


def uses(session: Session) -> list[Callable[[Any], Any]]:
    """Everything that takes a reference."""
    return [session.read, lambda text: session.read_page(text, max_chars=10), session.result, session.delete]


@given(name=st.text(st.characters(), max_size=60), number=st.integers(1, 2**31))
def test_whatever_a_result_is_called_its_reference_is_of_the_grammar(name: str, number: int) -> None:
    reference = Reference(hint=hint_for(name), number=number, tag=mint_tag(), suffix=suffix_of(name))
    text = str(reference)
    assert GRAMMAR.match(text)
    assert len(text) <= 39
    assert text.isascii()
    assert parse_reference(text) == reference


@given(text=st.text(st.characters(), max_size=60) | st.from_regex(GRAMMAR).map(lambda text: text + "\n"))
def test_what_is_not_of_the_grammar_is_no_reference(text: str) -> None:
    assert (parse_reference(text) is None) == (GRAMMAR.match(text) is None or len(text) > 39)


@pytest.mark.parametrize("text", ["a-1-" + "a" * 10, "abcdefgh-1234567890-a2b3c4d5e7.a1b2c3d4", "web-9-zzzzzzzzzz.0"])
def test_the_shortest_and_the_longest_are_references(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("-1-aaaaaaaaaa", "abcdefghi-1-aaaaaaaaaa", "a1-1-aaaaaaaaaa", "A-1-aaaaaaaaaa", "\u0430-1-aaaaaaaaaa"),
        *("a--aaaaaaaaaa", "a-0-aaaaaaaaaa", "a-01-aaaaaaaaaa", "a-12345678901-aaaaaaaaaa"),
        *("a-1x-aaaaaaaaaa", "a-1\u0661-aaaaaaaaaa", "a-1_-aaaaaaaaaa", "a-1 -aaaaaaaaaa", "a-x-aaaaaaaaaa"),
        *("a-\u0661-aaaaaaaaaa", "a-1-aaaaaaaaa", "a-1-aaaaaaaaaaa", "a-1-", "a-1-aaaaaaaaa1", "a-1-aaaaaaaaaA"),
        *("a-1-aaaaaaaaa_", "a-1-aaaaaaaaa-", "a-1-aaaaaaaaa\u00e4", "a-1-aaaaaaaaa "),
        *(
            "a-1-aaaaaaaaaa.",
            "a-1-aaaaaaaaaa.abcdefghi",
            "a-1-aaaaaaaaaa.A",
            "a-1-aaaaaaaaaa._",
            "a-1-aaaaaaaaaa.\u00e4",
        ),
        *("a-1-aaaaaaaaaa.a.b", "a-1-aaaaaaaaaa.a ", "a-1-aaaaaaaaaa.-", "a-1-aaaaaaaaaaxjson", "a-1-aaaaaaaaaa,json"),
        *(
            "a-1-aaaaaaaaaa\n",
            "a-1-aaaaaaaaaa.json\n",
            "\na-1-aaaaaaaaaa",
            " a-1-aaaaaaaaaa",
            "a1aaaaaaaaaa",
            "ax1xaaaaaaaaaa",
        ),
    ],
)
def test_what_is_next_to_a_reference_is_none(text: str) -> None:
    assert parse_reference(text) is None


@pytest.mark.parametrize(
    "key", ["a.txt\n", "a.t_t", "a.t\u00e4t", "a.", "a.123456789", "atxt", "a.t t", "a.t-t", "a.\u0661", "a.\u212a"]
)
def test_a_suffix_that_is_not_plain_is_none(key: str) -> None:
    assert suffix_of(key) == ""
    assert suffix_of(f"{key}.A1b2C3d4") == "a1b2c3d4"


def test_references_count_up_and_are_never_given_out_twice(session: Session, ledger: Ledger) -> None:
    first = [session.write("x", name="web_search") for _ in range(3)]
    session.delete(first[2])
    last = session.write("x", name="web_search")
    assert [reference.split("-")[:2] for reference in [*first, last]] == [
        ["web", str(number)] for number in (1, 2, 3, 4)
    ]
    assert len({*first, last}) == 4
    assert ledger.where() == ledger.ways(small=3)


@pytest.mark.parametrize(
    ("name", "hint", "suffix"),
    [
        ("web_search", "web", ""),
        ("3_web_search_call-1.json", "web", "json"),
        ("compacted_web_search_1.txt", "web", "txt"),
        ("WEB.TXT", "web", "txt"),
        ("../../etc/passwd", "etc", ""),
        ("\u00fc\u00df", "result", ""),
        ("123", "result", ""),
        ("x.verylongsuffix", "x", ""),
        ("x.t\u00d7t", "xtt", ""),
        ("x.", "x", ""),
        ("supercalifragilistic", "supercal", ""),
    ],
)
def test_a_hint_is_a_few_letters_of_the_name_and_a_suffix_is_kept_when_it_is_plain(
    session: Session, name: str, hint: str, suffix: str
) -> None:
    reference = session.write("x", name=name)
    assert reference.split("-")[0] == hint
    assert reference.partition(".")[2] == suffix


def look_alikes(reference: str) -> list[Any]:
    """Texts that a model, a file system or a database might take for this reference."""
    fullwidth = "".join(chr(ord(character) + 0xFEE0) for character in reference)
    return [
        reference.upper(),
        reference.title(),
        reference.replace("e", "\u0435", 1),
        fullwidth,
        reference.replace("-", "\u2010"),
        reference.replace("1", "\u0661", 1),
        reference.replace("1", "\u00b9", 1),
        reference.replace("-1-", "-01-"),
        reference.replace("-1-", "-+1-"),
        f" {reference}",
        f"{reference} ",
        f"{reference}\n",
        f"{reference}\x00",
        f"./{reference}",
        f"{reference}/",
        f"'{reference}'",
        reference.replace("-", "%2D"),
        reference.encode(),
        [reference],
        {reference: 1},
    ]


NEVER: list[Any] = [
    "",
    ".",
    "..",
    "~",
    "/",
    "/proc/self/fd/3",
    "/dev/fd/3",
    "file:///etc/passwd",
    "../../etc/passwd",
    "C:\\Windows",
    "%",
    "_",
    "*",
    "' OR 1=1 --",
    "result",
    "result-1",
    "result--aaaaaaaaaa",
    "result-0-aaaaaaaaaa",
    "result-99999999999-aaaaaaaaaa",
    "result-1-aaaaaaaaa1",
    "a" * 10_000_000,
    "result-1-aaaaaaaaaa" + "\x00" * 10_000_000,
    "\ud800",
    None,
    1,
    True,
    object(),
]


@pytest.mark.case(9, 10, 11, 24, 102)
def test_what_is_no_reference_is_not_found_without_a_statement_or_a_file_operation(
    session: Session, store: Store, ledger: Ledger, statements: Statements
) -> None:
    reference = session.write("mine", name="result.txt")
    assert reference not in look_alikes(reference)
    paths = [str(path) for path in ledger.files] + [path.name for path in ledger.files]
    before = ledger.snapshot()
    store.calls.clear()
    statements.texts.clear()
    statements.connections = 0
    for text in [*NEVER, *look_alikes(reference), *paths]:
        for use in uses(session):
            with pytest.raises(ResultNotFound):
                use(text)
    assert (statements.texts, statements.connections, store.calls) == ([], 0, [])
    assert ledger.snapshot() == before
    # The counters do count.
    assert session.read(reference) == "mine"
    assert len(statements.texts) >= 1
    assert ledger.where() == ledger.ways(small=1)
    session.delete(reference)
    assert store.calls != []


@pytest.mark.case(11)
def test_a_reference_with_another_prefix_number_tag_or_suffix_is_not_found(session: Session, ledger: Ledger) -> None:
    reference = session.write("mine", name="web.txt")
    session.write("another")
    hint, number, rest = reference.split("-")
    tag, suffix = rest.split(".")
    other = "b" if tag[0] == "a" else "a"
    for wrong in (
        f"wab-{number}-{tag}.{suffix}",
        f"{hint}-2-{tag}.{suffix}",
        f"{hint}-{number}-{other}{tag[1:]}.{suffix}",
        f"{hint}-{number}-{tag}",
        f"{hint}-{number}-{tag}.json",
    ):
        for use in uses(session):
            with pytest.raises(ResultNotFound):
                use(wrong)
    assert session.read(reference) == "mine"
    assert ledger.where() == ledger.ways(small=2)
    ledger.require_balanced()


@pytest.mark.case(12, 13, 70, 81)
def test_missing_deleted_expired_and_foreign_results_get_one_and_the_same_answer(
    manager: SessionManager, open_session: Open, ledger: Ledger, statements: Statements
) -> None:
    mine = open_session(lifetime=Lifetime(idle=timedelta(days=2), result=timedelta(hours=1)))
    strangers = [open_session("other"), open_session(user="bob"), open_session(tenant="globex")]
    expired = mine.write("expired", name="web")
    manager.clock.advance(timedelta(hours=1))
    deleted, kept = mine.write("deleted", name="web"), mine.write("kept", name="web")
    mine.delete(deleted)
    missing = f"web-7-{mint_tag()}"
    unreachable = [missing, deleted, expired, *(stranger.write("foreign", name="web") for stranger in strangers)]
    mine.read(kept)  # nobody has to move the idle expiry now
    for use in uses(mine):
        answers = []
        for reference in unreachable:
            with statements.counted() as said, pytest.raises(ResultNotFound) as answer:
                use(reference)
            answers.append((type(answer.value), answer.value.args, vars(answer.value), len(said)))
        assert answers == [answers[0]] * len(unreachable)
    assert mine.read(kept) == "kept"
    assert ledger.where() == ledger.ways(small=5)
    ledger.require_balanced()


@pytest.mark.case(70)
def test_expired_erased_and_ended_sessions_get_one_and_the_same_answer(
    manager: SessionManager, open_session: Open, statements: Statements
) -> None:
    short = Lifetime(idle=timedelta(hours=1))
    idle = open_session("idle", lifetime=short)
    oldest = open_session("maximum", lifetime=Lifetime(idle=timedelta(hours=1), maximum=timedelta(hours=1)))
    erased_user, deleted = open_session(user="bob"), open_session("deleted")
    erased_tenant, cleaned = open_session(tenant="globex"), open_session("cleaned", lifetime=short)
    gone = [idle, oldest, erased_user, deleted, erased_tenant, cleaned]
    references = [session.write("gone", name="web") for session in gone]
    manager.erase_user(tenant="acme", user="bob")
    manager.erase_tenant(tenant="globex")
    manager.delete_session(tenant="acme", user="ann", session="deleted")
    manager.clock.advance(timedelta(hours=1))
    with manager.session(tenant="other", user="x"):
        pass
    answers: dict[int, list[Any]] = {}
    for session, reference in zip(gone, references, strict=True):
        if session is cleaned:
            manager.cleanup()
        calls = [*uses(session), lambda _, who=session: who.write("x"), lambda _, who=session: list(who.results())]
        calls += [lambda _, who=session: who.usage(), lambda _, who=session: who.write("x" * 2_000_000)]
        for number, call in enumerate(calls):
            with statements.counted() as said, pytest.raises(SessionNotFound) as answer:
                call(reference)
            answers.setdefault(number, []).append((type(answer.value), answer.value.args, len(said)))
    for found in answers.values():
        assert found == [found[0]] * len(gone)


def test_what_the_catalogue_keeps_of_a_reference_says_nothing_across_sessions() -> None:
    reference = Reference(hint="web", number=1, tag="aaaaaaaaaa", suffix="")
    hashes = {reference_hash(reference, session_id=session_id) for session_id in ("a" * 32, "b" * 32)}
    assert len(hashes) == 2
    assert all(len(one) == 16 for one in hashes)


@given(
    before=st.text(),
    after=st.text(),
    reference=st.sampled_from(["web-2-aaaaaaaaaa", "abcdefgh-1234567890-a2b3c4d5e7.txt"]),
)
def test_nothing_that_is_no_reference_by_right_stays_one(before: str, after: str, reference: str) -> None:
    text = f"{before}'{reference}'{after}"
    assert reference in without_references(text, is_known=lambda found: found == reference)
    broken = without_references(text, is_known=lambda _: False)
    assert reference not in broken
    # It reads the same.
    assert broken.replace("\u2011", "-") == text.replace("\u2011", "-")
    assert without_references(broken, is_known=lambda _: False) == broken


@pytest.mark.parametrize(
    "text",
    [
        "covid-19-vaccination-rates",
        "section-2-introduction",
        "a-1-aaaaaaaaaab",
        "https://x.org/a-1-b",
    ],
)
def test_what_only_begins_like_a_reference_is_left_alone(text: str) -> None:
    assert without_references(f"see {text}.", is_known=lambda _: False) == f"see {text}."
