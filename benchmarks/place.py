"""A PostgreSQL of a benchmark's own that syncs as one in production does, with a catalogue in it."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tenancy import Limits, Settings
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
    """

    database_url: str
    key_file: Path
    server_version: str
    sync_ms: float

    def settings(self) -> Settings:
        """Return what a manager of this place is made of: durable, in the database alone, and without limits."""
        return Settings(
            database_url=self.database_url,
            maintenance_url=as_maintenance(self.database_url),
            store_url="database:",
            keys=f"file:{self.key_file}",
            limits=Limits(user_bytes=None),
            durability="power",
        )


@contextmanager
def started_place() -> Iterator[Place]:
    """Start a server, make a catalogue in it, and remove both afterwards."""
    server = PostgresServer()
    try:
        name = server.create_database()
        url = server.url(name)
        version = _make_realistic(server.admin_url(name))
        upgrade(as_owner(url))
        prepare_roles(as_owner(url), database_url=url, maintenance_url=as_maintenance(url))
        with tempfile.TemporaryDirectory(prefix="tenancy-benchmark-") as folder:
            key_file = Path(folder) / "keys.json"
            create_key_file(key_file)
            yield Place(url, key_file, version, _sync_ms(Path(folder)))
    finally:
        server.close()


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
