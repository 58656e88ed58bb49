"""Of small recordings every state is known: what a power loss may leave, no more and no less."""

import random
from pathlib import Path

import pytest

from tests.power_loss.operations import (
    Link,
    Mark,
    Mode,
    Node,
    Operation,
    Recording,
    Rename,
    Resize,
    Sync,
    Unlink,
    Write,
)
from tests.power_loss.states import ALL_SUBSETS_UP_TO, Ground, some_subsets, ways, whole
from tests.power_loss.volume import Standing, Volume, digest, make_real

TOP, OTHER, FILE, NEW = 0, 1, 2, 3
#: There from the beginning: a directory `d`, and a file `old` with something in it. `NEW` is a file to be made.
NODES = {TOP: Node(True, 0o700), OTHER: Node(True, 0o700), FILE: Node(False, 0o600, b"1234"), NEW: Node(False, 0o600)}
MADE = (Link(TOP, "new", NEW), Write(NEW, 0, b"abcd"))
BEFORE = ("old=1234",)


def after(*operations: Operation) -> Ground:
    ground = Ground(Volume.of(Recording(NODES, {TOP: {"d": OTHER, "old": FILE}}, list(operations))))
    for place, operation in enumerate(operations):
        ground.advance(place, operation)
    return ground


def names(volume: Volume) -> tuple[str, ...]:
    """All files of a state, with what is in them."""
    return tuple(
        f"{path}={standing.content.decode().replace(chr(0), '-')}"
        for path, standing in volume.tree().items()
        if standing.content is not None
    )


def left(*operations: Operation) -> set[tuple[str, ...]]:
    ground = after(*operations)
    return {names(ground.state(way)) for way in ways(ground, chance=random.Random(0))}


def states(*files: str) -> set[tuple[str, ...]]:
    """Besides what was there before, each of these files, or with `""` nothing."""
    return {tuple(sorted((*BEFORE, *filter(None, file.split())))) for file in files}


WHOLE_OR_NOT = states("", "new=abcd")
PARTS = states("new=", "new=abcd", "new=ab", "new=--cd", "new=----")


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((), {BEFORE}),
        # Made, and written to: each may be lost, and the bytes may come in part.
        (MADE[:1], states("", "new=")),
        (MADE, states("") | PARTS),
        # The sync of a file says nothing of its name, nor that of the directory of the bytes.
        ((*MADE, Sync(NEW)), WHOLE_OR_NOT),
        ((*MADE, Sync(TOP)), PARTS),
        ((*MADE, Sync(OTHER)), states("") | PARTS),
        ((*MADE, Sync(NEW), Sync(TOP)), states("new=abcd")),
        ((*MADE, Sync(TOP), Sync(NEW, data_only=True)), states("new=abcd")),
        # What was safe is not any more once more is done.
        ((*MADE, Sync(NEW), Sync(TOP), Write(NEW, 4, b"ef")),
         states("new=abcd", "new=abcdef", "new=abcde", "new=abcd-f", "new=abcd--")),
        ((*MADE, Sync(NEW), Sync(TOP), Write(NEW, 1, b"BC")),
         states("new=abcd", "new=aBCd", "new=aBcd", "new=abCd")),
        ((Sync(TOP), *MADE), states("") | PARTS),
        # Later operations without the earlier ones.
        ((*MADE[:1], Sync(TOP), Write(NEW, 0, b"ab"), Write(NEW, 2, b"cd")),
         states("new=", "new=abcd", "new=ab", "new=--cd", "new=a", "new=-b", "new=--", "new=a-cd", "new=-bcd",
                "new=abc", "new=ab-d", "new=ab--")),
        # A rename is there or not; never both names, never none.
        ((Rename(TOP, "old", TOP, "new", FILE),), {("old=1234",), ("new=1234",)}),
        ((Rename(TOP, "old", OTHER, "new", FILE),), {("old=1234",), ("d/new=1234",)}),
        ((Rename(TOP, "old", OTHER, "new", FILE), Sync(FILE)), {("old=1234",), ("d/new=1234",)}),
        ((Rename(TOP, "old", OTHER, "new", FILE), Sync(TOP)), {("d/new=1234",)}),
        ((Rename(TOP, "old", OTHER, "new", FILE), Sync(OTHER)), {("d/new=1234",)}),
        # Its sync settles that the name it came from is no more, also if that name was never safe.
        ((*MADE, Sync(NEW), Rename(TOP, "new", OTHER, "new", NEW), Sync(OTHER)), {("d/new=abcd", "old=1234")}),
        ((*MADE, Sync(NEW), Rename(TOP, "new", TOP, "old", NEW), Sync(TOP)), {("old=abcd",)}),
        # What was removed may come back.
        ((Unlink(TOP, "old"),), {BEFORE, ()}),
        ((Unlink(TOP, "old"), Sync(FILE)), {BEFORE, ()}),
        ((Unlink(TOP, "old"), Sync(TOP)), {()}),
        # A second name is one more.
        ((Link(TOP, "second", FILE), Unlink(TOP, "old")),
         {BEFORE, (), ("old=1234", "second=1234"), ("second=1234",)}),
        # Cut, and grown by nothing.
        ((Resize(FILE, 1),), {("old=1234",), ("old=1",)}),
        ((Resize(FILE, 6),), {("old=1234",), ("old=1234--",)}),
        ((Resize(FILE, 1), Sync(FILE)), {("old=1",)}),
        ((Resize(FILE, 0), Write(FILE, 0, b"ab"), Mark({})),
         {("old=1234",), ("old=",), ("old=ab",), ("old=ab34",), ("old=a",), ("old=-b",), ("old=--",)}),
    ],
)  # fmt: skip
def test_a_power_loss_leaves_exactly_these_states(
    operations: tuple[Operation, ...], expected: set[tuple[str, ...]]
) -> None:
    assert left(*operations) == expected


def test_what_is_in_a_directory_goes_with_it_and_comes_with_it() -> None:
    moved = Rename(TOP, "d", TOP, "trash", OTHER)
    assert left(Link(OTHER, "new", NEW), Sync(OTHER), moved) == {("d/new=", "old=1234"), ("old=1234", "trash/new=")}
    assert left(Unlink(TOP, "d"), Link(OTHER, "new", NEW), Sync(OTHER)) == {("d/new=", "old=1234"), BEFORE}


def test_a_mode_is_not_safe_with_the_bytes_alone() -> None:
    def modes(*operations: Operation) -> set[int]:
        ground = after(*operations)
        return {ground.state(way).modes[FILE] for way in ways(ground, chance=random.Random(0))}

    changed = Mode(FILE, 0o400)
    assert modes(changed) == modes(changed, Sync(FILE, data_only=True)) == {0o400, 0o600}
    assert modes(changed, Sync(FILE)) == {0o400}


def test_the_death_of_the_process_leaves_everything_that_was_done() -> None:
    ground = after(*MADE, Unlink(TOP, "old"))
    assert names(ground.state(whole(ground))) == ("new=abcd",)


def test_of_up_to_so_many_operations_all_subsets_are_tried() -> None:
    many = [Link(TOP, f"name{number}", FILE) for number in range(ALL_SUBSETS_UP_TO)]
    assert len(left(*many)) == 2**ALL_SUBSETS_UP_TO


def test_of_more_operations_those_are_tried_that_break_most() -> None:
    many = [Write(FILE, number, b"x") for number in range(20)] + [
        Link(OTHER, f"name{number}", FILE) for number in range(20)
    ]
    ground = after(*many)
    everything = whole(ground)
    tried = set(some_subsets(ground, chance=random.Random(0)))
    for number in range(40):
        assert frozenset((place, 0) for place in range(number)) in tried
        assert everything - {(number, 0)} in tried
        assert frozenset({(number, 0)}) in tried
    files, directories = (frozenset((place, 0) for place in range(start, start + 20)) for start in (0, 20))
    assert {files, directories, everything, frozenset()} <= tried
    others = tried - set(some_subsets(ground, chance=random.Random(1)))
    # Those by chance; the same ones each time.
    assert len(others) > 10
    assert tried == set(some_subsets(ground, chance=random.Random(0)))
    assert 120 < len(tried) < 150


def test_a_frame_of_the_write_ahead_log_is_one_write() -> None:
    header, page = Write(NEW, 32, b"h" * 24), Write(NEW, 56, b"p" * 512)
    whole_frame = Write(NEW, 32, b"h" * 24 + b"p" * 512)

    def merged(*operations: Operation) -> list[Operation]:
        return Recording(NODES, {}, list(operations)).in_frames().operations

    assert merged(header, page, header, page, Sync(NEW)) == [whole_frame, whole_frame, Sync(NEW)]
    for others in (
        [header, Sync(NEW), page],
        [header, Write(FILE, 56, b"p")],
        [header, Write(NEW, 57, b"p")],
        [page, header],
    ):
        assert merged(*others) == others


def test_a_state_that_is_made_real_is_what_the_model_says(tmp_path: Path) -> None:
    ground = after(*MADE, Link(OTHER, "second", NEW), Mode(NEW, 0o400), Mode(OTHER, 0o500))
    tree = ground.state(whole(ground)).tree()
    tmp_path.chmod(0o755)
    make_real(tree, tmp_path)
    assert (tmp_path / "new").read_bytes() == b"abcd"
    assert (tmp_path / "new").samefile(tmp_path / "d" / "second")
    found = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert found == {"d": 0o500, "d/second": 0o400, "new": 0o400, "old": 0o600}
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    (tmp_path / "d").chmod(0o700)


def test_only_equal_trees_have_equal_digests() -> None:
    one = {"": Standing(0o700, None, ""), "a": Standing(0o600, b"x", "a"), "b": Standing(0o600, b"x", "b")}
    others = [
        {**one, "b": Standing(0o600, b"y", "b")},
        {**one, "b": Standing(0o400, b"x", "b")},
        {**one, "b": Standing(0o600, b"x", "a")},
        {**one, "b": Standing(0o600, None, "b")},
        {**one, "c": Standing(0o600, b"x", "c")},
    ]
    assert len({digest(tree) for tree in (one, *others)}) == 6
    assert digest(dict(one)) == digest(one)
