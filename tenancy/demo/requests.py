"""What the users write to the agent. Plain enough for a script, and said so that a real model does the same."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from haystack.dataclasses import ChatMessage, ToolCall

SYSTEM_PROMPT: Final = (
    "You fetch documents and read them for the user. Long results are stored; you see a pointer with a reference and "
    "read them with read_result, page by page. Call exactly the tools the user names, with exactly these arguments."
)
#: In the `meta` of a user's message, which no model sees: whose run it is.
RUN: Final = "demo_run"
#: Likewise: that the script answers, whatever the model is.
SCRIPTED: Final = "demo_scripted"

_READ_ON: Final = (
    "Then read every stored result to its end with read_result, one page at a time: each page says how to get the "
    "next one. When everything is read, say so in one sentence."
)
_CALL = re.compile(r"^- (\w+) (\{.*\})$", re.MULTILINE)

Call = tuple[str, Mapping[str, Any]]


def request(calls: Sequence[Call], *, run: str, read_on: bool = False, scripted: bool = True) -> ChatMessage:
    """
    Ask for tool calls.

    :param calls: Names of tools and their arguments.
    :param run: Whose run it is.
    :param read_on: Whether stored results are to be read to their ends.
    :param scripted: Whether the script answers even where there is a real model.
    """
    lines = [f"- {tool} {json.dumps(arguments)}" for tool, arguments in calls]
    text = "\n".join(["Make these tool calls, all at once:", *lines, *([_READ_ON] if read_on else [])])
    return ChatMessage.from_user(text, meta={RUN: run, SCRIPTED: scripted})


def calls_in(text: str) -> list[ToolCall]:
    """Return the tool calls that a request asks for."""
    return [ToolCall(tool_name=tool, arguments=json.loads(arguments)) for tool, arguments in _CALL.findall(text)]


def asks_to_read_on(text: str) -> bool:
    """Whether a request asks for stored results to be read."""
    return _READ_ON in text
