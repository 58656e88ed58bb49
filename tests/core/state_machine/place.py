"""Where the machine's library works: a database, a store, a key; and what somebody does to them behind its back."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from tenancy import SessionManager
from tenancy.catalogue.sessions import Ids
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.postgres import as_admin
from tests.stores.files import exchange

#: What may be done to a blob, wherever it is. None of it can come out as the blob it was.
DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "cut": lambda data: data[:-1],
    "emptied": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "first bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "middle bit": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 128]) + data[len(data) // 2 + 1 :]
    ),
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}
#: What may be put in the place of a file. The links lead to the very bytes that were there.
REPLACEMENTS: Final = ("symbolic link", "hard link", "pipe", "directory")
GONE: Final = "gone"


class Blob(NamedTuple):
    """Where a result's bytes are."""

    tenant_id: str
    session_id: str
    result_id: str
    inline: bool


class SessionRow(NamedTuple):
    """A session as it stands."""

    ids: Ids
    state: str
    used_at_us: int
    expires_at_us: int
    claimed_until_us: int | None


class ResultRow(NamedTuple):
    """A result as it stands."""

    state: str
    lease_until_us: int | None


class Rows(NamedTuple):
    """What stands in the catalogue: the states of tenants and users, sessions by id, results by session and number."""

    owners: dict[str, str]
    sessions: dict[str, SessionRow]
    results: dict[tuple[str, int], ResultRow]


class Place:
    """
    One database and one store, made anew for each example.

    :param store: `"memory"`, `"file"` or `"database"`.
    :param upgraded_file: A SQLite database to copy; `None` on PostgreSQL.
    :param postgres_url: A database that is emptied; `None` on SQLite.
    :param folder: Where folders for examples can be made.
    """

    def __init__(
        self, store: str, *, inline_bytes: int, upgraded_file: Path | None, postgres_url: str | None, folder: Path
    ) -> None:
        self.store = store
        self.inline_bytes = inline_bytes
        self._upgraded_file = upgraded_file
        self._postgres_url = postgres_url
        self._folder = folder
        self._numbers = itertools.count()
        self._postgres: psycopg.Connection[Any] | None = None
        if postgres_url is not None:
            self._postgres = psycopg.connect(as_admin(postgres_url).replace("+psycopg", ""), autocommit=True)

    @property
    def on_postgresql(self) -> bool:
        """Whether a server keeps the catalogue."""
        return self._postgres is not None

    def start(self) -> None:
        """Begin with nothing."""
        self.folder = self._folder / str(next(self._numbers))
        self.folder.mkdir(mode=0o700)
        if self._upgraded_file is not None:
            path = self.folder / "catalogue.sqlite3"
            shutil.copyfile(self._upgraded_file, path)
            url = f"sqlite:///{path}"
        else:
            url = self._postgres_url or ""
            self._empty()
        self.factory = ManagerFactory(database_url=url, inline_bytes=self.inline_bytes, folder=self.folder)
        self.ledger = Ledger(self.factory)

    def manager(self, *, offset_us: int) -> SessionManager:
        """Open what is there."""
        urls = {"memory": "memory:", "database": "database:", "file": f"file://{self.factory.results}"}
        manager = self.factory(durability="process", store_url=urls[self.store])
        manager.clock.offset_us = offset_us
        return manager

    @contextmanager
    def key_away(self) -> Iterator[None]:
        """For the length of a block there is no key file."""
        path = self.factory.key_file
        path.rename(path.with_suffix(".away"))
        try:
            yield
        finally:
            path.with_suffix(".away").rename(path)

    def stop(self) -> None:
        """Close and remove everything of this example."""
        self.factory.close()
        self.ledger.close()
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """Let go of the database."""
        if self._postgres is not None:
            self._empty()
            self._postgres.close()

    def rows(self) -> Rows:
        """What a death has left."""
        owners = self.ledger.all(
            "SELECT tenant_id, state FROM tenancy_tenants UNION ALL SELECT user_id, state FROM tenancy_users"
        )
        sessions = self.ledger.all(
            "SELECT tenant_id, user_id, session_id, state, used_at_us, expires_at_us, claimed_until_us"
            " FROM tenancy_sessions"
        )
        results = self.ledger.all("SELECT session_id, number, state, lease_until_us FROM tenancy_results")
        return Rows(
            owners=dict(owners),
            sessions={row[2]: SessionRow(Ids(*row[:3]), *row[3:]) for row in sessions},
            results={(row[0], row[1]): ResultRow(*row[2:]) for row in results},
        )

    def blobs(self) -> dict[tuple[str, int], Blob]:
        """Where the bytes of every result are, by its session and number."""
        rows = self.ledger.all("SELECT tenant_id, session_id, result_id, inline, number FROM tenancy_results")
        return {(row[1], row[4]): Blob(*row[:3], bool(row[3])) for row in rows}

    def is_in_database(self, blob: Blob) -> bool:
        """Whether the bytes are rows."""
        return blob.inline or self.store == "database"

    def damages(self, blob: Blob) -> list[str]:
        """What can be done to this one."""
        is_file = not self.is_in_database(blob) and self.store == "file"
        return [*DAMAGES, GONE, *(REPLACEMENTS if is_file else ())]

    def damage(self, manager: SessionManager, blob: Blob, how: str) -> None:
        """Do it."""
        if how in DAMAGES:
            self._write(manager, blob, DAMAGES[how](self._read(manager, blob)))
        elif self.is_in_database(blob):
            assert self.ledger.run("DELETE FROM tenancy_blobs WHERE name = :name", name=blob.result_id) == 1
        elif self.store == "memory":
            del self._memory(manager, blob)[blob.result_id]
        else:
            self._replace(self._path(blob), how)

    def swap(self, manager: SessionManager, one: Blob, other: Blob) -> None:
        """Let two blobs change places. They must be in the same kind of place."""
        if not self.is_in_database(one) and self.store == "file":
            exchange(self._path(one), self._path(other))
        elif self.is_in_database(one):
            first, second = self._read(manager, one), self._read(manager, other)
            self._write(manager, one, second)
            self._write(manager, other, first)
        else:
            rooms = self._memory(manager, one), self._memory(manager, other)
            first, second = rooms[0][one.result_id], rooms[1][other.result_id]
            rooms[0][one.result_id], rooms[1][other.result_id] = second, first

    def _read(self, manager: SessionManager, blob: Blob) -> bytes:
        if self.is_in_database(blob):
            return bytes(self.ledger.one("SELECT data FROM tenancy_blobs WHERE name = :name", name=blob.result_id))
        if self.store == "memory":
            return bytes(self._memory(manager, blob)[blob.result_id].data)
        return self._path(blob).read_bytes()

    def _write(self, manager: SessionManager, blob: Blob, data: bytes) -> None:
        if self.is_in_database(blob):
            query = "UPDATE tenancy_blobs SET data = :data WHERE name = :name"
            assert self.ledger.run(query, data=data, name=blob.result_id) == 1
        elif self.store == "memory":
            room = self._memory(manager, blob)
            room[blob.result_id] = type(room[blob.result_id])(data, room[blob.result_id].created_at)
        else:
            self._path(blob).write_bytes(data)

    def _replace(self, path: Path, how: str) -> None:
        outside = self.folder / f"outside-{path.name}"
        if how == "hard link":
            os.link(path, outside)
        elif how == GONE:
            path.unlink()
        else:
            path.rename(outside)
            if how == "symbolic link":
                path.symlink_to(outside)
            elif how == "pipe":
                os.mkfifo(path)
            else:
                path.mkdir()
                outside.rename(path / path.name)

    def _path(self, blob: Blob) -> Path:
        return self.factory.results / blob.tenant_id / blob.session_id / blob.result_id

    def _memory(self, manager: SessionManager, blob: Blob) -> dict[str, Any]:
        rooms: dict[tuple[str, str], dict[str, Any]] = manager._backend.store._rooms  # type: ignore[attr-defined]
        return rooms[blob.tenant_id, blob.session_id]

    def _empty(self) -> None:
        assert self._postgres is not None
        tables = self._postgres.execute(
            "SELECT string_agg(format('%I', tablename), ', ') FROM pg_tables"
            " WHERE schemaname = 'public' AND tablename <> 'tenancy_alembic_version'"
        ).fetchone()
        assert tables is not None
        self._postgres.execute(f"TRUNCATE {tables[0]}")
