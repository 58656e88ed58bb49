"""The check of ranges that every store makes."""

from collections.abc import Sequence


def require_ranges(ranges: Sequence[tuple[int, int]], *, size_bytes: int) -> None:
    """
    Refuse a range that does not lie within a blob of `size_bytes`. An empty range does, also at the very end.

    :param ranges: Each a start and a length.
    :raises ValueError: If one of them does not, or there is none.
    """
    if not ranges:
        raise ValueError("At least one range has to be asked for.")
    for start, length in ranges:
        if start < 0 or length < 0 or start + length > size_bytes:
            raise ValueError("A range must lie within the size of its blob.")
