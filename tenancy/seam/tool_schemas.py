"""What a model is told of the tools it reads stored results with: names, descriptions, parameters."""

from typing import Any, Final, Literal

Purpose = Literal["read", "search", "list"]

NAMES: Final[dict[Purpose, str]] = {"read": "read_result", "search": "search_result", "list": "list_results"}
DESCRIPTIONS: Final[dict[Purpose, str]] = {
    "read": (
        "Read a stored tool result, or a part of it, one page at a time, from an offset or a line on. "
        "Each page says where it is and how to get the next one."
    ),
    "search": "Find a text (ignoring case) or a regular expression in stored tool results, with offsets to read on.",
    "list": "List the stored tool results of this conversation, newest first.",
}
_REFERENCE: Final = {"type": "string", "description": "Reference of a stored result, exactly as it was given."}
PARAMETERS: Final[dict[Purpose, dict[str, Any]]] = {
    "read": {
        "type": "object",
        "properties": {
            "reference": _REFERENCE,
            "offset": {
                "type": "integer",
                "description": "Character to start at, 0 by default. Negative: from the end.",
            },
            "line": {
                "type": "integer",
                "description": "Line to start at, from 1, in place of offset. Negative: from the end.",
            },
            "lines": {"type": "integer", "minimum": 1, "description": "How many lines at most."},
            "path": {
                "type": "string",
                "description": "For JSON: the part to read, in JMESPath: items[?id==`7` && kind=='a'].name",
            },
        },
        "required": ["reference"],
    },
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "The text to find."},
            "regex": {
                "type": "boolean",
                "description": "Whether query is a regular expression (upper and lower case differ then).",
            },
            "reference": {**_REFERENCE, "description": "The result to search. All of them if left out."},
            "offset": {"type": "integer", "minimum": 0, "description": "Character of that result to start at."},
        },
        "required": ["query"],
    },
    "list": {
        "type": "object",
        "properties": {
            "page": {"type": "integer", "minimum": 1, "description": "Page to show. 1 by default."},
            "skip": {"type": "integer", "minimum": 0, "description": "Entries of the page to skip. 0 by default."},
        },
    },
}
