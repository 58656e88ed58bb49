"""One search through stored texts, window by window: a large result is never held whole, and no pattern takes long."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from tenancy.errors import KeyDestroyed, ResultCorrupt, ResultNotFound
from tenancy.seam.notices import printable
from tenancy.seam.patterns import NotSupported, Pattern, Span

if TYPE_CHECKING:
    from tenancy.session import Session

_CONTEXT_CHARS: Final = 60
_WINDOW_CHARS: Final = 262_144
#: As large as a window grows where a match goes beyond its end.
_MAX_WINDOW_CHARS: Final = 2**22
#: A search reads at most this much, so that no question of a model's takes minutes. It says where it stopped.
_MAX_SCANNED_CHARS: Final = 64 * 1024 * 1024
#: Of a match that is longer only the beginning is shown.
_SHOWN_CHARS: Final = 200


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


def finder_for(query: str, *, is_pattern: object) -> Finder | str:
    """
    Return what finds a query, or a sentence that says why nothing can.

    :param is_pattern: What a model gave to say that it is a regular expression.
    """
    if str(is_pattern).strip().lower() not in ("true", "yes", "on", "1", "1.0"):
        return Literal(query)
    try:
        return Pattern(query)
    except NotSupported:
        return (
            "query is not a regular expression that can be used here: no recursion, no large repeats, nothing fuzzy. "
            "Make it simpler, or search for a plain text."
        )


class Scan:
    """
    One search.

    :param one_only: Whether only one result is searched, of which it is told if it cannot be read.
    :param start: The character of it to begin at.
    """

    def __init__(self, session: "Session", finder: Finder, *, one_only: bool, start: int = 0) -> None:
        self._session = session
        self._finder = finder
        self._one_only = one_only
        self._left = _MAX_SCANNED_CHARS
        self._start = start
        self._reached = 0
        #: Where each match begins, in the order in which they were given.
        self.offsets: list[int] = []
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
                less = "make the pattern simpler" if self._one_only else "name one result"
                self.limitation = (
                    f" The search took too long and stopped in '{reference}' behind offset {self._reached}; "
                    f"{less}, or search for a plain text."
                )
                return
            except (ResultNotFound, ResultCorrupt, KeyDestroyed):
                # One result that somebody damaged, or deleted meanwhile, must not hide all the others.
                if self._one_only:
                    raise
                self.limitation = " Some results could not be read."

    def _in_one(self, reference: str) -> Iterator[str]:
        # What stands before the start still counts for what looks back.
        offset = max(0, self._start - self._finder.overlap)
        line, searched_to, size = 0, self._start, _WINDOW_CHARS
        while True:
            page = self._session.read_page(reference, offset=offset, max_chars=size)
            line = line or page.line
            length, self._reached = len(page.text), searched_to
            is_last = offset + length >= page.total_chars or not length
            # An empty match may begin where the text ends.
            settled = length + 1 if is_last else self._finder.settled(length)
            # The windows overlap, so that a match across a border is seen, and seen once.
            step, next_size = max(1, length - self._finder.overlap), _WINDOW_CHARS
            for start, end in self._finder.spans(page.text, start=max(0, searched_to - offset), end=settled):
                # Where a window ends it may go on, or be none: that is not where the text ends. Once more, from there.
                if end == length and not is_last and (start > self._finder.overlap or size < _MAX_WINDOW_CHARS):
                    step, settled = max(0, start - self._finder.overlap), start
                    next_size = size if step else size * 4
                    break
                self.offsets.append(offset + start)
                at = line + page.text.count("\n", 0, start)
                yield _match(reference, page.text, (start, end), line=at, offset=offset)
                searched_to = offset + max(end, start + 1)
            searched_to = max(searched_to, offset + settled)
            self._left -= step
            if is_last:
                return
            if self._left <= 0:
                self.limitation = f" The search of '{reference}' stopped at offset {searched_to}."
                return
            line += page.text.count("\n", 0, step)
            offset, size = offset + step, next_size


def folded(text: str) -> str:
    """
    Make upper and lower case alike without changing the length, so that offsets stay exact.

    `find` takes time in proportion to the text whatever is looked for. A regular expression that ignores case takes the
    text times the query: minutes for a text that somebody chose, in which no other thread of the process runs.
    """
    # The one capital that would become two characters, and the one letter that has two small forms.
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def _match(reference: str, text: str, span: Span, *, line: int, offset: int) -> str:
    start, end = max(0, span[0] - _CONTEXT_CHARS), min(len(text), span[1] + _CONTEXT_CHARS)
    if span[1] - span[0] > _SHOWN_CHARS:
        end, rest = span[0] + _SHOWN_CHARS, f" [… {span[1] - span[0]} characters]"
    else:
        rest = ""
    around = " ".join(printable(text[start:end]).split())
    return f"{reference} line {line}, offset {offset + span[0]}: {around}{rest}"
