"""A path as a model wrote it: taken as it was meant, parsed, and judged by how much it may make."""

import re
from math import prod
from typing import Any, Final

import jmespath
from jmespath.parser import Parser

#: How many times as many values as there are an expression may make.
_MAX_GROWTH: Final = 32
#: What these return is one value, whatever they are given.
_SINGLE: Final = (
    *("abs", "avg", "ceil", "contains", "ends_with", "floor", "length", "starts_with", "sum", "to_number", "type"),
)
#: And these return what they are given, or parts of it. `join` and `to_string`, which are in neither, make strings that
#: grow with each use.
_OTHERS: Final = (
    *("keys", "map", "max", "max_by", "merge", "min", "min_by", "not_null", "reverse", "sort", "sort_by"),
    *("to_array", "values"),
)
#: What is quoted in one way or another, or else a number behind a comparison, which would be no JMESPath.
_BARE_NUMBER: Final = re.compile(
    r"""(?P<quoted>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`)"""
    r"""|(?P<before>[=!<>]=?\s*)(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?![\w.])""",
    re.DOTALL,
)
_IN_BRACKETS: Final = re.compile(r"""\[(['"])([^'"\\]*)\1\]""")


class NotUsable(Exception):
    """This is no path that can be used here. The message is a sentence for the model."""


class Path:
    """
    An expression that can be evaluated: `node` is its tree, and `growth` how many times as many values it may make.

    :raises NotUsable: If it is none, or of a kind that is refused.
    """

    def __init__(self, text: str) -> None:
        try:
            self.node: Any = jmespath.compile(_as_meant(text.strip())).parsed
        except NotUsable:
            raise
        except Exception:  # noqa: BLE001 - beside its own errors the library lets through some of Python's
            raise NotUsable("path is not a JMESPath expression.") from None
        finally:
            # The library keeps what it parsed for the whole process, and that is what somebody looked for.
            Parser.purge()
        try:
            self.growth = _growth(self.node)
        except RecursionError:
            raise NotUsable("The path has too many steps.") from None


def _as_meant(text: str) -> str:
    # Many a model writes JSONPath, which begins with what is no JMESPath and has names in brackets.
    if text.startswith("$"):
        text = _IN_BRACKETS.sub(r'."\2"', text[1:]).removeprefix(".")
        if "['" in text or '["' in text:
            raise NotUsable("path is JSONPath, of which only names and indexes in brackets are taken.")
    return _BARE_NUMBER.sub(_in_backticks, text) or "@"


def _in_backticks(found: re.Match[str]) -> str:
    return found["quoted"] or f"{found['before']}`{found['number']}`"


def _growth(node: Any) -> int:
    """
    Return how many times as many values as there were an expression may make.

    :raises NotUsable: If that is too much, or has no bound.
    """
    kind, children, name = node["type"], node.get("children", []), node.get("value")
    if kind == "literal":
        return _size(name)
    if kind == "slice":
        return 1
    if kind == "function_expression" and name not in (*_SINGLE, *_OTHERS):
        raise NotUsable("The path has a function that there is not here.")
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
        raise NotUsable("The path selects too much at once.")
    return growth


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
