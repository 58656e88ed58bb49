"""An erasure against its own receipt: what opens a copy of everything that was taken before it, and what does not."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenancy import KeyDestroyed, SessionManager
from tenancy.schema import METADATA
from tests.conftest import ManagerFactory
from tests.core.key_files import destroy, rotate_root
from tests.core.ledger import Ledger
from tests.core.people import People, erase_user
from tests.postgres import PostgresServer, as_admin

_TABLES = [table.name for table in METADATA.sorted_tables]


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """A connection that no policy holds back."""
    with psycopg.connect(as_admin(url).replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


def dumped(url: str) -> dict[str, bytes]:
    """Every row of every table of a PostgreSQL database, as `pg_dump` writes it: bytes in hexadecimal."""
    rows = {}
    with connected(url) as server:
        for name in _TABLES:
            with server.cursor().copy(f"COPY {name} TO STDOUT") as copy:
                rows[name] = b"".join(copy)
    return rows


def restore(url: str, dump: dict[str, bytes]) -> None:
    with connected(url) as server:
        for name, rows in dump.items():
            with server.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                copy.write(rows)


class Copy:
    """
    A copy of a database, its files and its key file.

    :param original: Of what; somebody may be using it.
    :param folder: An empty folder for it.
    :param database_url: On PostgreSQL, an upgraded database with nothing in it.
    """

    def __init__(self, original: ManagerFactory, folder: Path, database_url: str | None) -> None:
        folder.mkdir(mode=0o700)
        if database_url is None:
            database_url = f"sqlite:///{folder}/catalogue.sqlite3"
            source = original.database_url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(folder / "catalogue.sqlite3")) as two:
                one.backup(two)
            (folder / "catalogue.sqlite3").chmod(0o600)
        else:
            restore(database_url, dumped(original.database_url))
        self.make_manager = ManagerFactory(database_url=database_url, inline_bytes=original.inline_bytes, folder=folder)
        shutil.copytree(original.results, self.make_manager.results, dirs_exist_ok=True)
        self.take_key_file(original)

    def take_key_file(self, original: ManagerFactory) -> None:
        """Open it with what opens the original now."""
        shutil.copyfile(original.key_file, self.make_manager.key_file)

    def reads(self, contents: dict[str, str | bytes], **who: str | None) -> bool:
        """Whether a new manager reads all of it, rather than nothing, the key being destroyed."""
        with self.make_manager(durability="process") as manager:
            session = manager.session(**who)
            refused = 0
            for reference, content in contents.items():
                try:
                    assert session.read(reference) == content
                except KeyDestroyed:
                    refused += 1
        assert refused in (0, len(contents))
        return not refused


@pytest.fixture
def take_copy(
    make_manager: ManagerFactory, database_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Copy]]:
    """Takes a copy of everything there is."""
    made: list[Copy] = []
    servers: list[tuple[PostgresServer, str]] = []

    def take() -> Copy:
        url = None
        if database_kind == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres")
            name = server.create_database(template=request.getfixturevalue("upgraded_template"))
            servers.append((server, name))
            url = server.url(name)
        made.append(Copy(make_manager, tmp_path / f"copy-{len(made)}", url))
        return made[-1]

    yield take
    for copy in made:
        copy.make_manager.close()
    for server, name in servers:
        server.drop_database(name)


def at_rest(make_manager: ManagerFactory) -> dict[str, bytes]:
    """All there is: files, SQLite's log among them, and on PostgreSQL the rows."""
    is_sqlite = make_manager.database_url.startswith("sqlite")
    database = Path(make_manager.database_url.removeprefix("sqlite:///"))
    paths = [*make_manager.folder.rglob("*"), *(database.parent.glob(f"{database.name}*") if is_sqlite else ())]
    found = {path.name: path.read_bytes() for path in paths if path.is_file()}
    return found if is_sqlite else {**found, **dumped(make_manager.database_url)}


def forms(secret: bytes) -> list[bytes]:
    return [secret, secret.hex().encode()]


ANN: dict[str, Any] = {"tenant": "acme", "user": "ann", "session": "one"}
BOB: dict[str, Any] = {**ANN, "user": "bob"}


@pytest.mark.case(39, 137)
def test_a_copy_taken_before_an_erasure_opens_as_far_as_the_receipt_says(
    make_manager: ManagerFactory,
    manager: SessionManager,
    people: People,
    ledger: Ledger,
    take_copy: Callable[[], Copy],
) -> None:
    copy = take_copy()
    of_ann, of_bob = people.victims[0][1], people.colleague[1]
    receipt = erase_user(manager)
    assert receipt.reached == "removed"
    assert "remain readable to whoever has them and the key-encryption key." in receipt.statement
    assert copy.reads(of_ann, **ANN)
    # Rotated, and nothing destroyed: the new key file has the old key in it.
    old = rotate_root(make_manager)
    copy.take_key_file(make_manager)
    assert copy.reads(of_ann, **ANN)
    destroy(make_manager.key_file, old)
    copy.take_key_file(make_manager)
    assert not copy.reads(of_ann, **ANN)
    assert not copy.reads(of_bob, **BOB)
    # Where it lives, everybody else reads on.
    later = make_manager(durability="process")
    for session, contents in (people.colleague, people.stranger):
        again = later.session(tenant=session.scope.tenant, user=session.scope.user, session=session.scope.session)
        assert {reference: again.read(reference) for reference in contents} == contents
    told = later.receipt(receipt.receipt_id or "")
    assert told is not None
    assert (told.reached, told.key_ids) == ("key_destroyed", (f"file:{old}",))
    assert later.verify().ok
    # As that receipt says too: beside the catalogue of today, which has the tenant's key, the copy opens.
    copied = Ledger(copy.make_manager)
    for table in ("tenant_keys", "root_keys"):
        bring(ledger, copied, table)
    copied.close()
    assert copy.reads(of_ann, **ANN)


def bring(source: Ledger, target: Ledger, table: str) -> None:
    """Put the rows of one table in place of another's."""
    columns = [column.name for column in METADATA.tables[f"tenancy_{table}"].c]
    rows = source.all(f"SELECT {', '.join(columns)} FROM tenancy_{table}")
    target.run(f"DELETE FROM tenancy_{table}")
    values = ", ".join(f":{column}" for column in columns)
    for row in rows:
        target.run(f"INSERT INTO tenancy_{table} VALUES ({values})", **dict(zip(columns, row, strict=True)))


@pytest.mark.case(42, 137)
def test_nothing_at_rest_holds_a_wrapped_key_of_an_erased_user(
    make_manager: ManagerFactory, manager: SessionManager, people: People, ledger: Ledger
) -> None:
    names = "s.session_id = k.session_id JOIN tenancy_users u ON u.user_id = s.user_id JOIN tenancy_tenants t"
    rows = ledger.all(
        f"SELECT k.wrapped, u.name = 'ann' AND t.name = 'acme' FROM tenancy_session_keys k"
        f" JOIN tenancy_sessions s ON {names} ON t.tenant_id = u.tenant_id"
    )
    gone, kept = [key for key, is_hers in rows if is_hers], [key for key, is_hers in rows if not is_hers]
    assert (len(gone), len(kept)) == (3, 2)
    before = b"".join(at_rest(make_manager).values())
    assert all(any(form in before for form in forms(key)) for key in gone)
    manager.delete_session(tenant="acme", user="ann", session="two")
    erase_user(manager)
    after = at_rest(make_manager)
    for name, content in after.items():
        assert not [key for key in gone if any(form in content for form in forms(key))], name
    everything = b"".join(after.values())
    assert all(any(form in everything for form in forms(key)) for key in kept)
    people.require_intact(people.colleague, people.stranger)
