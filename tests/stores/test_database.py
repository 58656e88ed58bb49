"""The database store, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from stores.connections import create_sqlite_file
from stores.database import DatabaseStore, blob_table
from stores.sql import Database
from stores.testing import BlobStoreContract


def make_database(url: str) -> Database:
    if url.startswith("sqlite:///"):
        create_sqlite_file(Path(url.removeprefix("sqlite:///")))
    database = Database(url, durability="process")
    metadata = sa.MetaData()
    blob_table(metadata)
    metadata.create_all(database.engine)
    return database


class TestSqliteStore(BlobStoreContract):
    @pytest.fixture
    def store(self, empty_sqlite_url: str) -> Iterator[DatabaseStore]:
        database = make_database(empty_sqlite_url)
        yield DatabaseStore(database)
        database.close()


class TestPostgresStore(BlobStoreContract):
    @pytest.fixture
    def store(self, empty_postgres_url: str) -> Iterator[DatabaseStore]:
        database = make_database(empty_postgres_url)
        yield DatabaseStore(database)
        database.close()
