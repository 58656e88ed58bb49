"""The one grammar of a stored name, and that every store keeps to it before it does anything."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stores.blob import BlobStore
from stores.database import DatabaseStore
from stores.entries import new_file, open_directory, read_file
from stores.filesystem import FilesystemStore
from stores.hostile_names import HOSTILE_NAMES
from stores.memory import MemoryStore
from stores.names import NAME_CHARS, is_name, mint_name, require_name
from stores.sql import Database
from tests.postgres import as_owner
from tests.stores.files import CALLS, INNER, NAME, OUTER
from tests.stores.test_database import make_database

Forbid = Callable[[pytest.MonkeyPatch], None]

#: What is a name, or a name but for its length.
ALMOST = st.text(alphabet="abcxyz234567", min_size=30, max_size=34)
#: Anything at all, and what is a name but for one character.
HOSTILE = st.one_of(
    st.text(),
    ALMOST,
    st.builds(
        lambda name, at, what: name[:at] + what + name[at + 1 :], ALMOST, st.integers(0, 33), st.text(max_size=2)
    ),
    st.from_regex(r"(\.\./|/|%2e|\\)[a-z2-7]{29}[\n/]?", fullmatch=True),
    st.binary(min_size=32, max_size=32),
    st.sampled_from(HOSTILE_NAMES),
)


@given(random=st.binary(min_size=NAME_CHARS, max_size=NAME_CHARS))
def test_whatever_chance_gives_becomes_a_name(random: bytes) -> None:
    name = mint_name(lambda count: random[:count])
    assert is_name(name)
    assert require_name(name) == name
    assert re.fullmatch("[a-z2-7]{32}", name)


@given(at=st.integers(0, NAME_CHARS - 1), one=st.integers(0, 255), other=st.integers(0, 255))
def test_five_bits_of_each_byte_decide_on_a_letter(at: int, one: int, other: int) -> None:
    names = [
        mint_name(lambda count, byte=byte: bytes(at) + bytes([byte]) + bytes(count - at - 1)) for byte in (one, other)
    ]
    assert (names[0] == names[1]) is (one % 32 == other % 32)


def test_no_letter_is_favoured() -> None:
    letters = [mint_name(lambda count, byte=byte: bytes([byte]) * count)[0] for byte in range(256)]
    assert {letters.count(letter) for letter in set(letters)} == {8}
    assert len(set(letters)) == 32


def test_a_name_is_never_the_same() -> None:
    assert len({mint_name() for _ in range(1_000)}) == 1_000


@given(hostile=HOSTILE)
@example(hostile="a" * 32)
@example(hostile="a" * 32 + "\n")
@example(hostile="a" * 31 + "\n")
def test_everything_else_is_no_name(hostile: Any) -> None:
    allowed = set("abcdefghijklmnopqrstuvwxyz234567")
    assert is_name(hostile) is (isinstance(hostile, str) and len(hostile) == 32 and set(hostile) <= allowed)


def forbid(owner: Any, *names: str) -> Forbid:
    """Return what makes every call of these functions a failure."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something happened before the name was checked")

    def apply(patch: pytest.MonkeyPatch) -> None:
        for name in names:
            patch.setattr(owner, name, refuse)

    return apply


@pytest.fixture(scope="module", params=["memory", "filesystem", "sqlite", "postgresql"])
def untouchable(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BlobStore, Forbid]]:
    """A store of each kind in turn, and what forbids every step beyond the check of names."""
    folder = tmp_path_factory.mktemp("names")
    if request.param == "memory":
        memory = MemoryStore()
        yield memory, forbid(memory, "_require_open")
        memory.close()
    elif request.param == "filesystem":
        files = FilesystemStore(folder / "root")
        yield files, forbid(os, *CALLS)
        files.close()
    else:
        url = f"sqlite:///{folder / 'names.sqlite3'}"
        if request.param == "postgresql":
            server = request.getfixturevalue("postgres")
            url = as_owner(server.url(server.create_database()))
        database = make_database(url)
        yield DatabaseStore(database), forbid(Database, "reading", "writing")
        database.close()


@pytest.mark.case(20, 24)
@given(hostile=HOSTILE)
@settings(deadline=None)
def test_no_store_takes_a_step_for_what_is_no_name(untouchable: tuple[BlobStore, Forbid], hostile: Any) -> None:
    assume(not is_name(hostile))
    store, forbidden = untouchable
    room = store.namespace(OUTER, INNER)
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.namespace(hostile, INNER),
        lambda: store.namespace(OUTER, hostile),
        lambda: room.put(hostile, b"x"),
        lambda: room.get(hostile, size_bytes=1),
        lambda: room.get_range(hostile, start=0, length=1, size_bytes=1),
        lambda: room.delete(hostile),
    )
    with pytest.MonkeyPatch.context() as patch:
        forbidden(patch)
        for call in calls:
            with pytest.raises(ValueError, match="stored name"):
                call()


def test_what_is_forbidden_there_are_steps_a_store_takes_for_a_name(untouchable: tuple[BlobStore, Forbid]) -> None:
    store, forbidden = untouchable
    room = store.namespace(OUTER, INNER)
    calls: tuple[Callable[[], object], ...] = (
        lambda: room.put(NAME, b"x"),
        lambda: room.get(NAME, size_bytes=1),
        lambda: room.delete(NAME),
    )
    with pytest.MonkeyPatch.context() as patch:
        forbidden(patch)
        for call in calls:
            with pytest.raises(AssertionError, match="before the name was checked"):
                call()


@pytest.mark.case(20, 24)
@pytest.mark.parametrize("hostile", HOSTILE_NAMES, ids=lambda name: repr(name)[:40])
def test_the_lowest_layer_checks_names_itself(tmp_path: Path, hostile: Any) -> None:
    owner = os.geteuid()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match="stored name"):
            open_directory(folder, hostile, owner=owner, create=True)
        with pytest.raises(ValueError, match="stored name"):
            read_file(folder, hostile, ((0, 0),), size_bytes=0, owner=owner)
        with pytest.raises(ValueError, match="stored name"), new_file(folder, hostile, owner=owner):
            pass
    finally:
        os.close(folder)
    assert list(tmp_path.iterdir()) == []
