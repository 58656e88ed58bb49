"""`search_result` and `list_results`: finding a stored result, or a place in one."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from haystack.token_counters import TokenCounter

from tenancy.errors import ResultNotFound
from tenancy.seam.answers import as_number, as_reference, longest_fitting, one_line, within
from tenancy.seam.scanning import Finder, Literal, Scan, finder_for

if TYPE_CHECKING:
    from tenancy.reading import Result
    from tenancy.session import Session

#: What is rare in texts that one looks for, and frequent in patterns.
_LIKE_A_PATTERN: Final = re.compile(r"[|^$]|\.[*+?]|\\[a-zA-Z]|\[[^\]]+\]|\([^)]*\)")
_MAX_QUERY_CHARS: Final = 500
_MAX_MATCHES: Final = 20
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

    def search(
        self,
        session: "Session",
        *,
        query: object,
        reference: object,
        is_pattern: object,
        offset: object,
        read_name: str,
    ) -> str:
        """
        Return the places where a text occurs: literally, upper and lower case alike; or a regular expression matches.

        :param session: The session of the run.
        :param query: What the model gave.
        :param is_pattern: What it gave to say that this is a regular expression.
        :param reference: What the model gave; without one every text of the session is searched, newest first.
        :param offset: What it gave to begin at, in one result.
        :param read_name: The registered name of the tool that reads on.
        :raises TenancyError: Whatever the session raises.
        """
        if not isinstance(query, str) or not 0 < len(query) <= _MAX_QUERY_CHARS:
            return f"query must be a text of 1 to {_MAX_QUERY_CHARS} characters."
        finder = finder_for(query, is_pattern=is_pattern)
        if isinstance(finder, str):
            return finder
        is_one = reference not in (None, "")
        references = iter([_required(reference)]) if is_one else _texts(session)
        start = as_number(offset) if is_one and offset not in (None, "") else 0
        if start is None or start < 0:
            return "offset must be a whole number of characters, 0 or more."
        scan = Scan(session, finder, one_only=is_one, start=start)
        try:
            matches = list(islice(scan.matches(references), _MAX_MATCHES + 1))
        except ValueError:
            return "That result is not text. Only texts can be searched."
        if not matches:
            where = f"No match in what was searched.{scan.limitation}" if scan.limitation else "No match."
            return where + _advice(query, finder)

        def head(shown: int) -> str:
            more = ""
            if shown < len(matches):
                one = f"the same with offset={scan.offsets[shown]} goes on"
                more = f" There are more; {one if is_one else 'search one result, or for something rarer'}."
            return f"Read on with {read_name}(reference, offset).{more}{scan.limitation}\n"

        return self._fitted(head, matches[:_MAX_MATCHES])

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
            if shown == len(lines):
                return ""
            return f" The rest of this page did not fit: {name}(page={number}, skip={skipped + shown})."

        return self._fitted(lambda shown: f"Read one with {read_name}(reference).{next_page}{left_out(shown)}\n", lines)

    def _fitted(self, head: Callable[[int], str], lines: list[str]) -> str:
        def compose(count: int) -> str:
            return head(count) + "\n".join(lines[:count])

        count = longest_fitting(compose, length=len(lines), budget=self.page_tokens, counter=self.counter)
        # Of what is written in few letters and many tokens even one line may be too much.
        return within(compose(count), budget=self.page_tokens, counter=self.counter)


def _advice(query: str, finder: Finder) -> str:
    """Say what the model may have meant instead, where it found nothing."""
    if isinstance(finder, Literal):
        return " It was taken literally; set regex to search for a pattern." if _LIKE_A_PATTERN.search(query) else ""
    is_cased = query.upper() != query.lower() and "(?i)" not in query
    return " Upper and lower case differ in a pattern; (?i) in front makes them alike." if is_cased else ""


def _required(reference: object) -> str:
    wanted = as_reference(reference)
    if wanted is None:
        raise ResultNotFound
    return wanted


def _texts(session: "Session") -> Iterator[str]:
    return (result.reference for result in session.results() if result.kind == "text")


def _line(result: "Result", *, now: datetime) -> str:
    tool = one_line(result.tool or "unknown tool", limit=60)
    size = f"{result.total_chars} characters" if result.kind == "text" else f"{result.size_bytes} bytes"
    kind = "text" if result.kind == "text" else one_line(result.media_type or "bytes", limit=60)
    age, left = _span(now - result.created_at), _span(result.expires_at - now)
    return f"{result.reference}  {tool}  {kind}, {size}, {age} old, {left} left"


def _span(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
