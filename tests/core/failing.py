"""Every error we have, driven for real, in a house in which every name is a canary."""

import base64
import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tenancy import (
    AlreadyRunning,
    ConfigurationError,
    KeyDestroyed,
    KeyUnavailable,
    Limits,
    NoActiveSession,
    QuotaExceeded,
    ResultCorrupt,
    ResultNotFound,
    ResultTooLarge,
    RoutedStore,
    SchemaOutdated,
    ScopeError,
    SessionManager,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    TenancyError,
)
from tenancy.schema import HEAD_REVISION, VERSION_TABLE
from tenancy.seam.binding import SessionStore
from tenancy.upgrade import locked_for_migration, upgrade
from tests.conftest import ManagerFactory
from tests.leaks import CANARY, CONTENT, MEDIA_TYPE, NAME, PASSWORD, TENANT, TOOL, USER, WHO
from tests.postgres import as_admin, as_maintenance

Calls = Iterator[Callable[[], Any]]

#: A database, a role and a host that there are not. Drivers name them in logs of their own, we do not.
ELSEWHERE = "elsewhere"
SECOND = {**WHO, "session": "canary-second"}


class House:
    """
    A manager whose every name is a canary, and somebody who can reach behind it.

    :param make_manager: What makes it. Its database may be one that other tests use: what is changed is changed back.
    """

    def __init__(self, make_manager: ManagerFactory) -> None:
        self.make_manager = make_manager
        self.url = with_password(make_manager.database_url)
        self.admin_url = with_password(as_admin(make_manager.database_url))
        self.manager = self.another()
        self.session = self.manager.session(**WHO)

    def another(self, **settings: Any) -> SessionManager:
        """One more manager of the same place."""
        urls = {"database_url": self.url}
        if not self.url.startswith("sqlite"):
            urls["maintenance_url"] = with_password(as_maintenance(self.make_manager.database_url))
        return self.make_manager(**{**urls, "durability": "process", **settings})

    def write(self, content: str | bytes = CONTENT) -> str:
        return self.session.write_result(content, name=NAME, tool=TOOL, media_type=MEDIA_TYPE)

    def change(self, *texts: str) -> None:
        """Change something in the database behind the library's back."""
        if self.admin_url.startswith("sqlite"):
            with closing(sqlite3.connect(self.admin_url.removeprefix("sqlite:///"))) as connection, connection:
                for text in texts:
                    connection.execute(text)
            return
        with psycopg.connect(self.admin_url.replace("+psycopg", "")) as server:
            for text in texts:
                server.execute(text.replace("X'", "'\\x"))

    @contextmanager
    def changed(self, text: str, back: str) -> Iterator[None]:
        """Change something for the length of a block."""
        self.change(text)
        try:
            yield
        finally:
            self.change(back)

    @property
    def paths(self) -> list[str]:
        """Where on this host the house is: its directory, and the server's."""
        found = [str(self.make_manager.folder.parent)]
        socket = sa.make_url(self.url).query.get("host")
        return [*found, str(socket)] if socket else found


def with_password(url: str) -> str:
    """The URL with a password in it, which the tests' server does not look at. A SQLite file has none."""
    parsed = sa.make_url(url)
    return url if url.startswith("sqlite") else parsed.set(password=PASSWORD).render_as_string(hide_password=False)


def not_acceptable(house: House) -> Calls:
    for name in ("", " ", "canary\0", "canary" * 100, b"canary", "canary\ud800"):
        for field in WHO:
            yield lambda field=field, name=name: house.manager.session(**{**WHO, field: name})
    yield lambda: house.manager.erase_user(tenant=TENANT, user="canary\n")


def ended(house: House) -> Calls:
    reference = house.write()
    closed = house.manager.session(**WHO)
    closed.close()
    yield lambda: closed.read(reference)
    yield lambda: closed.write(CONTENT, name=NAME)
    yield lambda: house.manager.limits(tenant="canary-nobody")
    yield lambda: house.manager.set_limits(Limits(), tenant=TENANT, user="canary-nobody")
    house.manager.delete_session(**WHO)
    yield lambda: house.session.read(reference)
    yield house.write
    yield lambda: list(house.session.results())
    yield house.session.usage


def unknown(house: House) -> Calls:
    reference = house.write()
    other = house.manager.session(**{**WHO, "user": "canary-other"})
    for call in (other.read, other.delete, lambda text: other.read_page(text, max_chars=9)):
        for text in (reference, "canary/../../path", "canary-9-aaaaaaaaaa"):
            yield lambda call=call, text=text: call(text)


def too_much(house: House) -> Calls:
    for field in ("session_bytes", "session_results", "user_bytes", "user_results", "tenant_bytes", "tenant_results"):
        house.manager.set_limits(Limits(**{field: 0}), tenant=TENANT)
        yield house.write
    for field in ("user_sessions", "tenant_sessions"):
        house.manager.set_limits(Limits(**{field: 1}), tenant=TENANT)
        yield lambda: house.manager.session(**SECOND)


def too_large(house: House) -> Calls:
    house.manager.set_limits(Limits(max_result_bytes=10), tenant=TENANT)
    yield house.write
    # So large that it is asked about before it is sealed.
    yield lambda: house.write(CONTENT * 20)
    yield lambda: house.write(CONTENT.encode() * 20)


def damaged(house: House) -> Calls:
    for column in ("card", "header"):
        reference = house.write()
        house.change(f"UPDATE tenancy_results SET {column} = X'{CANARY.encode().hex() * 9}'")
        yield lambda reference=reference: house.session.read(reference)
        yield lambda reference=reference: house.session.read_page(reference, max_chars=100)
        yield lambda: list(house.session.results())
    before = {path for path in house.make_manager.results.rglob("*") if path.is_file()}
    reference = house.write(os.urandom(50_000))
    (path,) = {path for path in house.make_manager.results.rglob("*") if path.is_file()} - before
    for harm in (lambda: path.write_bytes(CANARY.encode() * 1000), lambda: os.truncate(path, 9), path.unlink):
        harm()
        yield lambda: house.session.read(reference)
    house.change(f"UPDATE tenancy_session_keys SET wrapped = X'{CANARY.encode().hex() * 9}'")
    yield lambda: house.session.read(reference)


def key_is_away(house: House) -> Calls:
    reference = house.write()
    for column in ("key_id", "provider"):
        house.change(f"UPDATE tenancy_tenant_keys SET {column} = 'unknown'")
        yield lambda: house.session.read(reference)
        yield lambda: house.manager.session(**SECOND)
    yield from without_its_key(house.another(keys="none:"), reference)
    succeed_key(house, state="disabled")
    yield from without_its_key(house.another(), reference)


def without_its_key(manager: SessionManager, reference: str) -> Calls:
    """What a manager cannot do that was started while its key was not there."""
    yield manager.require_key
    yield lambda: manager.session(**WHO).read(reference)
    yield lambda: manager.session(**WHO).write(CONTENT, name=NAME)
    yield lambda: manager.session(**SECOND)
    yield lambda: manager.session(tenant="canary-new", user=USER)


def key_is_gone(house: House) -> Calls:
    reference = house.write()
    succeed_key(house, state="destroyed", key=None)
    yield from without_its_key(house.another(), reference)
    house.change("DELETE FROM tenancy_root_keys")
    session = house.another().session(**WHO)
    yield lambda: session.read(reference)
    yield lambda: session.write(CONTENT, name=NAME)


def succeed_key(house: House, **values: Any) -> None:
    """Add a new primary key to the key file, and change the one there was."""
    path = house.make_manager.key_file
    document = json.loads(path.read_text())
    (old,) = document["keys"]
    new = {**old, "id": "second", "key": base64.urlsafe_b64encode(os.urandom(32)).decode()}
    path.write_text(json.dumps({**document, "keys": [{**old, **values}, new]}))


def unavailable(house: House) -> Calls:
    reference = house.write()
    with renamed(house, "tenancy_results"):
        yield lambda: house.session.read(reference)
        yield house.write
        yield lambda: list(house.session.results())
        yield lambda: house.session.delete(reference)
        yield house.manager.verify
        yield house.manager.cleanup
    with renamed(house, "tenancy_users"):
        yield lambda: house.manager.session(**WHO)
        yield lambda: house.manager.erase_user(tenant=TENANT, user=USER)
        yield lambda: house.manager.usage(**WHO)
        yield lambda: list(house.manager.sessions(tenant=TENANT))
    for url in unreachable(house.url):
        yield lambda url=url: house.another(database_url=url)
    house.manager._backend.catalogue.database.close()
    yield lambda: house.session.read(reference)
    yield house.write


@contextmanager
def renamed(house: House, table: str) -> Iterator[None]:
    away = f"ALTER TABLE {table} RENAME TO canary_away"
    with house.changed(away, f"ALTER TABLE canary_away RENAME TO {table}"):
        yield


def unreachable(url: str) -> list[str]:
    """URLs under which no database answers."""
    if url.startswith("sqlite"):
        # A directory stands in the file's place.
        Path(f"{url.removeprefix('sqlite:///')}-{ELSEWHERE}").mkdir()
        return [f"{url}-{ELSEWHERE}"]
    changes: tuple[dict[str, Any], ...] = (
        {"database": ELSEWHERE},
        {"username": ELSEWHERE},
        {"query": {"host": f"/{ELSEWHERE}"}},
        {"query": {}, "host": "127.0.0.1", "port": 1},
    )
    return [sa.make_url(url).set(**change).render_as_string(hide_password=False) for change in changes]


def full(house: House) -> Calls:
    house.write(b"1")

    def refuse(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left", "/canary/path")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stores.entries.os.write", refuse)
        yield lambda: house.write(os.urandom(50_000))
    if house.url.startswith("sqlite"):
        (pages,) = sqlite3.connect(house.url.removeprefix("sqlite:///")).execute("PRAGMA page_count").fetchone()
        pool = house.manager._backend.catalogue.database.pool
        # There is one, which this thread gets each time.
        connection = pool.take()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        pool.give(connection)
        yield lambda: [house.write(os.urandom(3000)) for _ in range(100)]
        return
    # What a server says whose disk is full, with the row in it as PostgreSQL's own details have.
    function = (
        "CREATE FUNCTION canary_full() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN RAISE EXCEPTION '{CANARY} %', NEW USING ERRCODE = '53100'; END$$"
    )
    calls = {
        "tenancy_results": house.write,
        "tenancy_sessions": lambda: house.manager.session(**SECOND),
        "tenancy_users": lambda: house.manager.session(tenant=TENANT, user="canary-new"),
    }
    with house.changed(function, "DROP FUNCTION canary_full"):
        for table, call in calls.items():
            trigger = f"CREATE TRIGGER canary BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION canary_full()"
            with house.changed(trigger, f"DROP TRIGGER canary ON {table}"):
                yield call


def outdated(house: House) -> Calls:
    with house.changed(revision("0000"), revision(HEAD_REVISION)):
        yield house.another
    with house.changed(revision("9999"), revision(HEAD_REVISION)):
        yield house.another
        yield lambda: upgrade(house.admin_url)


def revision(number: str) -> str:
    """What gives the database's schema another revision."""
    return f"UPDATE {VERSION_TABLE} SET version_num = '{number}'"


def unbound(house: House) -> Calls:
    yield lambda: RoutedStore().write(key=NAME, content=CONTENT)
    revived = SessionStore.from_dict(house.session.store.to_dict())
    yield lambda: revived.write(key=NAME, content=CONTENT)
    yield lambda: revived.read(house.write())


def running(house: House) -> Calls:
    with house.changed(revision("0000"), revision(HEAD_REVISION)), locked_for_migration(house.admin_url):
        yield lambda: upgrade(house.admin_url, wait_seconds=0.05)


def misconfigured(house: House) -> Calls:
    yield lambda: house.manager.session(**WHO, limits=Limits(user_bytes=1))
    yield lambda: house.another(database_url=f"mysql://canary:{PASSWORD}@canary/canary")
    yield lambda: house.another(keys="canary-a-key-itself")
    house.change("DELETE FROM tenancy_root_keys")
    yield lambda: house.another(keys="none:")
    yield lambda: house.another(limits={"max_result_bytes": CANARY})
    house.make_manager.key_file.write_text(json.dumps({"version": 1, "keys": [CANARY]}))
    yield house.another


#: Each kind of error with what drives it.
FAILURES: dict[type[TenancyError], Callable[[House], Calls]] = {
    ScopeError: not_acceptable,
    SessionNotFound: ended,
    ResultNotFound: unknown,
    QuotaExceeded: too_much,
    ResultTooLarge: too_large,
    ResultCorrupt: damaged,
    KeyUnavailable: key_is_away,
    KeyDestroyed: key_is_gone,
    StorageUnavailable: unavailable,
    StorageFull: full,
    SchemaOutdated: outdated,
    NoActiveSession: unbound,
    AlreadyRunning: running,
    ConfigurationError: misconfigured,
}
