"""What a sealed message is bound to: a row of values, written so that no two different rows give the same bytes."""

import struct

_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_LENGTH_OF_NUMBER = _LENGTH.pack(_NUMBER.size)


def bound_context(*parts: str | int | bytes) -> bytes:
    """
    Write values one after the other, each behind its length, so that `("ab", "c")` and `("a", "bc")` differ.

    The context of two rows put together is the context of the whole row: `bound_context(a, b)` equals
    `bound_context(a) + bound_context(b)`. The first value names what the context is for, and how many values follow.

    :param parts: Text (UTF-8, lone surrogates included), whole numbers (8 bytes, little-endian) and bytes.
    :returns: For each value 4 bytes of length, little-endian, and the value. `docs/format.md` pins it.
    :raises ValueError: If a number is negative or has more than 64 bits.
    """
    pieces: list[bytes] = []
    for part in parts:
        if isinstance(part, int):
            if not 0 <= part < 1 << 64:
                raise ValueError("A number of a bound context has 64 bits and no sign.")
            pieces += (_LENGTH_OF_NUMBER, _NUMBER.pack(part))
        else:
            value = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            pieces += (_LENGTH.pack(len(value)), value)
    return b"".join(pieces)
