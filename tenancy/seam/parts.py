"""What a tool returned, made fit for Haystack's hook: a text or parts, with labels that may stand in a pointer."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from haystack.dataclasses import FileContent, ImageContent, TextContent

_MAX_MEDIA_TYPE_CHARS = 127
#: A file name or MIME type in a pointer.
_MAX_LABEL_CHARS = 80
_PARTS = (TextContent, ImageContent, FileContent)


def text_or_parts(content: Any) -> Any:
    """
    Return a result as a text or as parts. Anything else, which a tool with `raw_result` may return, would make
    Haystack's hook raise.

    :param content: Anything.
    :returns: The same object if it is a text or parts; otherwise a text of it.
    """
    if isinstance(content, str) or (
        isinstance(content, list | tuple) and all(isinstance(part, _PARTS) for part in content)
    ):
        return content
    return _as_text(content)


def with_plain_labels(content: Any) -> Any:
    """
    Return parts whose file names and MIME types may stand in a pointer.

    :param content: A text, which stays as it is, or parts.
    """
    # Haystack's pointer shows a part's file name and MIME type as the tool gave them: of any length, and free to close
    # the quotes and go on as another pointer. What is stored does not change; a file name's suffix stays.
    if isinstance(content, str):
        return content
    return [_plainly_labelled(part) for part in content]


def media_types(content: Any) -> list[str | None]:
    """
    Return the MIME type of each part, as far as the tool gave one.

    :param content: A text, which has none, or parts.
    """
    # Haystack writes the parts in their order. The type is the tool's word, so it is cut to what a type may be.
    parts = [] if isinstance(content, str) else content
    types = [getattr(part, "mime_type", None) for part in parts]
    return [media_type[:_MAX_MEDIA_TYPE_CHARS] if isinstance(media_type, str) else None for media_type in types]


def _plainly_labelled(part: Any) -> Any:
    labels = {
        name: _plain_label(label)
        for name in ("mime_type", "filename")
        if isinstance(label := getattr(part, name, None), str)
    }
    return replace(part, validation=False, **labels) if labels else part


def _plain_label(text: str) -> str:
    if len(text) > _MAX_LABEL_CHARS:
        text = f"{text[: _MAX_LABEL_CHARS // 2]}~{text[-_MAX_LABEL_CHARS // 2 :]}"
    return "".join(letter if letter.isprintable() and letter not in "'\"`" else "_" for letter in text)


def _as_text(content: Any) -> str:
    # Not even `str` of a stranger's object can be relied on.
    with suppress(Exception):
        return json.dumps(content, ensure_ascii=False)
    with suppress(Exception):
        return str(content)
    return f"[{type(content).__name__}]"
