"""Writing and reading, each beside its peer, and what it may cost at most."""

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.place import sqlite_place, started_place
from benchmarks.speed.peers import HaystackStore, NaiveTable, durable_files
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.timing import Call, interleaved
from tenancy import SessionManager
from tenancy.session import Session
from tests.postgres import as_owner

SIZES: Final = {"4 KB": 4 * 1024, "64 KB": 64 * 1024, "1 MB": 2**20, "32 MB": 32 * 2**20}
#: What the settings leave it at.
INLINE_BYTES: Final = 32 * 1024
PAGE_CHARS: Final = 4 * 1024


def sqlite_rows(rounds: int) -> Iterator[Row]:
    """Whole results, beside Haystack's own store."""
    goals = {"4 KB": (0.8, 0.5), "64 KB": (1.25, 0.9), "1 MB": (4.0, 2.5)}
    with opened_session(sqlite_place(files_from=INLINE_BYTES)) as session, own_folder() as folder:
        haystack = HaystackStore(folder)
        for size, (to_write, to_read) in goals.items():
            texts = sample_texts(SIZES[size])
            ours, theirs = Library(session.write, session.read, texts), Library(haystack.write, haystack.read, texts)
            share = 1 if size != "1 MB" else 4
            for work, goal in (("write", to_write), ("read", to_read)):
                calls = {"ours": getattr(ours, work), "theirs": getattr(theirs, work)}
                times = interleaved(calls, rounds=max(2, rounds // share), block=len(texts) // share)
                yield Row(f"{work} {size}", "H", goal, times["ours"], times["theirs"])


def uncompressed_rows(rounds: int) -> Iterator[Row]:
    """Whole results where nothing is compressed, beside Haystack's own store."""
    goals: dict[str, tuple[float | None, ...]] = {"64 KB": (1.0, None), "1 MB": (2.0, None)}
    place = sqlite_place(files_from=INLINE_BYTES)
    with opened_session(place, compression="none") as session, own_folder() as folder:
        haystack = HaystackStore(folder)
        for size, wanted in goals.items():
            texts = sample_texts(SIZES[size])
            ours, theirs = Library(session.write, session.read, texts), Library(haystack.write, haystack.read, texts)
            share = 1 if size != "1 MB" else 4
            for work, goal in zip(("write", "read"), wanted, strict=True):
                calls = {"ours": getattr(ours, work), "theirs": getattr(theirs, work)}
                times = interleaved(calls, rounds=max(2, rounds // share), block=len(texts) // share)
                yield Row(f"{work} {size}, not compressed", "H", goal, times["ours"], times["theirs"])


def page_rows(rounds: int) -> Iterator[Row]:
    """Pages at random, and one after the other, beside reading the whole and cutting."""
    goals = {"64 KB": 0.5, "1 MB": 0.25, "32 MB": 0.02}
    chance = random.Random(7)  # noqa: S311 - no secret
    with opened_session(sqlite_place(files_from=INLINE_BYTES)) as session, own_folder() as folder:
        haystack = HaystackStore(folder)
        for size, goal in goals.items():
            text = sample_texts(SIZES[size])[0]
            reference, other = session.write(text), haystack.write(text)
            last = len(text) - PAGE_CHARS

            def page(_: int, reference: str = reference, last: int = last) -> None:
                session.read_page(reference, offset=chance.randrange(last), max_chars=PAGE_CHARS)

            def cut(_: int, reference: str = other, last: int = last) -> str:
                start = chance.randrange(last)
                return haystack.read(reference)[start : start + PAGE_CHARS]

            share = 1 if size != "32 MB" else 8
            times = interleaved(
                {"ours": page, "theirs": cut}, rounds=max(2, rounds // share), block=max(2, 16 // share)
            )
            yield Row(f"4 KB page of {size}, at random", "H, read and slice", goal, times["ours"], times["theirs"])


def durable_rows(rounds: int) -> Iterator[Row]:
    """Writes that survive power loss, beside a plain file that does."""
    with (
        opened_session(sqlite_place(files_from=INLINE_BYTES), durability="power") as session,
        own_folder() as folder,
        durable_files(folder / "files") as files,
    ):
        for size, goal in {"4 KB": 0.6, "64 KB": 1.0}.items():
            texts = sample_texts(SIZES[size])
            calls = {"ours": each(session.write, texts), "theirs": each(files.write, texts)}
            times = interleaved(calls, rounds=rounds, block=len(texts))
            yield Row(f"durable write {size}", "file, rename, 2 fsyncs", goal, times["ours"], times["theirs"])


def postgresql_rows(rounds: int) -> Iterator[Row]:
    """Writes to PostgreSQL, beside the plainest insert of SQLAlchemy."""
    with started_place() as place, SessionManager.from_settings(place.settings()) as manager:
        session = manager.session(tenant="acme", user="u")
        naive = NaiveTable(as_owner(place.database_url))
        try:
            for size, goal in {"4 KB": 0.8, "64 KB": 0.55, "1 MB": 0.3}.items():
                texts = sample_texts(SIZES[size])
                share = 1 if size != "1 MB" else 4
                calls = {"ours": each(session.write, texts), "theirs": each(naive.write, texts)}
                times = interleaved(calls, rounds=max(2, rounds // share), block=len(texts) // share)
                yield Row(f"PostgreSQL write {size}", "naive insert", goal, times["ours"], times["theirs"])
        finally:
            naive.close()


class Library:
    """Writes texts in turns, and reads at random what it wrote, or only the last of it."""

    def __init__(
        self,
        write: Callable[[str], Any],
        read: Callable[[Any], str | bytes],
        texts: list[str],
        *,
        reads_newest: bool = False,
    ) -> None:
        self._write, self._read, self._texts = write, read, texts
        self._kept: list[tuple[Any, str]] = []
        self._reads_newest = reads_newest
        self._chance = random.Random(3)  # noqa: S311 - no secret

    def write(self, number: int) -> None:
        """Write the next text."""
        text = self._texts[number % len(self._texts)]
        self._kept.append((self._write(text), text))

    def read(self, _: int) -> None:
        """Read one of those that were written, and look whether it is that."""
        reference, text = self._kept[-1] if self._reads_newest else self._chance.choice(self._kept)
        if self._read(reference) != text:
            raise RuntimeError("What was read is not what was written.")


def each(write: Callable[[str], Any], texts: list[str]) -> Call:
    """Return a call that writes the texts in turns."""
    return lambda number: write(texts[number % len(texts)])


@contextmanager
def opened_session(
    place: Any, *, durability: Literal["power", "process"] = "process", compression: Literal["zstd", "none"] = "zstd"
) -> Iterator[Session]:
    """Open a session in a place that is made for it."""
    with place as started:
        settings = started.settings(durability=durability, compression=compression)
        with SessionManager.from_settings(settings) as manager:
            yield manager.session(tenant="acme", user="u", session="chat")


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder, and remove it afterwards."""
    with ExitStack() as stack:
        yield Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenancy-benchmark-")))
