"""
A part of a JSON result, by a path from a model: JMESPath (https://jmespath.org/specification.html), bounded.

The library evaluates whatever it is given to its end. An expression of sixty characters can make a result of sixty
doublings, so what could grow beyond its input is refused before, and what merely takes long is stopped.
"""

import json
import time
from math import prod
from typing import Any, Final

import jmespath
from jmespath.parser import Parser
from jmespath.visitor import TreeInterpreter

_MAX_PATH_CHARS: Final = 500
#: Of a JSON result, and of a part. Parsing takes the interpreter for itself: some 50 milliseconds at this size.
MAX_JSON_CHARS: Final = 4 * 2**20
#: How much processor time finding a part and writing it out may take, each.
_SECONDS: Final = 0.5
#: How many times as much as the result the answer may hold, by what the expression says.
_MAX_GROWTH: Final = 32
#: What these return is one value, whatever they are given.
_SINGLE: Final = (
    "abs",
    "avg",
    "ceil",
    "contains",
    "ends_with",
    "floor",
    "length",
    "starts_with",
    "sum",
    "to_number",
    "type",
)
#: And these return what they are given, or parts of it. `join` and `to_string`, which are in neither, make strings that
#: grow with each use.
_OTHERS: Final = (
    "keys",
    "map",
    "max",
    "max_by",
    "merge",
    "min",
    "min_by",
    "not_null",
    "reverse",
    "sort",
    "sort_by",
    "to_array",
    "values",
)
#: How many pieces of JSON are written between two looks at the clock.
_PIECES: Final = 4096
_SHOWN_KEYS: Final = 20
_SHOWN_KEY_CHARS: Final = 40


class NoPart(Exception):
    """There is no such part. The message is a sentence for the model."""


def part_of(document: str, path: object) -> str:
    """
    Return a part of a JSON text: a string as it is, anything else as JSON.

    :param document: At most `MAX_JSON_CHARS` characters.
    :param path: What a model gave.
    :raises NoPart: If there is none. The message says why, and what the document looks like if that helps.
    """
    if not isinstance(path, str) or not 0 < len(path) <= _MAX_PATH_CHARS:
        raise NoPart(f"path must be a JMESPath expression of 1 to {_MAX_PATH_CHARS} characters.")
    expression = _parsed(path.strip())
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        raise NoPart("This result is not JSON. Read it without a path, or search it.") from None
    try:
        found = _Bounded().visit(expression, value)
    except TimeoutError:
        raise NoPart("Finding that part took too long. Use a simpler path.") from None
    except Exception:  # noqa: BLE001 - the library has errors of its own, and lets through many of Python's
        raise NoPart(f"The path does not fit the result. {_outline(value)}") from None
    if found is None:
        raise NoPart(f"Nothing is at that path. {_outline(value)}")
    return found if isinstance(found, str) else _written(found)


def _parsed(path: str) -> Any:
    # Many a model writes JSONPath, which begins with what is no JMESPath.
    for start in ("$.", "$"):
        path = path.removeprefix(start)
    try:
        expression = jmespath.compile(path or "@").parsed
        growth = _growth(expression)
    except Exception:  # noqa: BLE001 - likewise
        growth, expression = _MAX_GROWTH + 1, None
    finally:
        # The library keeps what it parsed for the whole process, and that is what somebody looked for.
        Parser.purge()
    if growth > _MAX_GROWTH:
        raise NoPart(
            "path is not a JMESPath expression that can be used here. Examples: items[0].name, "
            "items[?kind=='a'].[id, name], keys(@), length(items). There is no join and no to_string."
        )
    return expression


def _growth(node: Any) -> int:
    """Return how many times as many values as there were an expression may make. Refuse what has no bound."""
    kind, children, name = node["type"], node.get("children", []), node.get("value")
    if kind == "literal":
        return _size(name)
    if kind == "slice":
        return 1
    if kind == "function_expression" and name not in (*_SINGLE, *_OTHERS):
        raise ValueError
    parts = [_growth(child) for child in children]
    if kind in ("comparator", "not_expression") or (kind == "function_expression" and name in _SINGLE):
        growth = 1
    elif kind in ("multi_select_list", "multi_select_dict") or name in ("merge", "to_array"):
        growth = 1 + sum(parts)
    elif kind in ("and_expression", "or_expression"):
        growth = max(parts)
    else:
        # One after the other: of what the first makes, the next may make more. A filter's condition makes nothing.
        growth = prod(parts[:2] if kind == "filter_projection" else parts)
    if growth > _MAX_GROWTH:
        raise ValueError
    return growth


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(_size(each) for each in value.values())
    return 1 + sum(_size(each) for each in value) if isinstance(value, list) else 1


class _Bounded(TreeInterpreter):
    """The library's interpreter, which gives up when its time is over."""

    def __init__(self) -> None:
        super().__init__()
        self._until = time.thread_time() + _SECONDS

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        if time.thread_time() > self._until:
            raise TimeoutError
        return super().visit(node, *args, **kwargs)


def _written(value: Any) -> str:
    until, pieces, length = time.thread_time() + _SECONDS, [], 0
    try:
        for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            pieces.append(piece)
            length += len(piece)
            is_late = len(pieces) % _PIECES == 0 and time.thread_time() > until
            if is_late or length > MAX_JSON_CHARS:
                raise NoPart(f"That part is too large. {_outline(value)}")
    except (RecursionError, ValueError, TypeError):
        raise NoPart("That part cannot be written as JSON.") from None
    return "".join(pieces)


def _outline(value: Any) -> str:
    """Say what a JSON value is, so that the next path fits."""
    if isinstance(value, dict):
        return f"It is an object with {_keys(value)}."
    if isinstance(value, list):
        inside = f"; the first is an object with {_keys(value[0])}" if value and isinstance(value[0], dict) else ""
        return f"It is an array of {len(value)}{inside}."
    return "It is a single value."


def _keys(value: dict[str, Any]) -> str:
    shown = [json.dumps(key[:_SHOWN_KEY_CHARS], ensure_ascii=False) for key in list(value)[:_SHOWN_KEYS]]
    more = f" and {len(value) - len(shown)} more" if len(value) > len(shown) else ""
    return f"the keys {', '.join(shown)}{more}" if shown else "no keys"
