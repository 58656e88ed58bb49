"""Mutants that change nothing anybody can observe, each with its reason, in `equivalent.toml`."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutations.sources import Mutant

LISTED: Final = Path(__file__).with_name("equivalent.toml")
_FIELDS: Final = frozenset({"file", "owner", "taken", "given", "number", "reason"})

#: What stays the same of a mutant when the code around it changes: see `Mutant.key`.
Key = tuple[str, str, str, str, int]


class ListIsWrong(Exception):
    """`equivalent.toml` says something it must not. The message says what."""


def read_equivalents(text: str) -> Mapping[Key, str]:
    """
    Read the list.

    :returns: The reason of each mutant, by its key.
    :raises ListIsWrong: If an entry lacks something, or stands there twice.
    """
    found: dict[Key, str] = {}
    for entry in tomllib.loads(text).get("mutant", []):
        key = _key(entry)
        if key in found:
            raise ListIsWrong(f"{key} is listed twice.")
        if len(entry["reason"].split()) < 5:
            raise ListIsWrong(f"{key} has no reason that could be judged.")
        found[key] = " ".join(entry["reason"].split())
    return found


def vanished(listed: Mapping[Key, str], mutants: Sequence[Mutant]) -> list[Key]:
    """Return what is listed and cannot be made any more: code that is gone takes its excuse along."""
    return sorted(set(listed) - {mutant.key for mutant in mutants})


def as_entry(mutant: Mutant) -> str:
    """Write a mutant as it would stand in the list, without its reason."""
    lines = [f"file = {_quoted(mutant.path)}", f"owner = {_quoted(mutant.owner)}"]
    lines += [f"taken = {_quoted(mutant.taken)}", f"given = {_quoted(mutant.given)}"]
    lines += [f"number = {mutant.number}"] if mutant.number > 1 else []
    return "\n".join(["[[mutant]]", *lines, 'reason = ""'])


def _key(entry: Mapping[str, Any]) -> Key:
    if not set(entry) <= _FIELDS or not (_FIELDS - {"number"}) <= set(entry):
        raise ListIsWrong(f"An entry has the fields {', '.join(sorted(_FIELDS))}, number aside; not: {sorted(entry)}.")
    return (entry["file"], entry["owner"], entry["taken"], entry["given"], entry.get("number", 1))


def _quoted(text: str) -> str:
    return f"'''{text}'''" if "'" in text else f"'{text}'"
