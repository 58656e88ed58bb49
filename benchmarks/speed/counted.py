"""What can be counted from inside this process: statements and commits of SQLite, and bytes that are decrypted."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

from benchmarks.speed.texts import documentation_texts
from benchmarks.speed.works import PAGE_CHARS, SIZES
from tenancy import SessionManager
from tenancy.sealing import cipher, ranges

#: How often each operation is done before it counts, and how often it counts.
WARM_UPS: Final = 3
COUNTED: Final = 5
#: The names of what is counted.
OPERATIONS: Final = (
    "write 4 KB",
    "write 64 KB",
    "write 1 MB",
    "read 4 KB",
    "read 64 KB",
    "4 KB page of 1 MB",
    "open an existing session",
    "open a new session",
)
Operations = Mapping[str, Callable[[int], Any]]


Texts = Mapping[str, Sequence[str]]


def counted_texts() -> Texts:
    """Return two texts of each size: JSON and documentation compress unlike."""
    return {size: documentation_texts(SIZES[size]) for size in ("4 KB", "64 KB", "1 MB")}


def operations(manager: SessionManager, texts: Texts) -> Operations:
    """
    Return what is counted, by the names in `OPERATIONS`. Each is called with a number that it has not had.

    Reads and pages are of what is written here, before anything counts.
    """
    session = manager.session(tenant="acme", user="u", session="chat")
    kept = {size: session.write(of_size[0]) for size, of_size in texts.items()}

    def open_session(name: str) -> None:
        manager.session(tenant="acme", user="u", session=name)

    def write(size: str) -> Callable[[int], Any]:
        return lambda number: session.write(texts[size][number % len(texts[size])])

    def read(size: str) -> Callable[[int], Any]:
        return lambda _: session.read(kept[size])

    def page(number: int) -> None:
        # All over the text, and at no multiple of what anything is cut into.
        offset = (number * 131_071 + 17) % (SIZES["1 MB"] - PAGE_CHARS)
        session.read_page(kept["1 MB"], offset=offset, max_chars=PAGE_CHARS)

    calls = (
        *map(write, texts),
        read("4 KB"),
        read("64 KB"),
        page,
        lambda _: open_session("chat"),
        lambda number: open_session(f"chat {number}"),
    )
    return dict(zip(OPERATIONS, calls, strict=True))


@dataclass(slots=True)
class Counters:
    """
    What has happened so far.

    :param statements: Of SQL, those that begin and end transactions included.
    :param commits: Transactions that changed something.
    :param opened_bytes: That went into a cipher to be opened: contents, cards and keys.
    """

    statements: int = 0
    commits: int = 0
    opened_bytes: int = 0


@contextmanager
def counting() -> Iterator[Counters]:
    """
    Count what happens in this process on connections that are made inside.

    SQLite itself says what it runs, and the ciphers are asked through wrappers: whatever comes to lie between them and
    the callers, none of it is missed.
    """
    counters = Counters()
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(heard)
        return connection

    def heard(statement: str) -> None:
        # A comment is what SQLite calls a part of a statement, a trigger's.
        if not statement.startswith("--"):
            counters.statements += 1
            counters.commits += statement == "COMMIT"

    whole = partial(_Overheard, cipher.Cobblestone256Decryptor, counters)
    chunks = partial(_Overheard, ranges.AESGCM, counters)
    with (
        mock.patch.object(sqlite3, "connect", traced),
        mock.patch.object(cipher, "Cobblestone256Decryptor", whole),
        mock.patch.object(ranges, "AESGCM", chunks),
    ):
        yield counters


class _Overheard:
    """One of the two ciphers, and how many bytes it is given to open."""

    def __init__(self, kind: Callable[..., Any], counters: Counters, *arguments: Any) -> None:
        self._inner = kind(*arguments)
        self._counters = counters

    def update(self, data: bytes | memoryview) -> bytes:
        """Open a part of a message."""
        self._counters.opened_bytes += len(data)
        return bytes(self._inner.update(data))

    def finalize(self) -> bytes:
        """Open what is left."""
        return bytes(self._inner.finalize())

    def decrypt(self, nonce: bytes, data: bytes | memoryview, associated: bytes | None) -> bytes:
        """Open one chunk."""
        self._counters.opened_bytes += len(data)
        return bytes(self._inner.decrypt(nonce, data, associated))
