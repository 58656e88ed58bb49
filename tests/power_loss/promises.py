"""What a program has promised at a moment of its work, and whether what is seen after a power loss keeps it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

#: Tenant, user, session, reference.
Key = tuple[str, str, str, str]
#: Tenant, user, session.
Who = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Promises:
    """
    What holds at one moment.

    :param started: The first start has finished: from here on the directory opens.
    :param kept: Results that read back exactly, with a digest of their content.
    :param leaving: Results that are being deleted, together in one step or none of them: exact or gone.
    :param gone: Results that nobody reads ever again.
    :param coming: What is being written, and where. It may be there, under a reference nobody knows yet.
    :param files_coming: How many of these go into files.
    :param offset_us: What the clock has been moved by.
    """

    started: bool = True
    kept: Mapping[Key, str] = field(default_factory=dict)
    leaving: Mapping[Key, str] = field(default_factory=dict)
    gone: frozenset[Key] = frozenset()
    coming: frozenset[tuple[Who, str]] = frozenset()
    files_coming: int = 0
    offset_us: int = 0

    def after(self, said: Mapping[str, Any]) -> Self:
        """Return what holds after a program has said something. See `Teller`."""
        keys = [as_key(key) for key in said.get("keys", ())]
        match said["mark"]:
            case "started":
                return replace(self, started=True)
            case "writes":
                coming = (as_who(said["who"]), said["digest"])
                return replace(self, coming=self.coming | {coming}, files_coming=self.files_coming + said["in_file"])
            case "wrote":
                coming = (as_who(said["who"]), said["digest"])
                kept = {**self.kept, (*coming[0], said["reference"]): said["digest"]}
                files_coming = self.files_coming - said["in_file"]
                return replace(self, kept=kept, coming=self.coming - {coming}, files_coming=files_coming)
            case "deletes":
                kept = {key: digest for key, digest in self.kept.items() if key not in keys}
                return replace(self, kept=kept, leaving={key: self.kept[key] for key in keys})
            case "deleted":
                return replace(self, leaving={}, gone=self.gone | self.leaving.keys())
            case "expired":
                kept = {key: digest for key, digest in self.kept.items() if key not in keys}
                return replace(self, kept=kept, gone=self.gone.union(keys), offset_us=said["offset_us"])
        raise ValueError(said["mark"])

    @property
    def keys(self) -> frozenset[Key]:
        """Every result that has a reference."""
        return frozenset(self.kept) | frozenset(self.leaving) | self.gone


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What there is after the power came back.

    :param refused: Why the directory does not open, if it does not.
    :param read: What could be read, by a digest of its content, or what reading it said.
    :param unknown_files: Files without a row.
    :param problems: What is wrong whatever was promised, a sentence each.
    """

    refused: str = ""
    read: Mapping[Key, str] = field(default_factory=dict)
    unknown_files: int = 0
    problems: tuple[str, ...] = ()


def faults(promises: Promises, seen: Seen, *, all_there: bool) -> list[str]:
    """
    Say what is broken, a sentence each.

    :param all_there: No operation is lost: this is what the death of the process alone leaves. Then there is a row for
        every file, also of a write that was under way.
    """
    if seen.refused:
        return [f"It does not open: {seen.refused}"] if promises.started else []
    found = list(seen.problems)
    found += [f"A result that was stored is {_instead(seen, key)}" for key in _different(promises.kept, seen)]
    found += ["A result that was gone is there again" for key in promises.gone if key in seen.read]
    left = [key for key in promises.leaving if key in seen.read]
    found += [f"A result being deleted is {_instead(seen, key)}" for key in _different(promises.leaving, seen, left)]
    if left and len(left) != len(promises.leaving):
        found.append("Of what goes in one step only some is gone")
    found += _strangers(promises, seen)
    if seen.unknown_files > (0 if all_there else promises.files_coming):
        found.append(f"{seen.unknown_files} files have no row")
    return found


def _different(expected: Mapping[Key, str], seen: Seen, keys: Iterable[Key] | None = None) -> list[Key]:
    return [key for key in (expected if keys is None else keys) if seen.read.get(key) != expected[key]]


def _instead(seen: Seen, key: Key) -> str:
    found = seen.read.get(key, "lost")
    return found if found.isalpha() else "another one"


def _strangers(promises: Promises, seen: Seen) -> list[str]:
    """A reference nobody has been told belongs to a write that is under way, and shows all of it."""
    strangers = [(key[:3], digest) for key, digest in seen.read.items() if key not in promises.keys]
    found = ["A result nobody wrote" for stranger in strangers if stranger not in promises.coming]
    return found + ["A result is there twice"] * (len(strangers) > len(set(strangers)))


def as_key(parts: Sequence[str]) -> Key:
    """Return what JSON has made a list of."""
    tenant, user, session, reference = parts
    return tenant, user, session, reference


def as_who(parts: Sequence[str]) -> Who:
    """Return what JSON has made a list of."""
    tenant, user, session = parts
    return tenant, user, session
