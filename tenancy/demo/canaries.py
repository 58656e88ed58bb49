"""Canaries: short pieces of a document by which it is recognised wherever it turns up."""

import base64
from collections.abc import Iterable, Sequence
from typing import Final

#: Long enough that nothing but the document holds it, short enough to lie within one page of a database.
CANARY_BYTES: Final = 24
#: A row of dashes or of zeros is no canary.
_DISTINCT_BYTES: Final = 8
#: How many places of a document are tried.
_PLACES: Final = 96


def canaries_of(data: bytes, *, count: int, absent_from: Sequence[bytes] = ()) -> list[bytes]:
    """
    Choose pieces of a document, spread over its length.

    :param data: The document.
    :param count: How many to choose at most.
    :param absent_from: Other documents, in which none of the pieces may occur.
    :returns: The pieces; fewer than `count`, or none, if the document has no more that tell it from the others.
    """
    last = len(data) - CANARY_BYTES
    if last < 0:
        return []
    chosen: list[bytes] = []
    for place in _spread(_PLACES):
        start = last * place // (_PLACES - 1)
        piece = data[start : start + CANARY_BYTES]
        if len(set(piece)) < _DISTINCT_BYTES or piece in chosen or any(piece in other for other in absent_from):
            continue
        chosen.append(piece)
        if len(chosen) == count:
            break
    return chosen


def disguises_of(piece: bytes) -> list[bytes]:
    """
    Return a piece as it is and in the forms in which bytes are usually written down: UTF-16, hex, base64.

    :param piece: A canary, a name or a key.
    """
    forms = [piece, piece.hex().encode("ascii"), piece.hex().upper().encode("ascii")]
    for shift in range(3):
        # A piece in the middle of a base64 text begins at any of three places; what the neighbours touch is cut off.
        encoded = base64.b64encode(b"\0" * shift + piece)
        whole = encoded[(0, 2, 3)[shift] : (shift + len(piece)) * 8 // 6]
        forms += [whole, whole.replace(b"+", b"-").replace(b"/", b"_")]
    # A UTF-8 sequence that the cut went through has no UTF-16 form, and needs none.
    forms.append(piece.decode("utf-8", "ignore").encode("utf-16-le"))
    return list(dict.fromkeys(form for form in forms if len(form) >= len(piece)))


def occurring(pieces: Iterable[bytes], data: bytes) -> bool:
    """Whether any of the pieces occurs in the data."""
    return any(piece in data for piece in pieces)


def _spread(count: int) -> Iterable[int]:
    # 0, 7, 14, … and round again: a document is sampled along its whole length before its neighbourhoods are.
    step = 7
    return (place for first in range(step) for place in range(first, count, step))
