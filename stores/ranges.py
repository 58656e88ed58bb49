"""The check of a range that every store makes."""


def require_range(*, start: int, length: int, size_bytes: int) -> None:
    """
    Refuse a range that does not lie within a blob of `size_bytes`. An empty range does, also at the very end.

    :raises ValueError: If it does not.
    """
    if start < 0 or length < 0 or start + length > size_bytes:
        raise ValueError("A range must lie within the size of its blob.")
