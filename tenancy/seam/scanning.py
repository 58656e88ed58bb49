"""One search through stored texts, window by window: a large result is never held whole, and no pattern takes long."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

import regex

from tenancy.errors import KeyDestroyed, ResultCorrupt, ResultNotFound
from tenancy.seam.notices import printable

if TYPE_CHECKING:
    from tenancy.session import Session

_CONTEXT_CHARS: Final = 60
_WINDOW_CHARS: Final = 262_144
#: A search reads at most this much, so that no question of a model's takes minutes. It says where it stopped.
_MAX_SCANNED_CHARS: Final = 64 * 1024 * 1024
#: How long the matching of one search may take, all windows together. What it takes to read them comes on top.
_PATTERN_SECONDS: Final = 0.5
#: How far a pattern sees: it looks so far back from where it begins, and a longer match may be cut short.
_PATTERN_REACH_CHARS: Final = 4096

Span = tuple[int, int]


class Finder(Protocol):
    """Finds something in a window of a text."""

    #: How many characters two windows have in common, so that nothing is missed where one ends.
    overlap: int

    def settled(self, length: int) -> int:
        """Return up to where a window of this length finds all that begins there; the next one finds the rest."""

    def spans(self, window: str, *, start: int, end: int) -> Iterator[Span]:
        """
        Find the places that begin from `start` on and before `end`, in their order.

        :raises TimeoutError: If all of it together took too long.
        """


class Literal:
    """Finds a text, upper and lower case alike."""

    def __init__(self, query: str) -> None:
        self._query = folded(query)
        self.overlap = len(query) - 1

    def settled(self, length: int) -> int:
        """See `Finder`."""
        return length - self.overlap

    def spans(self, window: str, *, start: int, end: int) -> Iterator[Span]:
        """See `Finder`."""
        text = folded(window)
        while 0 <= (start := text.find(self._query, start)) < end:
            yield start, start + len(self._query)
            start += len(self._query)


class Pattern:
    """
    Finds a regular expression, in bounded time. `^` and `$` are the ends of a line.

    :raises regex.error: If it is none.
    """

    overlap = _PATTERN_REACH_CHARS

    def __init__(self, query: str) -> None:
        self._pattern = regex.compile(query, regex.MULTILINE)
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
        began = time.monotonic()
        try:
            # `pos`, and not a slice: what stands before still counts for `^` and what looks back. The interpreter
            # is free for other threads meanwhile.
            found = self._pattern.search(window, pos=start, timeout=self._left)
        finally:
            self._left -= time.monotonic() - began
        return None if found is None else found.span()


def finder_for(query: str, *, is_pattern: object) -> Finder | str:
    """
    Return what finds a query, or a sentence that says why nothing can.

    :param is_pattern: What a model gave to say that it is a regular expression.
    """
    if is_pattern in (None, False, "", 0) or str(is_pattern).lower() in ("false", "no", "0"):
        return Literal(query)
    try:
        return Pattern(query)
    except Exception:  # noqa: BLE001 - beside its own errors there are RecursionError, OverflowError and others
        return "query is not a regular expression. Correct it, or search for a plain text."


class Scan:
    """
    One search.

    :param one_only: Whether only one result is searched, of which it is told if it cannot be read.
    """

    def __init__(self, session: "Session", finder: Finder, *, one_only: bool) -> None:
        self._session = session
        self._finder = finder
        self._one_only = one_only
        self._left = _MAX_SCANNED_CHARS
        self.limitation = ""

    def matches(self, references: Iterator[str]) -> Iterator[str]:
        """Go through the matches, and set `limitation` to a sentence if something was left out."""
        for reference in references:
            if self._left <= 0:
                self.limitation = " Older results were not searched; give a reference to search one of them."
                return
            try:
                yield from self._in_one(reference)
            except TimeoutError:
                self.limitation = " The search took too long and was stopped; make the pattern simpler."
                return
            except (ResultNotFound, ResultCorrupt, KeyDestroyed):
                # One result that somebody damaged, or deleted meanwhile, must not hide all the others.
                if self._one_only:
                    raise
                self.limitation = " Some results could not be read."

    def _in_one(self, reference: str) -> Iterator[str]:
        offset, line, searched_to = 0, 1, 0
        while True:
            page = self._session.read_page(reference, offset=offset, max_chars=_WINDOW_CHARS)
            reached = offset + len(page.text)
            is_last = reached >= page.total_chars or not page.text
            # An empty match may begin where the text ends.
            settled = len(page.text) + 1 if is_last else self._finder.settled(len(page.text))
            for start, end in self._finder.spans(page.text, start=max(0, searched_to - offset), end=settled):
                at = line + page.text.count("\n", 0, start)
                yield _match(reference, page.text, (start, end), line=at, offset=offset)
                searched_to = offset + max(end, start + 1)
            searched_to = max(searched_to, offset + settled)
            self._left -= len(page.text)
            if is_last:
                return
            if self._left <= 0:
                self.limitation = f" The search of '{reference}' stopped at offset {reached}."
                return
            # The windows overlap, so that a match across a border is seen, and seen once.
            step = max(1, len(page.text) - self._finder.overlap)
            line += page.text.count("\n", 0, step)
            offset += step


def folded(text: str) -> str:
    """
    Make upper and lower case alike without changing the length, so that offsets stay exact.

    `find` takes time in proportion to the text whatever is looked for. A regular expression that ignores case takes the
    text times the query: minutes for a text that somebody chose, in which no other thread of the process runs.
    """
    # The one capital that would become two characters, and the one letter that has two small forms.
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def _match(reference: str, text: str, span: tuple[int, int], *, line: int, offset: int) -> str:
    start, end = max(0, span[0] - _CONTEXT_CHARS), min(len(text), span[1] + _CONTEXT_CHARS)
    around = " ".join(printable(text[start:end]).split())
    return f"{reference} line {line}, offset {offset + span[0]}: {around}"
