"""Which URLs name a store."""

from pathlib import Path
from typing import Any

import pytest

from stores import open_store
from stores.blob import BlobStore
from stores.database import DatabaseStore
from stores.filesystem import FilesystemStore
from stores.memory import MemoryStore
from tests.stores.files import INNER, NAME, OUTER, record_syncs
from tests.stores.test_database import make_database


def test_memory(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


def test_files_are_where_the_path_says_decoded_once(tmp_path: Path) -> None:
    store: BlobStore = open_store(f"file://{tmp_path}/a%20b%2541")
    assert isinstance(store, FilesystemStore)
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.close()
    assert (tmp_path / "a b%41" / OUTER / INNER / NAME).exists()


@pytest.mark.parametrize(("durability", "syncs"), [("power", True), ("process", False)])
def test_files_are_as_durable_as_asked(
    tmp_path: Path, durability: Any, syncs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    store = open_store(f"file://{tmp_path}/root", durability=durability)
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.close()
    assert bool(synced) is syncs


def test_a_database_store_is_in_the_database_given(empty_sqlite_url: str) -> None:
    database = make_database(empty_sqlite_url)
    store = open_store("database:", database=database)
    assert isinstance(store, DatabaseStore)
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.close()
    # It belongs to whoever opened it.
    again = DatabaseStore(database)
    assert again.namespace(OUTER, INNER).get(NAME, size_bytes=1) == b"x"
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file",
        "memory",
        "database",
        "secret",
        ":",
        "memory:secret",
        "memory://",
        "database:secret",
        "database:sqlite:///secret",
        "file:",
        "file:/secret",
        "file:secret",
        "file://secret/path",
        "file://localhost/secret",
        "file:///secret?mode=0777",
        "file:///secret#part",
        "file:///secret%00",
        "FILE:///secret",
        " file:///secret",
        "s3://secret/key",
        "/secret",
        "C:\\secret",
        "sqlite:///secret",
    ],
)
def test_any_other_url_is_refused_without_repeating_it(url: str, empty_sqlite_url: str) -> None:
    database = make_database(empty_sqlite_url)
    with pytest.raises(ValueError, match="store URL is one of") as refused:
        open_store(url, database=database)
    assert "secret" not in str(refused.value)
    database.close()


def test_a_database_store_without_a_database_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the database"):
        open_store("database:")


def test_a_durability_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    unknown: Any = "none"
    with pytest.raises(ValueError, match="Durability"):
        open_store(f"file://{tmp_path}/root", durability=unknown)
    assert list(tmp_path.iterdir()) == []
