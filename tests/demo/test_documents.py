"""What becomes a document, who gets which, and by which pieces each is recognised."""

import base64
import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.demo.canaries import CANARY_BYTES, canaries_of, disguises_of, occurring
from tenancy.demo.documents import Document, InputRefused, Kind, deal, own_canaries, read_document
from tenancy.demo.folder import documents_in
from tenancy.demo.installed import installed_documents
from tests.demo.conftest import image, prose

PIECES = st.binary(min_size=CANARY_BYTES, max_size=CANARY_BYTES)


def texts(count: int, *, chars: int = 2000) -> list[Document]:
    return [Document(f"{number}.txt", Kind.TEXT, prose(number, chars=chars)) for number in range(count)]


def test_a_file_is_taken_for_what_it_is() -> None:
    text = prose(1, chars=1500)
    assert read_document("a.txt", text.encode()) == Document("a.txt", Kind.TEXT, text)
    assert read_document("a.csv", text.encode()) == Document("a.csv", Kind.CSV, text)
    assert read_document("a.json", f'["{"x" * 1200}"]'.encode()) is not None
    assert read_document("a.json", text.encode()) == Document("a.json", Kind.TEXT, text)
    png = image(1, size_bytes=1500)
    assert read_document("a.txt", png) == Document("a.txt", Kind.IMAGE, png, "image/png")


def test_line_ends_and_a_byte_order_mark_stay() -> None:
    text = "\ufeff" + "a\r\nb\rc\n" * 200
    found = read_document("a.txt", text.encode())
    assert found is not None
    assert found.content == text
    assert found.data == text.encode()


@pytest.mark.parametrize("data", [b"", b"too short", b"\xff" * 2000, b"a\0b" * 1000, b"\x89PNG\r\n\x1a\n" + b"x" * 900])
def test_what_is_neither_text_nor_image_or_too_small_is_no_document(data: bytes) -> None:
    assert read_document("a.txt", data) is None


def test_everybody_gets_a_text_and_nobody_anothers() -> None:
    hands = deal([*texts(7), Document("a.png", Kind.IMAGE, image(1, size_bytes=2000), "image/png")], hands=6)
    assert sorted(len(hand) for hand in hands) == [1, 1, 1, 1, 2, 2]
    assert all(hand[0].kind is Kind.TEXT for hand in hands)
    for hand in hands:
        others = [each for other in hands if other is not hand for each in other]
        own = own_canaries(hand, others=others)
        assert own
        assert not any(occurring(own, each.data) for each in others)


def test_a_text_is_cut_into_parts_that_make_the_whole() -> None:
    (whole,) = texts(1, chars=7001)
    hands = deal([whole], hands=6)
    assert "".join(str(document.content) for (document,) in hands) == whole.content
    assert len({document.name for (document,) in hands}) == 6


@pytest.mark.parametrize(
    "documents",
    [
        [],
        [Document("a.png", Kind.IMAGE, image(1, size_bytes=2000), "image/png")],
        texts(5, chars=1100),
        [Document(f"{number}.txt", Kind.TEXT, "the same words again " * 100) for number in range(6)],
    ],
)
def test_too_little_is_refused(documents: list[Document]) -> None:
    with pytest.raises(InputRefused):
        deal(documents, hands=6)


def test_a_folder_is_read_without_what_is_hidden_linked_or_double(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for seed, name in enumerate(["a.txt", "sub/b.txt", ".hidden", ".git/c.txt"]):
        (tmp_path / name).write_text(prose(seed, chars=1500))
    (tmp_path / "copy.txt").write_text(prose(0, chars=1500))
    (tmp_path / "link.txt").symlink_to(tmp_path / "sub" / "b.txt")
    os.mkfifo(tmp_path / "pipe")
    assert [document.name for document in documents_in(tmp_path)] == ["a.txt", "sub/b.txt"]


def test_a_folder_of_hundreds_is_cut_short(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(prose(number, chars=1100))
    assert len(documents_in(tmp_path)) == 24


def test_installed_packages_have_something_of_every_kind() -> None:
    documents = installed_documents(each=6)
    assert {document.kind for document in documents} == set(Kind)
    assert len([document for document in documents if document.kind is not Kind.IMAGE]) >= 6
    assert len({document.content for document in documents}) == len(documents)


@given(PIECES, st.binary(max_size=7), st.binary(max_size=7))
def test_a_piece_is_recognised_in_whatever_it_is_written(piece: bytes, before: bytes, after: bytes) -> None:
    whole = before + piece + after
    forms = disguises_of(piece)
    for written in (whole, base64.b64encode(whole), base64.urlsafe_b64encode(whole), whole.hex().encode()):
        assert occurring(forms, written)
    assert occurring(forms, whole.hex().upper().encode())


@given(st.text(string.printable, min_size=CANARY_BYTES, max_size=CANARY_BYTES))
def test_a_text_is_recognised_in_utf_16(text: str) -> None:
    assert occurring(disguises_of(text.encode()), f"before {text} after".encode("utf-16-le"))


@given(PIECES, PIECES)
def test_one_piece_is_not_taken_for_another(piece: bytes, other: bytes) -> None:
    written = other + base64.b64encode(other) + other.hex().encode()
    assert occurring(disguises_of(piece), written) == (piece == other)


def test_canaries_lie_along_the_whole_document() -> None:
    data = prose(3, chars=50_000).encode()
    places = sorted(data.index(piece) for piece in canaries_of(data, count=12))
    assert len(places) == 12
    assert places[0] < 5_000
    assert places[-1] > 40_000


@pytest.mark.parametrize("data", [b"", b"short", b"-" * 5000, b"ab" * 5000])
def test_what_is_the_same_all_over_has_no_canaries(data: bytes) -> None:
    assert canaries_of(data, count=3) == []
