"""Catalogues of a benchmark's own: in SQLite, or in a PostgreSQL that syncs as one in production does."""

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg import sql

from stores.connections import Durability
from tenancy import Limits, Settings
from tenancy.choices import Compression
from tenancy.keys.providers import create_key_file
from tenancy.roles import prepare_roles
from tenancy.upgrade import upgrade
from tests.postgres import PostgresServer, as_maintenance, as_owner

#: The server of the tests is hasty; these can be changed while it runs. Its 64 MiB of shared buffers stay.
_REALISTIC = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where a benchmark's processes store. Can be sent to another process.

    :param database_url: As the role that serves tenants.
    :param server_version: In the server's words.
    :param sync_ms: What one `fsync` of a page takes on the disk of the server, without anything else going on.
    :param store_url: Where results go that are larger than `inline_bytes`.
    """

    database_url: str
    key_file: Path
    server_version: str
    sync_ms: float
    store_url: str = "database:"
    inline_bytes: int = 0

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return self.database_url.startswith("sqlite")

    @property
    def database(self) -> str:
        """Which database this is, in words."""
        return f"{'SQLite' if self.is_sqlite else 'PostgreSQL'} {self.server_version}"

    def settings(self, *, durability: Durability = "power", compression: Compression = "zstd") -> Settings:
        """Return what a manager of this place is made of: durable unless told otherwise, and without limits."""
        return Settings(
            database_url=self.database_url,
            maintenance_url=None if self.is_sqlite else as_maintenance(self.database_url),
            store_url=self.store_url,
            keys=f"file:{self.key_file}",
            limits=Limits(max_result_bytes=None, user_bytes=None),
            durability=durability,
            compression=compression,
            inline_bytes=self.inline_bytes,
        )


@contextmanager
def started_place() -> Iterator[Place]:
    """Start a server, make a catalogue in it, and remove both afterwards."""
    with started_places(1) as places:
        yield places[0]


@contextmanager
def started_places(count: int) -> Iterator[list[Place]]:
    """Start one server, make catalogues in it, and remove all of it afterwards."""
    server = PostgresServer()
    try:
        with ExitStack() as folders:
            places = []
            for _ in range(count):
                name = server.create_database()
                url = server.url(name)
                version = _make_realistic(server.admin_url(name))
                upgrade(as_owner(url))
                prepare_roles(as_owner(url), database_url=url, maintenance_url=as_maintenance(url))
                folder = Path(folders.enter_context(tempfile.TemporaryDirectory(prefix="tenancy-benchmark-")))
                create_key_file(folder / "keys.json")
                places.append(Place(url, folder / "keys.json", version, _sync_ms(folder)))
            yield places
    finally:
        server.close()


@contextmanager
def sqlite_place(*, files_from: int | None = None) -> Iterator[Place]:
    """
    Make a catalogue in a SQLite file, and remove it afterwards.

    :param files_from: Results of more sealed bytes than this go into files; all stay in the database without it.
    """
    with tempfile.TemporaryDirectory(prefix="tenancy-benchmark-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'catalogue.sqlite3'}"
        upgrade(url)
        create_key_file(folder / "keys.json")
        place = Place(url, folder / "keys.json", sqlite3.sqlite_version, _sync_ms(folder))
        if files_from is not None:
            (folder / "results").mkdir(mode=0o700)
            place = replace(place, store_url=f"file://{folder / 'results'}", inline_bytes=files_from)
        yield place


def _make_realistic(admin_url: str) -> str:
    with psycopg.connect(admin_url.replace("+psycopg", ""), autocommit=True) as server:
        for setting, value in _REALISTIC.items():
            server.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(setting), sql.Literal(value)))
        server.execute("SELECT pg_reload_conf()")
        # Every process of the server obeys at its next statement; new connections do at once.
        for _ in range(100):
            found = {setting: _one(server, "SELECT current_setting(%s)", setting) for setting in _REALISTIC}
            if found == _REALISTIC:
                return _one(server, "SELECT current_setting('server_version')")
            time.sleep(0.05)
    raise RuntimeError("The server did not take its settings.")


def _one(server: "psycopg.Connection", query: str, *values: str) -> str:
    row = server.execute(query.encode(), values).fetchone()
    assert row is not None
    return str(row[0])


def _sync_ms(folder: Path) -> float:
    times = []
    descriptor = os.open(folder / "synced", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(50):
            os.write(descriptor, bytes(8192))
            started = time.perf_counter()
            os.fsync(descriptor)
            times.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
    return statistics.median(times) * 1000
