"""
Regular expressions from a model: a part of the language that can be bounded, in memory and in time.

What `regex` can do beyond that is refused: recursion and fuzzy matching take memory while they match, a repeat with a
large minimum takes it while it is compiled, and neither is subject to a time limit of its own.
"""

import re
import time
from collections.abc import Iterator
from typing import Final

import regex

from stores.locks import ProcessLock

#: How much processor time the matching of one search may take, all windows together.
_PATTERN_SECONDS: Final = 0.5
#: How far a pattern sees: what stands around a match, and a match itself, count for this far on each side.
REACH_CHARS: Final = 2048
#: How many parts a pattern may have once its repeats are written out, which is what compiling does.
_MAX_PARTS: Final = 5_000
#: How deep groups may be nested.
_MAX_DEPTH: Final = 20
#: Behind a brace these say that it is no repeat, as in JSON, and nothing fuzzy either.
_NO_REPEAT: Final = ("", '"', "'", " ", "\\", "{", "}", "[", "(", "\n")
_GROUPS: Final = re.compile(r"\?(?::|=|!|<=|<!|>|P?<[A-Za-z_][A-Za-z0-9_]{0,30}>|[ims]{1,3}[):])")
_REPEAT: Final = re.compile(r"\{([0-9]{0,6})(,?)([0-9]{0,6})\}")
#: An escape that stands for one character or for a place. `\K`, `\L<…>`, `\R` and `\X` are left out, and so are names.
_ESCAPE: Final = re.compile(
    r"\\(?:[pP]\{\^?[A-Za-z_]{1,30}\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[AbBdDsSwWzZtnrfv0-9]|[^A-Za-z0-9])", re.DOTALL
)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|\[:\^?[a-z]{1,10}:\]|[^\]\\])*\]", re.DOTALL)
_ANY: Final = re.compile(".", re.DOTALL)

Span = tuple[int, int]
#: One at a time: the time limit is of the whole process's processor time, and two at once would end each other.
_TURN: Final = ProcessLock()


class NotSupported(Exception):
    """This is no regular expression, or one of a kind that is refused."""


class Pattern:
    """
    Finds a regular expression in windows of a text. `^` and `$` are the ends of a line.

    :raises NotSupported: If it is none, or of a kind that is refused.
    """

    overlap = 2 * REACH_CHARS

    def __init__(self, query: str) -> None:
        _require_bounded(query)
        try:
            # Not into the cache, which is the process's and would keep what somebody looked for.
            self._pattern = regex.compile(query, regex.MULTILINE, cache_pattern=False)
        except Exception:  # noqa: BLE001 - beside its own errors there are RecursionError, OverflowError and others
            raise NotSupported from None
        self._left = _PATTERN_SECONDS

    def settled(self, length: int) -> int:
        """See `Finder`."""
        # From there on the next window sees as much of what stands before as this one does of what comes after.
        return length - self.overlap // 2

    def spans(self, window: str, *, start: int, end: int) -> Iterator[Span]:
        """See `Finder`."""
        while start < end and (found := self._next(window, start)) is not None and found[0] < end:
            yield found
            start = max(found[1], found[0] + 1)

    def _next(self, window: str, start: int) -> Span | None:
        if self._left <= 0:
            raise TimeoutError
        with _TURN:
            return self._search(window, start)

    def _search(self, window: str, start: int) -> Span | None:
        began = time.thread_time()
        try:
            # `pos`, and not a slice: what stands before still counts for `^` and what looks back. The interpreter is
            # free for other threads meanwhile.
            found = self._pattern.search(window, pos=start, timeout=self._left)
        finally:
            self._left -= time.thread_time() - began
        return None if found is None else found.span()


def _require_bounded(query: str) -> None:
    """Refuse what is not understood here, and what would have too many parts once it is written out."""
    parts = [0]
    last = 0
    position = 0
    while position < len(query):
        letter = query[position]
        if letter == "(":
            position = _end_of_group_head(query, position)
            parts.append(0)
            last = 0
            if len(parts) > _MAX_DEPTH:
                raise NotSupported
            continue
        if letter == ")":
            if len(parts) == 1:
                raise NotSupported
            last = parts.pop() + 1
            parts[-1] += last
            position += 1
        elif letter == "{":
            found = _REPEAT.match(query, position)
            if query[position + 1 : position + 2] in _NO_REPEAT:
                last, position = 1, position + 1
                parts[-1] += 1
                continue
            if found is None or not (found[1] or found[3]):
                raise NotSupported
            times = max(1, int(found[1] or 0))
            parts[-1] += last * (times - 1)
            last *= times
            position = found.end()
        elif letter in "*+?|^$":
            position += 1
        else:
            found = {"\\": _ESCAPE, "[": _CLASS}.get(letter, _ANY).match(query, position)
            if found is None:
                raise NotSupported
            last = 1
            parts[-1] += 1
            position = found.end()
        if parts[-1] > _MAX_PARTS:
            raise NotSupported
    if len(parts) != 1:
        raise NotSupported


def _end_of_group_head(query: str, position: int) -> int:
    if query[position + 1 : position + 2] != "?":
        if query[position + 1 : position + 2] == "*":
            raise NotSupported
        return position + 1
    found = _GROUPS.match(query, position + 1)
    if found is None:
        raise NotSupported
    # Flags alone are a group that ends at once: its bracket comes next.
    return found.end() - found[0].endswith(")")
