"""Data directories for processes that are killed: one with SQLite, one whose catalogue is in PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenancy import SessionManager
from tenancy.keys.providers import create_key_file
from tenancy.roles import prepare_roles
from tenancy.settings import Settings
from tenancy.startup import KEY_FILE, RESULTS_FOLDER
from tenancy.upgrade import upgrade
from tests.faults.house import WAYS, House
from tests.postgres import PostgresServer, as_maintenance, as_owner

DATABASES: Final = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class PostgresHouse:
    """A store of files and a key file in a folder of their own, and a catalogue on a server."""

    folder: Path
    database_url: str

    @property
    def data(self) -> Path:
        """Where store and key are."""
        return self.folder / "data"

    @property
    def results(self) -> Path:
        """Where the files of its store are."""
        return self.data / RESULTS_FOLDER

    def open(self) -> SessionManager:
        """Open it, results going both ways."""
        settings = Settings(
            database_url=self.database_url,
            maintenance_url=as_maintenance(self.database_url),
            store_url=f"file://{self.results}",
            keys=f"file:{self.data / KEY_FILE}",
            inline_bytes=WAYS["inline"],
        )
        return SessionManager.from_settings(settings)


@contextmanager
def house_on(database: str, *, folder: Path) -> Iterator[House | PostgresHouse]:
    """Make a data directory on one kind of database."""
    if database == "sqlite":
        house = House(folder, WAYS["inline"])
        house.open().close()
        yield house
        return
    server = PostgresServer()
    try:
        url = server.url(server.create_database())
        upgrade(as_owner(url))
        prepare_roles(as_owner(url), database_url=url, maintenance_url=as_maintenance(url))
        made = PostgresHouse(folder, url)
        made.data.mkdir(mode=0o700)
        create_key_file(made.data / KEY_FILE)
        yield made
    finally:
        server.close()
