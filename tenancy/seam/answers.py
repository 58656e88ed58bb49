"""Texts for the model: bounded in tokens, always valid Unicode, never an exception."""

import math
import re
from collections.abc import Callable
from typing import Final

from haystack.dataclasses import ChatMessage
from haystack.token_counters import ApproximateTokenCounter, TokenCounter

from tenancy.errors import KeyDestroyed, ResultCorrupt, ResultNotFound, SessionNotFound, TenancyError
from tenancy.references import without_references
from tenancy.seam.notices import printable

NO_SESSION: Final = "This run has no session, so there are no stored results to read."

#: Longer texts are not references of ours. They are refused before anything looks them up.
_MAX_REFERENCE_CHARS: Final = 200
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,15}\s*")
_MAX_NUMBER: Final = 10**15


def as_reference(value: object) -> str | None:
    """
    Take a reference from a model's argument.

    :param value: Anything.
    :returns: The text, or `None` if it cannot be a reference.
    """
    if not isinstance(value, str) or len(value) > _MAX_REFERENCE_CHARS:
        return None
    # Pointers and hints show it in quotes, and models copy those too.
    return value.strip().strip("'\"`") or None


def as_number(value: object) -> int | None:
    """
    Take a whole number from a model's argument: `7`, `7.0` and `"7"` alike.

    :param value: Anything.
    :returns: The number, or `None` if there is none in it or it is absurdly large.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_NUMBER else None
    if isinstance(value, str) and len(value) < 40 and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and abs(value) < _MAX_NUMBER else None


def explained(error: TenancyError, *, list_name: str) -> str:
    """
    Say in a sentence why a result cannot be read and what the model can do.

    :param error: What the session raised.
    :param list_name: The registered name of the tool that lists results.
    """
    if isinstance(error, ResultNotFound):
        return (
            "There is no such result in this session: the reference is wrong or the result has expired. "
            f"Call {list_name}() to see what there is, or call the original tool again."
        )
    if isinstance(error, SessionNotFound):
        return "The session has ended; its results are gone. Call the original tool again if you need its result."
    if isinstance(error, ResultCorrupt | KeyDestroyed):
        return "This result can no longer be read. Call the original tool again if you need it."
    if error.retryable:
        return "The storage does not answer at the moment. Try again later."
    return "This result could not be read. Call the original tool again if you need it."


def tokens_of(text: str, counter: TokenCounter) -> int:
    """
    Count a text as the model gets it.

    :param text: A page, never a whole result: counting takes time.
    :param counter: What counts.
    """
    messages = [ChatMessage.from_user(text)]
    try:
        return math.ceil(counter.count(messages))
    except Exception:  # noqa: BLE001 - somebody's own, in which a mistake must not make every result unreadable
        return ApproximateTokenCounter().count(messages)


def within(text: str, *, budget: int, counter: TokenCounter) -> str:
    """
    Cut a text so that it fits into a budget of tokens, if it does not.

    :param text: An answer.
    """
    length = longest_fitting(lambda count: text[:count], length=len(text), budget=budget, counter=counter)
    return text[:length]


def one_line(text: str, *, limit: int) -> str:
    """
    Make a label of a tool's words: one short line of valid Unicode in which nothing looks like a reference.

    :param text: What a tool is called, or what it said of a file.
    :param limit: How many characters at most.
    """
    return without_references(" ".join(printable(text).split())[:limit], is_known=lambda _: False)


def longest_fitting(compose: Callable[[int], str], *, length: int, budget: int, counter: TokenCounter) -> int:
    """
    Find how much fits into a budget of tokens: a good deal of it, and always at least one.

    :param compose: Makes the whole text for a number of characters or lines.
    :param length: How many there are at most, 1 or more.
    :param budget: The tokens the text may take.
    :param counter: What counts.
    """
    fitting = length
    while fitting > 1:
        tokens = tokens_of(compose(fitting), counter)
        if tokens <= budget:
            break
        # Aim a little below what the ratio says, so that few rounds are needed; each one is strictly smaller.
        fitting = max(1, min(fitting - 1, fitting * budget * 19 // (tokens * 20)))
    return fitting
