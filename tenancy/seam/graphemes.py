"""Cutting a text where no character that somebody sees is cut in two."""

from typing import Final

import regex

#: What is looked at beyond a cut. Characters of more code points than that are cut.
_REACH_CHARS: Final = 64
#: Flags are pairs of letters, so where one begins in a row of them depends on how long the row is. Longer ones are cut
#: anywhere: to go through them takes the square of their length.
_MAX_FLAGS: Final = 2_000
_FLAG_LETTERS: Final = ("\U0001f1e6", "\U0001f1ff")
_GRAPHEME: Final = regex.compile(r"\X")


def head_of(text: str, limit: int) -> str:
    """
    Return the beginning of a text, in whole graphemes (Unicode annex 29).

    :param limit: The most code points, also where that cuts the very first grapheme.
    """
    if len(text) <= limit:
        return text
    first = _safe_start(text, limit)
    end = 0
    for found in _GRAPHEME.finditer(text[first : limit + _REACH_CHARS]):
        if first + found.end() > limit:
            break
        end = first + found.end()
    return text[: end or limit]


def tail_of(text: str, limit: int) -> str:
    """
    Return the end of a text, in whole graphemes.

    :param limit: The most code points, also where that cuts the very last grapheme.
    """
    if len(text) <= limit:
        return text
    start = len(text) - limit
    first = _safe_start(text, start)
    for found in _GRAPHEME.finditer(text[first : start + _REACH_CHARS]):
        if first + found.start() >= start:
            return text[first + found.start() :]
    return text[start:]


def _safe_start(text: str, cut: int) -> int:
    start = max(0, cut - _REACH_CHARS)
    while start > 0 and cut - start < _MAX_FLAGS and _FLAG_LETTERS[0] <= text[start - 1] <= _FLAG_LETTERS[1]:
        start -= 1
    return start
