"""The database store, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from stores.connections import create_sqlite_file
from stores.database import _DELETES_AT_ONCE, DatabaseNamespace, DatabaseStore, blob_table
from stores.errors import BlobCorrupt, BlobExists, BlobNotFound, Conflict, StoreDenied, StoreUnavailable
from stores.names import mint_name
from stores.sql import Database, Statement, Transaction
from stores.testing import BlobStoreContract
from tests.postgres import as_maintenance
from tests.stores.files import INNER, NAME, OUTER


def make_database(url: str) -> Database:
    if url.startswith("sqlite:///"):
        create_sqlite_file(Path(url.removeprefix("sqlite:///")))
    database = Database(url, durability="process")
    metadata = sa.MetaData()
    blob_table(metadata)
    metadata.create_all(database.engine)
    return database


@pytest.mark.case(34, 80, 110)
class TestSqliteStore(BlobStoreContract):
    @pytest.fixture
    def store(self, empty_sqlite_url: str) -> Iterator[DatabaseStore]:
        database = make_database(empty_sqlite_url)
        yield DatabaseStore(database)
        database.close()


@pytest.mark.case(34, 80, 110)
class TestPostgresStore(BlobStoreContract):
    @pytest.fixture
    def store(self, empty_postgres_url: str) -> Iterator[DatabaseStore]:
        database = make_database(empty_postgres_url)
        yield DatabaseStore(database)
        database.close()


class TestPostgresStoreBehindRowSecurity(BlobStoreContract):
    """Where a policy holds each transaction to one outer name, as in the database of a catalogue."""

    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[DatabaseStore]:
        database = Database(postgres_url, durability="process")
        overseer = Database(as_maintenance(postgres_url))
        yield DatabaseStore(database, overseer=overseer)
        database.close()
        overseer.close()


@pytest.fixture
def database(empty_database_url: str) -> Iterator[Database]:
    """A database of each kind in turn, with the table of blobs in it."""
    database = make_database(empty_database_url)
    yield database
    database.close()


@pytest.fixture
def room(database: Database) -> DatabaseNamespace:
    return DatabaseStore(database).namespace(OUTER, INNER)


class GivenUp(Exception):
    """Ends a transaction without committing it."""


def test_a_joined_write_is_there_when_the_callers_transaction_is(database: Database, room: DatabaseNamespace) -> None:
    with database.writing() as transaction:
        joined = room.joined(transaction)
        joined.put(NAME, b"bytes")
        assert joined.get(NAME, size_bytes=5) == b"bytes"
        assert joined.get_range(NAME, start=1, length=3, size_bytes=5) == b"yte"
        assert [blob.name for blob in joined.list()] == [NAME]
        # Another connection still sees nothing.
        with pytest.raises(BlobNotFound):
            room.get(NAME, size_bytes=5)
    assert room.get(NAME, size_bytes=5) == b"bytes"


def test_a_joined_write_goes_when_the_callers_transaction_goes(database: Database, room: DatabaseNamespace) -> None:
    def write_and_give_up() -> None:
        with database.writing() as transaction:
            room.joined(transaction).put(NAME, b"bytes")
            raise GivenUp

    with pytest.raises(GivenUp):
        write_and_give_up()
    assert list(room.list()) == []


@pytest.mark.parametrize("way", ["delete", "destroy"])
def test_a_joined_removal_is_undone_with_the_callers_transaction(
    database: Database, room: DatabaseNamespace, way: str
) -> None:
    room.put(NAME, b"bytes")

    def remove_and_give_up() -> None:
        with database.writing() as transaction:
            joined = room.joined(transaction)
            if way == "delete":
                joined.delete(NAME)
            else:
                joined.destroy()
            assert list(joined.list()) == []
            raise GivenUp

    with pytest.raises(GivenUp):
        remove_and_give_up()
    assert room.get(NAME, size_bytes=5) == b"bytes"


def test_a_joined_room_goes_in_one_statement_however_much_is_in_it(
    database: Database, room: DatabaseNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2 * _DELETES_AT_ONCE + 1):
        room.put(mint_name(), b"x")
    said: list[str] = []
    with database.writing() as transaction:
        for how in ("execute", "later"):
            monkeypatch.setattr(Transaction, how, _told(said, getattr(Transaction, how)))
        room.joined(transaction).destroy()
    assert len(said) == 1
    assert list(room.list()) == []


def _told(said: list[str], real: Any) -> Any:
    def tell(transaction: Transaction, statement: Statement, **parameters: Any) -> Any:
        said.append(statement.compiled(transaction._dialect)[0])
        return real(transaction, statement, **parameters)

    return tell


def test_a_joined_room_is_still_that_room(database: Database, room: DatabaseNamespace) -> None:
    other = DatabaseStore(database).namespace(OUTER, "j" * 32)
    other.put(NAME, b"other")
    with database.writing() as transaction:
        joined = room.joined(transaction)
        with pytest.raises(BlobNotFound):
            joined.get(NAME, size_bytes=5)
        joined.destroy()
        with pytest.raises(ValueError, match="stored name"):
            joined.put("../x", b"x")
        with pytest.raises(ValueError, match="range"):
            joined.get_range(NAME, start=3, length=3, size_bytes=5)
    assert other.get(NAME, size_bytes=5) == b"other"


def test_a_joined_write_of_a_taken_name_is_refused_in_our_words(database: Database, room: DatabaseNamespace) -> None:
    room.put(NAME, b"first")

    def write_twice() -> None:
        with database.writing() as transaction:
            room.joined(transaction).put(NAME, b"second")

    with pytest.raises(BlobExists if database.is_sqlite else Conflict) as refused:
        write_twice()
    assert NAME not in str(refused.value)
    assert room.get(NAME, size_bytes=5) == b"first"


def test_a_transaction_of_sqlite_goes_on_after_a_taken_name(empty_sqlite_url: str) -> None:
    database = make_database(empty_sqlite_url)
    room = DatabaseStore(database).namespace(OUTER, INNER)
    room.put(NAME, b"first")
    with database.writing() as transaction:
        with pytest.raises(BlobExists):
            room.joined(transaction).put(NAME, b"second")
        room.joined(transaction).put("p" * 32, b"third")
    assert room.get("p" * 32, size_bytes=5) == b"third"
    database.close()


def test_a_transaction_of_postgres_is_over_after_a_taken_name(empty_postgres_url: str) -> None:
    database = make_database(empty_postgres_url)
    room = DatabaseStore(database).namespace(OUTER, INNER)
    room.put(NAME, b"first")

    def go_on() -> None:
        with database.writing() as transaction:
            room.joined(transaction).put(NAME, b"second")
            # It is sent with what is asked next.
            with pytest.raises(Conflict):
                list(room.joined(transaction).list())
            room.joined(transaction).put("p" * 32, b"third")

    with pytest.raises(StoreUnavailable):
        go_on()
    assert [blob.name for blob in room.list()] == [NAME]
    database.close()


def test_a_joined_room_of_a_closed_store_is_closed(database: Database) -> None:
    store = DatabaseStore(database)
    with database.writing() as transaction:
        joined = store.namespace(OUTER, INNER).joined(transaction)
        store.close()
        with pytest.raises(StoreUnavailable):
            joined.put(NAME, b"x")


def test_a_blob_larger_than_the_database_takes_is_refused_before_it_is_sent(
    room: DatabaseNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stores.database.MAX_BYTES", 10)
    room.put(NAME, b"x" * 10)
    with pytest.raises(StoreDenied, match="filesystem store"):
        room.put("p" * 32, b"x" * 11)
    assert [blob.name for blob in room.list()] == [NAME]


def test_a_database_that_is_away_is_unavailable(database: Database, room: DatabaseNamespace) -> None:
    database.close()
    for call in (lambda: room.put(NAME, b"x"), lambda: room.get(NAME, size_bytes=1), lambda: list(room.list())):
        with pytest.raises(StoreUnavailable):
            call()


def test_a_missing_table_is_said_in_our_words(database: Database, room: DatabaseNamespace) -> None:
    with database.writing() as transaction:
        transaction.connection.execute("DROP TABLE tenancy_blobs")
    with pytest.raises(StoreUnavailable) as refused:
        room.put(NAME, b"x")
    assert "tenancy" not in str(refused.value)


def test_rooms_are_all_named_however_many(database: Database) -> None:
    store = DatabaseStore(database)
    pairs = sorted((outer * 32, mint_name()) for outer in "abc" for _ in range(200))
    with database.writing() as transaction:
        for pair in pairs:
            for _ in range(2):
                store.namespace(*pair).joined(transaction).put(mint_name(), b"")
    assert sorted(store.namespaces()) == pairs


def test_a_room_is_destroyed_in_steps_that_let_others_in_between(
    database: Database, room: DatabaseNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.writing() as transaction:
        for _ in range(250):
            room.joined(transaction).put(mint_name(), b"x")
    removed: list[int] = []
    execute = Transaction.execute

    def counted(transaction: Transaction, statement: Statement, **parameters: Any) -> int:
        removed.append(execute(transaction, statement, **parameters))
        return removed[-1]

    monkeypatch.setattr(Transaction, "execute", counted)
    room.destroy()
    assert removed == [100, 100, 50]
    assert list(room.list()) == []


def test_a_listing_holds_no_connection_between_its_pages(database: Database, room: DatabaseNamespace) -> None:
    for _ in range(3):
        room.put(mint_name(), b"x")
    listing = room.list()
    next(listing)
    assert database.pool.lent() == 0
    assert len(list(listing)) == 2


@pytest.mark.parametrize("value", ["'text of 16 chars'", "1234567890123456", "NULL"])
def test_what_is_no_blob_in_sqlite_is_corrupt(empty_sqlite_url: str, value: str) -> None:
    database = make_database(empty_sqlite_url)
    columns = "outer_name TEXT, inner_name TEXT, name TEXT, created_at_us INT, data"
    with database.writing() as transaction:
        transaction.connection.execute("DROP TABLE tenancy_blobs")
        transaction.connection.execute(f"CREATE TABLE tenancy_blobs ({columns})")
        transaction.connection.execute(f"INSERT INTO tenancy_blobs VALUES (?, ?, ?, 0, {value})", (OUTER, INNER, NAME))
    room = DatabaseStore(database).namespace(OUTER, INNER)
    with pytest.raises(BlobCorrupt):
        room.get(NAME, size_bytes=16)
    with pytest.raises(BlobCorrupt):
        room.get_range(NAME, start=0, length=2, size_bytes=16)
    database.close()


def test_postgres_keeps_the_bytes_outside_of_the_row_and_as_they_are(empty_postgres_url: str) -> None:
    database = make_database(empty_postgres_url)
    with database.reading() as transaction:
        found = transaction.connection.execute(
            "SELECT attstorage::text FROM pg_attribute WHERE attrelid = 'tenancy_blobs'::regclass AND attname = 'data'"
        ).fetchone()
    # https://www.postgresql.org/docs/current/catalog-pg-attribute.html: e is EXTERNAL.
    assert found == ("e",)
    database.close()


def test_a_blob_of_a_wrong_size_never_travels(database: Database, room: DatabaseNamespace) -> None:
    room.put(NAME, b"x" * 1000)
    statements = DatabaseStore(database)._statements
    keys = {"outer_name": OUTER, "inner_name": INNER, "name": NAME, "size_bytes": 5}
    with database.reading() as transaction:
        assert transaction.one(statements.whole, **keys) == (None,)
        one, other = {"first0": 1, "length0": 2}, {"first1": 2, "length1": 3}
        assert transaction.one(statements.one_part, **keys, **one) == (None,)
        assert transaction.one(statements.two_parts, **keys, **one, **other) == (None, None)
        right = {**keys, "size_bytes": 1000}
        assert transaction.one(statements.two_parts, **right, **one, **other) == (b"xx", b"xxx")
