"""A process that swaps directories and files for links for ten seconds gets nothing in or out."""

from pathlib import Path

import pytest

from tests.attacks.hammering import Tally, hammer
from tests.attacks.outside import MARK, Outside, differences
from tests.attacks.swapping import Report, attack_haystack, attack_ours, table


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case(15)
def test_swapping_for_ten_seconds_lets_nothing_out_of_ours_and_something_out_of_haystacks(tmp_path: Path) -> None:
    for name in ("ours", "haystack"):
        (tmp_path / name).mkdir(mode=0o700)
    ours = attack_ours(tmp_path / "ours", seconds=10, operations=100_000)
    haystacks = attack_haystack(tmp_path / "haystack", seconds=10, operations=1_000)
    print(table({"ours": ours, "Haystack": haystacks}))
    assert ours.escapes == 0, (ours.total.foreign, ours.changed)
    assert not ours.total.wrong
    assert not ours.total.faults
    assert ours.total.operations >= 100_000
    assert ours.tallies["manager"].answered > 0
    # The attack was there when it was looked for, and it is a real one.
    assert ours.swaps > 1_000
    assert ours.total.refused.total() > 0
    assert haystacks.escapes > 0


def test_each_way_an_operation_may_end_is_counted_as_what_it_is() -> None:
    def refuse() -> tuple[object, object]:
        raise ValueError("not here")

    def fail() -> tuple[object, object]:
        return [][0], None

    once = iter([True, False] * 6)
    ends = {
        "answered": lambda: (b"ours", b"ours"),
        "refused": refuse,
        "foreign": lambda: (MARK.decode() * 3, "ours"),
        "wrong": lambda: (b"ou", b"ours"),
        "faults": fail,
    }
    for kind, operation in ends.items():
        tally = hammer([{operation: 1}], refusals=(ValueError,), go_on=lambda: next(once), count=lambda number: None)
        assert tally.operations == 20
        assert (tally.answered if kind == "answered" else getattr(tally, kind).total()) == 20
    listing = hammer([{lambda: ({"theirs"}, set()): 1}], refusals=(), go_on=lambda: next(once), count=lambda _: None)
    assert listing.foreign.total() == 20


def test_whatever_is_done_outside_is_an_escape(tmp_path: Path) -> None:
    outside = Outside(tmp_path / "outside")
    outside.fill({("o", "i", "n"): 100, ("o", "i", "m"): 200})
    room = outside.path / "room"

    def change(path: Path) -> None:
        path.write_bytes(MARK)

    deeds = [
        lambda: (room / "new").touch(),
        lambda: change(room / "n"),
        lambda: (room / "n").chmod(0o600),
        lambda: (room / "n").rename(room / "other"),
        lambda: (outside.path / "hard" / "n").unlink(),
        lambda: room.chmod(0o755),
    ]
    for deed in deeds:
        before = outside.snapshot()
        assert differences(before, outside.snapshot()) == []
        deed()
        changed = differences(before, outside.snapshot())
        assert changed
        assert Report({"ours": Tally()}, swaps=0, changed=changed, seconds=0).escapes == len(changed)
