"""What a trace of system calls must look like below the root of a filesystem store."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

from tests.attacks.tracer import Call, Place
from tests.tracing.path_calls import UNSEEN

_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_REMOVEDIR: Final = 0x200
_AT_EMPTY_PATH: Final = 0x1000
_OPENS: Final = frozenset({"openat", "openat2"})
_LOOKS: Final = frozenset({"newfstatat", "statx"})
_ALWAYS: Final = {"O_NOFOLLOW": os.O_NOFOLLOW, "O_CLOEXEC": os.O_CLOEXEC}

#: All that a store does by name, each as its own shape. Whatever else names something below the root is a breach.
SHAPES: Final = frozenset(
    {"open directory", "list directory", "create file", "read file", "look", "make directory", "move", "unlink",
     "remove directory"}
)  # fmt: skip


def breaches(calls: Iterable[Call], *, root: str) -> list[str]:
    """
    Return what in a trace is not as promised.

    The promise: each name below the root is one component, relative to a held descriptor and never followed if it is a
    link. Opening the root itself is exempt from the descriptor, since the first one has to come from somewhere, but
    not from the rest.

    :param root: Its real path.
    """
    return [f"{call.name} {[(place.directory, place.name) for place in call.places]}: {wrong}"
            for call in calls for wrong in _wrongs(call, root)]  # fmt: skip


def shapes(calls: Iterable[Call], *, root: str) -> set[str]:
    """Return which of `SHAPES` a trace holds below the root: a workload that does nothing breaks no promise."""
    return {_shape(call) for call in calls if _places_below(call, root)}


def _wrongs(call: Call, root: str) -> Iterator[str]:
    if call.name in UNSEEN:
        yield "nobody can see what this works on"
    below = _places_below(call, root)
    if below and len(below) < len(call.places):
        yield "leads in or out"
    if below and _shape(call) not in SHAPES:
        yield "no store needs this"
    for place in below:
        if not place.held:
            yield "not relative to a descriptor"
        if "/" in place.name or place.name == "..":
            yield "more than one component"
        if place.name in ("", ".") and not _names_itself(call, place):
            yield "no name"
    if call.name in _LOOKS and below and not call.flags & (_AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH):
        yield "follows a link"
    if call.name in _OPENS and (below or any(_target(place) == root for place in call.places)):
        yield from _flags_missing(call, is_root=not below)


def _flags_missing(call: Call, *, is_root: bool) -> Iterator[str]:
    wanted = dict(_ALWAYS)
    if call.flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        wanted |= {"O_CREAT": os.O_CREAT, "O_EXCL": os.O_EXCL}
    elif is_root:
        wanted["O_DIRECTORY"] = os.O_DIRECTORY
    elif not call.flags & os.O_DIRECTORY:
        wanted |= {"O_NONBLOCK": os.O_NONBLOCK, "O_NOCTTY": os.O_NOCTTY}
    yield from (f"without {name}" for name, bits in wanted.items() if call.flags & bits != bits)
    if call.flags & os.O_TRUNC:
        yield "with O_TRUNC"


def _shape(call: Call) -> str:
    if call.name in _OPENS:
        if call.flags & os.O_CREAT:
            return "create file"
        if not call.flags & os.O_DIRECTORY:
            return "read file"
        return "list directory" if call.places[0].name == "." else "open directory"
    if call.name == "unlinkat":
        return "remove directory" if call.flags & _AT_REMOVEDIR else "unlink"
    return {
        **dict.fromkeys(_LOOKS, "look"),
        "mkdirat": "make directory",
        "renameat": "move",
        "renameat2": "move",
    }.get(call.name, call.name)


def _names_itself(call: Call, place: Place) -> bool:
    """Whether this is a descriptor looked at, or a directory opened anew to be listed: nobody can swap either."""
    if place.name == "":
        return call.name in _LOOKS and bool(call.flags & _AT_EMPTY_PATH)
    return call.name in _OPENS and bool(call.flags & os.O_DIRECTORY)


def _places_below(call: Call, root: str) -> list[Place]:
    return [place for place in call.places if _is_below(place, root)]


def _is_below(place: Place, root: str) -> bool:
    in_root = place.directory == root or place.directory.startswith(f"{root}/")
    return in_root or _target(place).startswith(f"{root}/")


def _target(place: Place) -> str:
    return os.path.normpath(os.path.join(place.directory, place.name))
