"""
A part of a JSON result, by a path from a model: JMESPath (https://jmespath.org/specification.html), bounded.

The library evaluates whatever it is given to its end. An expression of sixty characters can make a result of sixty
doublings, so what could grow beyond its input is refused before, and what merely takes long is stopped.
"""

import json
import re
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from jmespath.ast import identity
from jmespath.exceptions import JMESPathTypeError
from jmespath.functions import Functions, signature
from jmespath.visitor import Options, TreeInterpreter

from tenancy.seam.path_expressions import NotUsable, Path

_MAX_PATH_CHARS: Final = 500
#: Of a JSON result, and of a part.
MAX_JSON_CHARS: Final = 4 * 2**20
#: How many values a JSON result may hold, and how many objects and arrays. Parsing takes the interpreter for itself:
#: some 50 milliseconds for so many, and more in a process that has much for the garbage collector to look at.
_MAX_VALUES: Final = 200_000
_MAX_CONTAINERS: Final = 50_000
#: How many values the evaluation of a path may make, by what the expression says and by how many there are.
_MAX_MADE: Final = 2_000_000
#: How many values two things may have that are compared: that is one step, in which nobody looks at the clock.
_MAX_COMPARED: Final = 1_000
#: How much processor time finding a part and writing it out may take, each.
_SECONDS: Final = 0.5
#: How many pieces of JSON are written between two looks at the clock.
_PIECES: Final = 4096
_SHOWN_KEYS: Final = 20
_SHOWN_KEY_CHARS: Final = 40
#: What has a part that comes first, from which the rest of it goes on.
_CHAINS: Final = ("subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection")
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_JSON: Final = "This result is not JSON. Read it without a path."
_QUOTES: Final = "In a path texts stand in single quotes, and numbers, true, false and null in backticks: [?id==`7`]."


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
    try:
        expression = Path(path)
    except NotUsable as why:
        raise NoPart(f"{why} {_QUOTES} Others: items[0].name, items[*].[id, name], keys(@), length(items).") from None
    values, containers = _counted(document)
    if values > _MAX_VALUES or containers > _MAX_CONTAINERS:
        # Some of it may be in texts.
        values, containers = _counted(_TEXT.sub("", document))
    if values > _MAX_VALUES or containers > _MAX_CONTAINERS:
        most = f"{_MAX_VALUES} values and {_MAX_CONTAINERS} objects and arrays"
        raise NoPart(f"A path reaches into results of at most {most}. Search this one instead.")
    try:
        value = json.loads(document.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        raise NoPart(_NOT_JSON) from None
    if values * expression.growth > _MAX_MADE:
        raise NoPart("That path would make too much of this result. Select less at once.")
    found = _found(expression.node, value)
    if found == [] and _fits_nothing(expression.node, value):
        raise NoPart(f"[]: nothing fits the filter. {_QUOTES}")
    return found if isinstance(found, str) else _written(found)


def _counted(document: str) -> tuple[int, int]:
    """Return about how many values a JSON text holds, and how many objects and arrays, at most."""
    containers = document.count("[") + document.count("{")
    return containers + document.count(","), containers


def _found(node: Any, value: Any) -> Any:
    interpreter, nothing = _Bounded(), None
    try:
        found = interpreter.visit(node, value)
        if found is None and not _is_null(interpreter, node, value):
            nothing = NoPart(f"Nothing is at that path. {_deepest(interpreter, node, value)}")
    except TimeoutError:
        raise NoPart("Finding that part took too long. Use a simpler path.") from None
    except JMESPathTypeError as error:
        what = f"{error.function_name}() was given {error.actual_type}"
        raise NoPart(f"The path does not fit the result: {what}. {_outline(value)}") from None
    except Exception:  # noqa: BLE001 - the library has errors of its own, and lets through many of Python's
        raise NoPart(f"The path does not fit the result. {_outline(value)}") from None
    if nothing is not None:
        raise nothing
    return found


def _fits_nothing(node: Any, value: Any) -> bool:
    """Whether a path begins with a filter, which leaves nothing of what it is put on."""
    while node["type"] in _CHAINS:
        if node["type"] == "filter_projection":
            left, _, condition = node["children"]
            return bool(_found({**node, "children": [left, identity(), condition]}, value) == [])
        node = node["children"][0]
    return False


def _is_null(interpreter: "_Bounded", node: Any, value: Any) -> bool:
    """Whether the last step of a path leads to what is there and is null."""
    holder, last = value, node
    if node["type"] == "current":
        return value is None
    if node["type"] in ("subexpression", "pipe", "index_expression"):
        holder, last = interpreter.visit(_beginning(node), value), node["children"][-1]
    if last["type"] == "index" and isinstance(holder, list):
        return bool(-len(holder) <= last["value"] < len(holder))
    return last["type"] == "field" and isinstance(holder, dict) and last["value"] in holder


def _deepest(interpreter: "_Bounded", node: Any, value: Any) -> str:
    """Describe what the longest beginning of a path leads to."""
    while node["type"] in _CHAINS:
        node = _beginning(node)
        found = interpreter.visit(node, value)
        if found is not None and node["type"] not in ("identity", "current"):
            return f"What comes before it is there. {_outline(found)}"
    return _outline(value)


def _beginning(node: Any) -> Any:
    """Return the tree of a path without its last step."""
    children = node["children"]
    return {**node, "children": children[:-1]} if node["type"] == "subexpression" and len(children) > 2 else children[0]


class _Comparing(Functions):
    """The functions of the library, of which one compares."""

    @signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: Any, search: Any) -> bool:
        if isinstance(search, dict | list):
            # Each element would be compared with it.
            raise TimeoutError
        return search in subject


def _carefully(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(one: Any, other: Any) -> Any:
        is_long = isinstance(one, dict | list) and isinstance(other, dict | list) and len(one) == len(other)
        if is_long and not _is_small(one):
            raise TimeoutError
        return compare(one, other)

    return compared


class _Bounded(TreeInterpreter):
    """The library's interpreter, which gives up when its time is over."""

    COMPARATOR_FUNC: ClassVar = {
        name: _carefully(compare) if name in ("eq", "ne") else compare
        for name, compare in TreeInterpreter.COMPARATOR_FUNC.items()
    }

    def __init__(self) -> None:
        super().__init__(Options(custom_functions=_Comparing()))
        self._until = time.thread_time() + _SECONDS

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        if time.thread_time() > self._until:
            raise TimeoutError
        return super().visit(node, *args, **kwargs)


def _is_small(value: Any) -> bool:
    left, waiting = _MAX_COMPARED, [value]
    while waiting and left > 0:
        each = waiting.pop()
        if isinstance(each, dict | list):
            left -= len(each)
            if left > 0:
                waiting.extend(each.values() if isinstance(each, dict) else each)
    return left > 0


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
