"""The messages that stand in place of results: Haystack's pointers, made bounded, and marks of ours."""

import re
from collections.abc import Callable
from typing import Any

from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage, TextContent

from tenancy.errors import ResultNotFound
from tenancy.references import parse_reference, without_references
from tenancy.seam.binding import Holds, binding_of
from tenancy.seam.graphemes import head_of
from tenancy.seam.notices import printable
from tenancy.seam.paths import MAX_JSON_CHARS
from tenancy.seam.tools import read_tool_of

#: What a message of ours is, in its `meta`: `"read_back"` or `"notice"`. Neither is ever stored.
META_KEY = "tenancy"
#: Where Haystack notes the references of a message it offloaded. Part of `ToolResultPruningCompactor`'s API.
OFFLOADED = "tool_result_offloaded"

#: A pointer lists about this many parts, so that a result of ten thousand does not fill the conversation.
_MAX_LISTED_PARTS = 20
#: An object, or an array of anything that JSON has.
_JSON_BEGINS = re.compile(r"""\s*(?:\{\s*["}]|\[\s*(?:[\]\[{"-]|[0-9]|true|false|null))""")
#: The rest of such a line: two labels, a reference and a few words.
_MAX_LINE_CHARS = 300


def finished(pointer: ChatMessage, state: State, *, content: Any, preview_chars: int) -> ChatMessage:
    """
    Make a pointer of Haystack's bounded and valid Unicode, and say with which tool to read on.

    :param pointer: The message.
    :param content: What it stands for, a text or parts.
    :param state: The Agent's live `State`.
    :param preview_chars: How many characters of a text the pointer shows.
    """
    result = pointer.tool_call_result
    tool = read_tool_of(state)
    if result is None or tool is None or not isinstance(result.result, str):
        return pointer
    text = printable(_in_whole_graphemes(result.result, content, preview_chars=preview_chars))
    # A preview is the tool's words, which may look like a pointer. What it stands for was written a moment ago.
    own, holds = pointer.meta.get(OFFLOADED) or (), Holds(binding_of(state).session)
    text = without_references(text, is_known=lambda each: each in own or holds(each))
    limit = _MAX_LISTED_PARTS * (preview_chars + _MAX_LINE_CHARS)
    if len(text) > limit:
        # At the end of a line, so that no reference is cut in two. Every part is stored and can be listed.
        cut = text.rfind("\n", 0, limit)
        lister = read_tool_of(state, "list")
        where = f"; see {lister.name}()" if lister is not None else ""
        text = f"{text[: cut if cut > 0 else limit]}\n[more parts are stored and not shown here{where}]"
    part = f", or a part of its JSON with {tool.name}(reference, path)" if _looks_like_json(content) else ""
    return replaced(pointer, f"{text}\nRead it with {tool.name}(reference){part}.")


def original_of(message: ChatMessage, read: Callable[[str], Any]) -> Any:
    """
    Return the content behind a message. See `Session.resolve`.

    :param read: Reads one stored result.
    """
    if message.meta.get(META_KEY) == "notice":
        raise ResultNotFound("This result was not stored; the message holds a notice in its place.")
    references = message.meta.get(OFFLOADED)
    if not references:
        result = message.tool_call_result
        return message.text if result is None else result.result
    contents = [read(reference) for reference in references]
    return contents[0] if len(contents) == 1 else contents


def read_back_removed(message: ChatMessage, state: State) -> ChatMessage:
    """
    Say in place of a read-back that was pruned where it is still to be had.

    :param message: What stands there now; returned as it is if it was no page of a result.
    :param state: The Agent's live `State`.
    """
    result, tool = message.tool_call_result, read_tool_of(state)
    if result is None or tool is None or message.meta.get(META_KEY) != "read_back":
        return message
    reference = parse_reference(result.origin.arguments.get("reference"))
    if reference is None:
        return message
    text = f"[Removed to free up context. Read it again with {tool.name}(reference='{reference}').]"
    return replaced(message, text)


def _looks_like_json(content: Any) -> bool:
    if not isinstance(content, str):
        return False
    # A log may begin with a bracket too.
    begins = _JSON_BEGINS.match(content[:200]) is not None
    return begins and content[-100:].rstrip()[-1:] in ("}", "]") and len(content) <= MAX_JSON_CHARS


def _in_whole_graphemes(text: str, content: Any, *, preview_chars: int) -> str:
    # Haystack cuts a preview after so many code points, and marks the cut.
    shown = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextContent)]
    for each in shown:
        whole = head_of(each, preview_chars)
        if len(whole) < min(preview_chars, len(each)):
            text = text.replace(f"Preview: {each[:preview_chars]}...", f"Preview: {whole}...", 1)
    return text


def replaced(message: ChatMessage, content: Any, *, kind: str | None = None) -> ChatMessage:
    """
    Return a tool-result message with other content.

    :param kind: What the message now is, for `META_KEY`.
    """
    result = message.tool_call_result
    if result is None:
        return message
    meta = message.meta if kind is None else {**message.meta, META_KEY: kind}
    return ChatMessage.from_tool(tool_result=content, origin=result.origin, error=result.error, meta=meta)
