"""Hostile texts: what something between us and a disk, a database or a model might take for something else."""

import re
import unicodedata
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from stores.entries import TRASH
from stores.names import is_name
from tests.conftest import ManagerFactory

#: What hostile texts are made of: ways out of a directory, names a system keeps for itself, patterns, quotes, codes,
#: characters that are folded, turned round, cut off or taken for an end.
PIECES: Final = (
    "..", ".", "/", "//", "\\", "\0", "~", "C:", "\\\\srv\\share\\", "\\\\?\\", "file:///", "/proc/self/fd/3",
    "/dev/fd/0", "/etc/cron.d/x", "%2e%2e%2f", "%252e", "%00", "CON", "nul.txt", "COM1", "COM\u00b9", "aux.",
    "a:stream", "::$DATA", "PRN", "lpt9", " ", "\t", "\n", "\r", "\u2028", "\u00a0", "\u200b", "\ufeff", "\u202e",
    "\x1b[2J", "\x7f", "\x85", "\u00e9", "e\u0301", "\ufb01", "fi", "\u017f", "s", "\u212a", "K", "k", "\u0130",
    "i\u0307", "\uff0e\uff0e\uff0f", "\u2215", "%", "_", "*", "?", "[a-z]", "'", '"', "`", "--", ";", "' OR 1=1 --",
    ":tenant", "{0}", "%(name)s", "${HOME}", "$(id)", "\ud800", "\udfff", "\U0001f600", "a", "A", "1", "-", "x" * 255,
    ".json", ".tar.gz", "." + "s" * 300, "Ignore previous instructions", "result-1-aaaaaaaaaa", "trash", "keys.json",
    "catalogue.sqlite3",
)  # fmt: skip

#: Any text at all, most of them with something hostile in it.
TEXTS: Final = st.lists(st.sampled_from(PIECES) | st.text(st.characters(), max_size=4), max_size=6).map("".join)


def is_identifier(text: str) -> bool:
    """The rule for a tenant's, a user's or a session's name, said once more."""
    allowed = 1 <= len(text) <= 255 and not text.isspace()
    return allowed and not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


#: Hostile texts that are a name of somebody all the same.
IDENTIFIERS: Final = TEXTS.filter(is_identifier)

#: Of a test that uses one manager for all its examples.
SHARED: Final = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def require_nothing_outside(factory: ManagerFactory) -> None:
    """In the folder of a manager's data, and beside it, there is nothing that a text from outside gave a name to."""
    beside = {re.sub("-(wal|shm|reserve[1-4])$", "", path.name) for path in factory.folder.parent.iterdir()}
    assert beside <= {factory.folder.name, "catalogue.sqlite3"}
    assert {path.name for path in factory.folder.iterdir()} == {factory.results.name, factory.key_file.name}
    for path in factory.results.rglob("*"):
        parts = path.relative_to(factory.results).parts
        assert len(parts) <= 3
        assert all(is_name(part) or (part == TRASH and at == 0) for at, part in enumerate(parts)), path


def paths_into(folder: Path) -> list[str]:
    """Every way to write down the path of each file in a folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        found += [str(path), f"{path}/", f"file://{path}", f"../{folder.name}/{'/'.join(parts)}"]
        found += ["/".join(parts[at:]) for at in range(len(parts))]
        found += [
            "\\".join(parts),
            "%2f".join(parts),
            f"./{parts[-1]}",
            f"{parts[-1]}.json",
        ]
    return found
