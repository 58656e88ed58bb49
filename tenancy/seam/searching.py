"""`search_result` and `list_results`: finding a stored result, or a place in one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from haystack.token_counters import TokenCounter

from tenancy.errors import KeyDestroyed, ResultCorrupt, ResultNotFound
from tenancy.seam.answers import as_number, as_reference, longest_fitting
from tenancy.seam.notices import printable

if TYPE_CHECKING:
    from tenancy.reading import Result
    from tenancy.session import Session

_MAX_QUERY_CHARS: Final = 500
_MAX_MATCHES: Final = 20
_CONTEXT_CHARS: Final = 60
_WINDOW_CHARS: Final = 262_144
#: A search reads at most this much, so that no question of a model's takes minutes. It says where it stopped.
_MAX_SCANNED_CHARS: Final = 64 * 1024 * 1024
_RESULTS_A_PAGE: Final = 20


@dataclass(frozen=True, slots=True)
class Searcher:
    """
    Searches and lists for a model.

    :param counter: Counts an answer.
    :param page_tokens: The most tokens an answer takes.
    """

    counter: TokenCounter
    page_tokens: int

    def search(self, session: "Session", *, query: object, reference: object, read_name: str) -> str:
        """
        Return the places where a text occurs: literally, upper and lower case alike.

        :param session: The session of the run.
        :param query: What the model gave.
        :param reference: What the model gave; without one every text of the session is searched, newest first.
        :param read_name: The registered name of the tool that reads on.
        :raises TenancyError: Whatever the session raises.
        """
        if not isinstance(query, str) or not 0 < len(query) <= _MAX_QUERY_CHARS:
            return f"query must be a text of 1 to {_MAX_QUERY_CHARS} characters."
        references = _texts(session) if reference is None else iter([_required(reference)])
        scan = _Scan(session, query, one_only=reference is not None)
        matches = list(islice(scan.matches(references), _MAX_MATCHES + 1))
        if not matches:
            return f"No match.{scan.limitation}"
        more = " There are more; search for something rarer." if len(matches) > _MAX_MATCHES else ""
        lines = matches[:_MAX_MATCHES]
        head = f"Read on with {read_name}(reference, offset).{more}{scan.limitation}\n"
        return self._fitted(head, lines, lambda _shown: "[more matches left out]")

    def listed(self, session: "Session", *, page: object, skip: object, read_name: str, name: str) -> str:
        """
        Return a page of what is stored, newest first.

        :param session: The session of the run.
        :param page: What the model gave.
        :param skip: What the model gave: entries of that page it has seen, where not all of them fitted.
        :param read_name: The registered name of the tool that reads.
        :param name: The registered name of the tool that lists.
        :raises TenancyError: Whatever the session raises.
        """
        number = as_number(page if page is not None else 1)
        if number is None or number < 1:
            return "page must be a whole number, 1 or more."
        skipped = as_number(skip if skip is not None else 0)
        if skipped is None or not 0 <= skipped < _RESULTS_A_PAGE:
            return f"skip must be a whole number from 0 to {_RESULTS_A_PAGE - 1}."
        end = min(number * _RESULTS_A_PAGE, 2**62)
        start = end - _RESULTS_A_PAGE + skipped
        results = list(islice(session.results(), start, end + 1))
        if not results:
            return "There are no stored results." if start == 0 else "There are no more results."
        has_more = len(results) > end - start
        next_page = f" More: {name}(page={number + 1})." if has_more else ""
        lines = [_line(result, now=datetime.now(UTC)) for result in results[: end - start]]

        def left_out(shown: int) -> str:
            return f"[The rest of this page did not fit: {name}(page={number}, skip={skipped + shown})]"

        return self._fitted(f"Read one with {read_name}(reference).{next_page}\n", lines, left_out)

    def _fitted(self, head: str, lines: list[str], omission: Callable[[int], str]) -> str:
        def compose(count: int) -> str:
            shown = lines if count == len(lines) else [*lines[:count], omission(count)]
            return head + "\n".join(shown)

        return compose(longest_fitting(compose, length=len(lines), budget=self.page_tokens, counter=self.counter))


def _required(reference: object) -> str:
    wanted = as_reference(reference)
    if wanted is None:
        raise ResultNotFound
    return wanted


def _texts(session: "Session") -> Iterator[str]:
    return (result.reference for result in session.results() if result.kind == "text")


class _Scan:
    """One search, window by window: a large result is never held whole."""

    def __init__(self, session: "Session", query: str, *, one_only: bool) -> None:
        self._session = session
        self._one_only = one_only
        self._query = _folded(query)
        self._overlap = len(query) - 1
        self._left = _MAX_SCANNED_CHARS
        self.limitation = ""

    def matches(self, references: Iterator[str]) -> Iterator[str]:
        for reference in references:
            if self._left <= 0:
                self.limitation = " Older results were not searched; give a reference to search one of them."
                return
            try:
                yield from self._in_one(reference)
            except (ResultNotFound, ResultCorrupt, KeyDestroyed):
                # One result that somebody damaged, or deleted meanwhile, must not hide all the others.
                if self._one_only:
                    raise
                self.limitation = " Some results could not be read."

    def _in_one(self, reference: str) -> Iterator[str]:
        offset, line, searched_to = 0, 1, 0
        while True:
            page = self._session.read_page(reference, offset=offset, max_chars=_WINDOW_CHARS)
            folded = _folded(page.text)
            while (start := folded.find(self._query, max(0, searched_to - offset))) >= 0:
                end = start + len(self._query)
                at = line + page.text.count("\n", 0, start)
                yield _match(reference, page.text, (start, end), line=at, offset=offset)
                searched_to = offset + end
            self._left -= len(page.text)
            reached = offset + len(page.text)
            if reached >= page.total_chars or not page.text:
                return
            if self._left <= 0:
                self.limitation = f" The search of '{reference}' stopped at offset {reached}."
                return
            # The windows overlap, so that a match across a border is seen, and seen once.
            step = max(1, len(page.text) - self._overlap)
            line += page.text.count("\n", 0, step)
            offset += step


def _folded(text: str) -> str:
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


def _line(result: "Result", *, now: datetime) -> str:
    tool = " ".join(printable(result.tool or "unknown tool").split())[:60]
    size = f"{result.total_chars} characters" if result.kind == "text" else f"{result.size_bytes} bytes"
    kind = "text" if result.kind == "text" else (result.media_type or "bytes")
    return f"{result.reference}  {tool}  {kind}, {size}, {_age(now - result.created_at)} old"


def _age(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
