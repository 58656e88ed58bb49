"""Fresh databases and managers: real SQLite, real PostgreSQL, real files."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from stores.sql import Database
from tenancy.roles import prepare_roles
from tenancy.upgrade import upgrade
from tests.postgres import PostgresMissing, PostgresServer, as_maintenance, as_owner

if TYPE_CHECKING:
    from tenancy import SessionManager

# Haystack reports its use to a server far away, from threads of its own. Tests talk to this machine only; and a fork
# beside a thread that is inside OpenSSL may hang. Set before anything imports Haystack, and inherited by all children.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

DATABASES: Final = ("sqlite", "postgresql")
#: What `Settings.inline_bytes` is set to: everything in the store, and the default.
INLINE_BYTES: Final = {"stored": 0, "inline": 32768}
#: Every run asks both databases and both ways results take, each once; the other two pairs are for the slow tests.
CROSSWISE: Final = (("sqlite", "inline"), ("postgresql", "stored"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to the slow tests what differs from others only in how a database and a way of results are paired."""
    chosen: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if (chosen.get("database_kind"), chosen.get("inline_bytes")) in CROSSWISE:
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.crosswise)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for this process of the test run. No server is a failure, never a skip."""
    try:
        server = PostgresServer()
    except PostgresMissing as error:
        pytest.fail(str(error), pytrace=False)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def upgraded_template(postgres: PostgresServer) -> str:
    """The name of an upgraded database that nobody is connected to, for copies."""
    name = postgres.create_database()
    url = postgres.url(name)
    upgrade(as_owner(url))
    prepare_roles(as_owner(url), database_url=url, maintenance_url=as_maintenance(url))
    return name


@pytest.fixture(scope="session")
def upgraded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An upgraded SQLite file that nobody has open, for copies."""
    path = tmp_path_factory.mktemp("template") / "catalogue.sqlite3"
    upgrade(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        # The log must not stay behind when the file is copied.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def empty_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A new PostgreSQL database without a table in it, as the role that may make some."""
    name = postgres.create_database()
    yield as_owner(postgres.url(name))
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer, upgraded_template: str) -> Iterator[str]:
    """A new, upgraded PostgreSQL database, as the role that serves tenants: it owns nothing."""
    name = postgres.create_database(template=upgraded_template)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """Where a SQLite file may be made; there is none yet."""
    return f"sqlite:///{tmp_path / 'catalogue.sqlite3'}"


@pytest.fixture
def sqlite_url(empty_sqlite_url: str, upgraded_file: Path) -> str:
    """A new, upgraded SQLite file."""
    path = Path(empty_sqlite_url.removeprefix("sqlite:///"))
    shutil.copyfile(upgraded_file, path)
    path.chmod(0o600)
    return empty_sqlite_url


@pytest.fixture(params=DATABASES)
def database_kind(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn."""
    kind: str = request.param
    return kind


@pytest.fixture
def empty_database_url(database_kind: str, request: pytest.FixtureRequest) -> str:
    """A database without a table in it, of each kind in turn."""
    url: str = request.getfixturevalue("empty_sqlite_url" if database_kind == "sqlite" else "empty_postgres_url")
    return url


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest) -> str:
    """A new, upgraded database, of each kind in turn."""
    url: str = request.getfixturevalue("sqlite_url" if database_kind == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open, upgraded database, of each kind in turn."""
    opened = Database(database_url)
    yield opened
    opened.close()


class ManagerFactory:
    """
    Makes managers over one and the same database, store and key file, and closes them afterwards.

    :param database_url: An upgraded database.
    :param inline_bytes: From which size on a result goes to the store; `0` sends them all there.
    :param folder: An empty folder for the store and the key file.
    """

    def __init__(self, *, database_url: str, inline_bytes: int, folder: Path) -> None:
        from tenancy.keys.providers import create_key_file

        self.database_url = database_url
        self.inline_bytes = inline_bytes
        self.folder = folder
        self.results = folder / "results"
        self.key_file = folder / "keys.json"
        self.results.mkdir(mode=0o700)
        create_key_file(self.key_file)
        self._made: list[SessionManager] = []

    def __call__(self, **settings: Any) -> "SessionManager":
        """Make another manager. What is given replaces the setting of that name."""
        from tenancy import SessionManager
        from tenancy.settings import Settings

        standard = {
            "database_url": self.database_url,
            "maintenance_url": None if self.database_url.startswith("sqlite") else as_maintenance(self.database_url),
            "store_url": f"file://{self.results}",
            "keys": f"file:{self.key_file}",
            "inline_bytes": self.inline_bytes,
        }
        manager = SessionManager.from_settings(Settings(**{**standard, **settings}))
        self._made.append(manager)
        return manager

    def close(self) -> None:
        """Close every manager that was made."""
        for manager in self._made:
            manager.close()


@pytest.fixture(params=INLINE_BYTES)
def inline_bytes(request: pytest.FixtureRequest) -> int:
    """Each of the two ways results take in turn."""
    return INLINE_BYTES[request.param]


@pytest.fixture
def make_manager(database_url: str, inline_bytes: int, tmp_path: Path) -> Iterator[Callable[..., "SessionManager"]]:
    """A maker of managers, over each kind of database and each of the two ways results take."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    factory = ManagerFactory(database_url=database_url, inline_bytes=inline_bytes, folder=folder)
    yield factory
    factory.close()
