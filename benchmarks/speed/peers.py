"""What the same work costs without protection, or with somebody else's."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore


class HaystackStore:
    """Haystack's own store: no quota, no encryption, no catalogue, no fsync. The unit of the table, called H."""

    def __init__(self, folder: Path) -> None:
        self._store = FileSystemToolResultStore(folder)
        self._count = 0

    def write(self, text: str) -> str:
        """Store a text and return its reference."""
        self._count += 1
        return self._store.write(key=f"{self._count}_tool_call.txt", content=text)

    def read(self, reference: str) -> str:
        """Return a text."""
        content = self._store.read(reference)
        return content if isinstance(content, str) else content.decode()


class DurableFiles:
    """A plain file, written under another name, synced, renamed, and its directory synced: two fsyncs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._count = 0

    def write(self, text: str) -> str:
        """Store a text for good."""
        self._count += 1
        name = f"{self._count}.txt"
        file = os.open("unfinished", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._folder)
        try:
            data = memoryview(text.encode())
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.rename("unfinished", name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)
        return name

    def close(self) -> None:
        """Close the directory."""
        os.close(self._folder)


class NaiveTable:
    """What one writes first with SQLAlchemy: a table with a text column, and one session for each insert."""

    def __init__(self, url: str) -> None:
        metadata = sa.MetaData()
        self._table = sa.Table(
            f"naive_{random.randrange(10**9)}",  # noqa: S311 - no secret
            metadata,
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("name", sa.Text),
            sa.Column("content", sa.Text),
        )
        self._engine = sa.create_engine(url)
        metadata.create_all(self._engine)

    def write(self, text: str) -> int:
        """Insert a text and commit."""
        with self._engine.begin() as connection:
            inserted = connection.execute(self._table.insert().values(name="x.txt", content=text))
            return int(inserted.inserted_primary_key[0])

    def close(self) -> None:
        """Drop the table and close all connections."""
        self._table.drop(self._engine)
        self._engine.dispose()


@contextmanager
def durable_files(folder: Path) -> Iterator[DurableFiles]:
    """Open plain durable files, and close their directory afterwards."""
    files = DurableFiles(folder)
    try:
        yield files
    finally:
        files.close()
