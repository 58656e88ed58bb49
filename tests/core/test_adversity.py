"""A disk that takes nothing, a database somebody holds, a key that is gone, and many processes at once."""

import base64
import errno
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stores.sql import Database
from tenancy import KeyDestroyed, Lifetime, ResultNotFound, Session, SessionManager, StorageUnavailable
from tests.conftest import INLINE_BYTES, ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]


@contextmanager
def read_only() -> Iterator[None]:
    """No file system takes a change while this lasts."""

    def wrap(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return real(*arguments, **options)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "mkdir", "write", "unlink", "rename", "rmdir", "fchmod"):
            patch.setattr(os, name, wrap(name))
        yield


@pytest.mark.case(64)
def test_a_file_system_that_takes_no_change_is_read_from_and_said_to_be_so(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    session, old = open_session(), open_session("old", lifetime=Lifetime(idle=timedelta(hours=1)))
    reference, doomed = session.write(b"x" * 50_000), session.write(b"y" * 50_000)
    old.write(b"z" * 50_000)
    used = session.usage().used_bytes
    with read_only():
        assert session.read(reference) == b"x" * 50_000
        assert len(list(session.results())) == 2
        with pytest.raises(StorageUnavailable):
            session.write(b"w" * 50_000)
        with pytest.raises(StorageUnavailable):
            session.delete(doomed)
        manager.clock.advance(timedelta(hours=2))
        report = manager.cleanup()
        assert (report.complete, report.sessions) == (False, 0)
    # A refused write leaves nothing but what cleanup takes; what was to be deleted is unreadable.
    with pytest.raises(ResultNotFound):
        session.read(doomed)
    assert manager.cleanup().complete
    assert session.usage().used_bytes == used - 50_000
    assert session.read(reference) == b"x" * 50_000
    assert ledger.where() == (0, 1)
    ledger.require_balanced()


@pytest.fixture(params=INLINE_BYTES.values(), ids=INLINE_BYTES)
def impatient(
    request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[float], SessionManager]]:
    """Makes managers that wait so many seconds for a lock."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    factory = ManagerFactory(database_url=sqlite_url, inline_bytes=request.param, folder=folder)

    def make(seconds: float) -> SessionManager:
        monkeypatch.setattr("tenancy.startup.Database", partial(Database, lock_wait_seconds=seconds))
        return factory(durability="process")

    yield make
    factory.close()


@contextmanager
def held(url: str) -> Iterator[sqlite3.Connection]:
    """Another process has the database to itself."""
    with closing(
        sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


@pytest.mark.case(62)
@pytest.mark.parametrize("size", [10, 50_000])
def test_a_database_that_somebody_holds_is_waited_for(
    impatient: Callable[[float], SessionManager], sqlite_url: str, size: int
) -> None:
    session = impatient(60).session(tenant="acme", user="ann")
    written: list[str] = []
    with held(sqlite_url) as other:
        writer = threading.Thread(target=lambda: written.append(session.write(b"x" * size)))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        other.execute("ROLLBACK")
        writer.join(60)
    assert session.read(written[0]) == b"x" * size


@pytest.mark.case(62)
@pytest.mark.parametrize("size", [10, 50_000])
def test_a_database_that_somebody_keeps_is_given_up_with_nothing_half_done(
    impatient: Callable[[float], SessionManager], sqlite_url: str, size: int, tmp_path: Path
) -> None:
    manager = impatient(0.2)
    session = manager.session(tenant="acme", user="ann")
    reference = session.write(b"x" * size)
    calls: list[Callable[[], Any]] = [
        lambda: session.write(b"y" * size),
        lambda: session.delete(reference),
        lambda: manager.session(tenant="globex", user="ann"),
        lambda: manager.erase_user(tenant="acme", user="ann"),
    ]
    with held(sqlite_url):
        for call in calls:
            with pytest.raises(StorageUnavailable) as refusal:
                call()
            assert refusal.value.retryable
        assert session.read(reference) == b"x" * size
    assert (session.usage().used_bytes, session.usage().results) == (size, 1)
    assert [info.tenant for info in manager.sessions()] == ["acme"]
    assert sum(path.is_file() for path in (tmp_path / "data" / "results").rglob("*")) <= 1
    assert manager.verify().findings == ()
    session.delete(reference)


@pytest.mark.case(39)
@pytest.mark.parametrize("size", [10, 50_000])
def test_what_a_destroyed_key_has_sealed_can_still_be_deleted_and_erased(
    make_manager: ManagerFactory, ledger: Ledger, size: int
) -> None:
    first = make_manager(durability="process")
    names = [{"tenant": "acme", "user": "ann", "session": name} for name in ("one", "two")]
    names.append({"tenant": "acme", "user": "bob", "session": "one"})
    references = [first.session(**who).write(b"x" * size) for who in names]
    first.close()
    document = json.loads(make_manager.key_file.read_text())
    (old,) = document["keys"]
    new = {**old, "id": "second", "key": base64.urlsafe_b64encode(os.urandom(32)).decode()}
    document["keys"] = [{**old, "state": "destroyed", "key": None}, new]
    make_manager.key_file.write_text(json.dumps(document))
    ledger.run("DELETE FROM tenancy_root_keys")
    manager = make_manager(durability="process")
    session = manager.session(**names[0])
    with pytest.raises(KeyDestroyed) as refusal:
        session.read(references[0])
    assert not refusal.value.retryable
    with pytest.raises(KeyDestroyed):
        session.write(b"y" * size)
    assert {finding.kind for finding in manager.verify().findings} == {"no_key"}
    assert manager.cleanup().results == 0
    assert session.usage().used_bytes == size
    session.delete(references[0])
    assert session.usage().used_bytes == 0
    assert manager.delete_session(**names[1]).results == 1
    assert manager.erase_user(tenant="acme", user="bob").results == 1
    assert manager.erase_tenant(tenant="acme").users == 1
    ledger.require_empty()


WRITER = """
import sys
from tenancy import SessionManager
print("ready", flush=True)
sys.stdin.readline()
with SessionManager.local(sys.argv[1], durability="process") as manager:
    session = manager.session(tenant="acme", user="ann")
    for number in range(200):
        print(session.write(f"{sys.argv[2]} {number}"), flush=True)
"""


@pytest.mark.slow
@pytest.mark.case(109)
def test_eight_processes_on_a_fresh_sqlite_file_fail_and_lose_nothing(empty_sqlite_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(8)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    written = [writer.communicate(timeout=110)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    with SessionManager.local(folder) as manager:
        session = manager.session(tenant="acme", user="ann")
        assert len(list(session.results())) == 1600
        for who, references in enumerate(written):
            assert [session.read(reference) for reference in references] == [f"{who} {number}" for number in range(200)]
        assert manager.verify().ok
