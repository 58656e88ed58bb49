"""
What processes have begun and what was acknowledged to them, kept where their death cannot reach it.

Each life has a file of its own, outside of the data directory, a line for each event, written before the call and after
it. A line that is not whole was cut off by a death and says nothing.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Room = tuple[str, str, str]

_MODE: Final = 0o600


class Journal:
    """Where one life writes down what it does."""

    def __init__(self, path: Path) -> None:
        # Not through a buffer: what was written is with the kernel when the next line of the program runs.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)

    def begun(self, what: str, **facts: Any) -> None:
        """What is about to be done."""
        self._note("begun", what, facts)

    def done(self, what: str, **facts: Any) -> None:
        """It returned."""
        self._note("done", what, facts)

    def refused(self, what: str, **facts: Any) -> None:
        """It raised one of our errors."""
        self._note("refused", what, facts)

    def wrong(self, sentence: str) -> None:
        """Something that must not be."""
        self._note("wrong", sentence, {})

    def _note(self, kind: str, what: str, facts: dict[str, Any]) -> None:
        os.write(self._file, (json.dumps([kind, what, facts]) + "\n").encode())


@dataclass(slots=True)
class Story:
    """
    What some journals say together.

    :param begun: The room of each key that somebody began to write.
    :param written: Where each key went that was acknowledged: room and reference.
    :param refused: Keys whose write raised.
    :param deleting: Room and reference of each delete that was begun, and of each that was acknowledged.
    :param wrongs: What a process saw that must not be, and errors that no process may meet.
    :param cut_off: How many lives ended in the middle of something.
    """

    begun: dict[str, Room] = field(default_factory=dict)
    written: dict[str, tuple[Room, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    deleting: set[tuple[Room, str]] = field(default_factory=set)
    deleted: set[tuple[Room, str]] = field(default_factory=set)
    wrongs: list[str] = field(default_factory=list)
    cut_off: int = 0
    done: dict[str, int] = field(default_factory=dict)


def story(files: Iterator[Path] | list[Path]) -> Story:
    """Read journals."""
    told = Story()
    for path in files:
        last = ""
        for kind, what, facts in _lines(path):
            last = kind
            _add(told, kind, what, facts)
        told.cut_off += last == "begun"
    return told


def _add(told: Story, kind: str, what: str, facts: dict[str, Any]) -> None:
    if kind == "wrong":
        told.wrongs.append(what)
    if kind == "done":
        told.done[what] = told.done.get(what, 0) + 1
    if what == "write":
        key, room = facts["key"], _room(facts)
        if kind == "begun":
            told.begun[key] = room
        elif kind == "done":
            told.written[key] = (room, facts["reference"])
        else:
            told.refused[key] = facts["error"]
    if what == "delete" and kind in ("begun", "done"):
        (told.deleting if kind == "begun" else told.deleted).add((_room(facts), facts["reference"]))


def _room(facts: dict[str, Any]) -> Room:
    tenant, user, session = facts["room"]
    return tenant, user, session


def _lines(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            kind, what, facts = json.loads(line)
            yield kind, what, facts
