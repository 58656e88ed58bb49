"""What the model reads in place of a result that could not be stored."""

import re
from collections.abc import Callable
from typing import Final

from haystack.dataclasses import FileContent, ImageContent, TextContent
from haystack.dataclasses.chat_message import ToolCallResultContentT

from tenancy.errors import (
    KeyUnavailable,
    NoActiveSession,
    QuotaExceeded,
    ResultTooLarge,
    SessionNotFound,
    StorageFull,
    TenancyError,
)
from tenancy.references import without_references
from tenancy.seam.graphemes import head_of, tail_of

#: No notice is longer, whatever the tool returned.
MAX_NOTICE_CHARS: Final = 1999
_HEAD_CHARS: Final = 700
_TAIL_CHARS: Final = 400
_MAX_PARTS: Final = 6
_MAX_LABEL_CHARS: Final = 40

_Part = TextContent | ImageContent | FileContent

_SURROGATES = re.compile("[\ud800-\udfff]")

_NARROWER = "Work with what is shown, or call the tool again for a smaller part."
_LATER = "Work with what is shown, or call the tool again later."
_SHOWN = "Work with what is shown."


def printable(text: str) -> str:
    """
    Make a text safe to send: each lone surrogate becomes U+FFFD, so that it encodes as UTF-8.

    The length does not change, so offsets stay exact.

    :param text: Any text.
    """
    return _SURROGATES.sub("\ufffd", text)


def notice(
    content: ToolCallResultContentT,
    error: BaseException,
    *,
    show: bool = True,
    is_known: Callable[[str], bool] = lambda _: False,
) -> str:
    """
    Say that a result was not stored, why, and what the model can do, with its head and tail.

    :param content: The result: a text, or a list of parts.
    :param error: Why it was not stored. Its message is not shown: only what kind of error it is.
    :param show: Whether to show anything of the content.
    :param is_known: Whether a reference in the content leads somewhere, and so may be shown as it is.
    :returns: At most `MAX_NOTICE_CHARS` characters of valid Unicode.
    """
    why, advice = _reason(error)
    parts: list[_Part] = [TextContent(text=content)] if isinstance(content, str) else list(content)
    text = "\n".join(part.text for part in parts if isinstance(part, TextContent))
    lines = [_described(parts)]
    if show and text:
        lines.append(_shortened(text))
    # Nothing in it may look like what one reads stored results with and cannot.
    shown = without_references(printable("\n".join(lines)), is_known=is_known)
    return f"[Not stored: {why}. {advice}]\n{shown}"[:MAX_NOTICE_CHARS]


def _reason(error: BaseException) -> tuple[str, str]:
    # Numbers stay out: what a tenant has in use is not for its users' models to know.
    if isinstance(error, ResultTooLarge):
        return f"the result has {error.requested_bytes} bytes and one may have {error.limit_bytes}", _NARROWER
    if isinstance(error, QuotaExceeded):
        return "the storage limit is reached", _NARROWER
    if isinstance(error, StorageFull):
        return "the storage is full", _LATER
    if isinstance(error, NoActiveSession):
        return "this run has no session to store results in", _NARROWER
    if isinstance(error, SessionNotFound):
        return "the session has ended", _SHOWN
    if isinstance(error, KeyUnavailable):
        return "the key service does not answer", _LATER
    if isinstance(error, TenancyError) and error.retryable:
        return "the storage does not answer", _LATER
    return "storing it failed", _SHOWN


def _described(parts: list[_Part]) -> str:
    described = [_label(part) for part in parts[:_MAX_PARTS]]
    if len(parts) > _MAX_PARTS:
        described.append(f"and {len(parts) - _MAX_PARTS} more parts")
    return f"The result: {', '.join(described)}."


def _label(part: _Part) -> str:
    if isinstance(part, TextContent):
        return f"text ({len(part.text)} characters)"
    payload, fallback = (part.base64_image, "image") if isinstance(part, ImageContent) else (part.base64_data, "file")
    # Four characters of base64 are three bytes; decoding a large image only to count it would be waste.
    label = " ".join((part.mime_type or fallback).split())[:_MAX_LABEL_CHARS]
    return f"{label} (about {len(payload) * 3 // 4} bytes, not shown)"


def _shortened(text: str) -> str:
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return f"All of it:\n{text}"
    head, tail = head_of(text, _HEAD_CHARS), tail_of(text, _TAIL_CHARS)
    omitted = len(text) - len(head) - len(tail)
    return f"Its beginning:\n{head}\n[{omitted} characters left out. Its end:]\n{tail}"
