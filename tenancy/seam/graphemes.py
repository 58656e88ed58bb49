"""Cutting a text where no character that somebody sees is cut in two."""

from typing import Final

import regex

#: What is looked at beyond a cut. Characters of more code points than that are cut.
_REACH_CHARS: Final = 64
_GRAPHEME: Final = regex.compile(r"\X")


def head_of(text: str, limit: int) -> str:
    """
    Return the beginning of a text, in whole graphemes (Unicode annex 29).

    :param limit: The most code points, also where that cuts the very first grapheme.
    """
    if len(text) <= limit:
        return text
    end = 0
    for found in _GRAPHEME.finditer(text, 0, limit + _REACH_CHARS):
        if found.end() > limit:
            break
        end = found.end()
    return text[: end or limit]


def tail_of(text: str, limit: int) -> str:
    """
    Return the end of a text, in whole graphemes.

    :param limit: The most code points, also where that cuts the very last grapheme.
    """
    if len(text) <= limit:
        return text
    start = len(text) - limit
    for found in _GRAPHEME.finditer(text, max(0, start - _REACH_CHARS)):
        if found.start() >= start:
            return text[found.start() :]
    return text[start:]
