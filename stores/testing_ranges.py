"""The part of the suite of `stores.testing` on parts of blobs."""

# ruff: noqa: S101 - this is a test suite, which speaks in asserts

import pytest

from stores.blob import Namespace
from stores.errors import BlobCorrupt, BlobNotFound
from stores.names import mint_name


class RangeContract:
    """What a store promises of a part of a blob, and of several."""

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 0), (0, 1), (0, 100_000), (1, 99_999), (99_999, 1), (100_000, 0), (40_000, 20_000)]
    )
    def test_a_range_is_exactly_that_part(self, room: Namespace, start: int, length: int) -> None:
        name, data = mint_name(), content_of(100_000)
        room.put(name, data)
        found = room.get_range(name, start=start, length=length, size_bytes=100_000)
        assert type(found) is bytes
        assert found == data[start : start + length]

    def test_several_ranges_are_exactly_those_parts_in_that_order(self, room: Namespace) -> None:
        name, data = mint_name(), content_of(100_000)
        room.put(name, data)
        for ranges in ([(5, 10)], [(99_000, 1000), (0, 16_400), (3, 0)], [(7, 7), (7, 7)], [(1, 2)] * 4):
            found = room.get_ranges(name, ranges, size_bytes=100_000)
            assert list(found) == [data[start : start + length] for start, length in ranges]
            assert {type(part) for part in found} == {bytes}

    def test_several_ranges_are_refused_like_one(self, room: Namespace) -> None:
        name = mint_name()
        with pytest.raises(BlobNotFound):
            room.get_ranges(name, [(0, 1), (1, 1)], size_bytes=5)
        room.put(name, b"12345")
        with pytest.raises(BlobCorrupt):
            room.get_ranges(name, [(0, 1), (1, 1)], size_bytes=6)
        for ranges in ([(0, 1), (4, 2)], []):
            with pytest.raises(ValueError, match="range"):
                room.get_ranges(name, ranges, size_bytes=5)

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (0, 6), (5, 1), (6, 0), (-5, 10), (2**70, 1)])
    def test_a_range_outside_of_the_size_is_refused(self, room: Namespace, start: int, length: int) -> None:
        name = mint_name()
        room.put(name, b"12345")
        with pytest.raises(ValueError, match="range"):
            room.get_range(name, start=start, length=length, size_bytes=5)


def content_of(size: int) -> bytes:
    """Make so many bytes."""
    # No two blocks are equal, so a part from a wrong place is noticed; and every value of a byte is in it.
    return b"".join(number.to_bytes(8, "big") for number in range(size // 8 + 1))[:size]
