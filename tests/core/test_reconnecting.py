"""PostgreSQL ends connections: after a restart, or because it was told to. The next call takes a new one."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tenancy import Session, SessionManager
from tenancy.roles import prepare_roles
from tenancy.upgrade import upgrade
from tests.conftest import ManagerFactory
from tests.postgres import PostgresServer, as_admin, as_maintenance, as_owner

#: How many connections the pool keeps when the server ends them.
CONNECTIONS = 4


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """Only PostgreSQL has connections that somebody else ends."""
    return postgres_url


def keep_connections(manager: SessionManager) -> None:
    """Have the pool keep several connections, all of them idle."""
    database = manager._backend.catalogue.database
    gate = threading.Barrier(CONNECTIONS)

    def hold() -> None:
        with database.reading():
            gate.wait()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for held in [pool.submit(hold) for _ in range(CONNECTIONS)]:
            held.result()
    assert database.pool.idle() >= CONNECTIONS


def end_connections(url: str) -> int:
    """Have the server end all connections to a database but this one, and wait until it has; returns how many."""
    with psycopg.connect(as_admin(url).replace("+psycopg", ""), autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchall()
    assert all(done for (done,) in ended)
    return len(ended)


@pytest.mark.case(63)
def test_connections_the_server_has_ended_fail_no_call(
    manager: SessionManager, session: Session, postgres_url: str
) -> None:
    reference = session.write("kept")
    keep_connections(manager)
    assert end_connections(postgres_url) >= CONNECTIONS
    for number in range(2 * CONNECTIONS):
        assert session.read(session.write(f"new {number}")) == f"new {number}"
    assert session.read(reference) == "kept"
    assert manager.verify().ok


def test_calls_that_come_together_after_the_server_has_ended_all_connections_all_work(
    manager: SessionManager, session: Session, postgres_url: str
) -> None:
    reference = session.write("kept")
    keep_connections(manager)
    end_connections(postgres_url)
    with ThreadPoolExecutor(2 * CONNECTIONS) as pool:
        assert set(pool.map(session.read, [reference] * 4 * CONNECTIONS)) == {"kept"}


class RestartedServer(PostgresServer):
    """A server of a test's own, since the one that all share must stay."""

    def restart(self) -> None:
        """Stop it, which ends every connection, and start it again."""
        assert self._process is not None
        assert self._admin is not None
        self._admin.close()
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        self._process = self._launch()
        self._admin = self._connect_when_ready()


@pytest.fixture
def restarted() -> Iterator[RestartedServer]:
    server = RestartedServer()
    yield server
    server.close()


@pytest.mark.case(63)
def test_a_restart_of_the_server_fails_no_call_that_comes_after_it(restarted: RestartedServer, tmp_path: Path) -> None:
    url = restarted.url(restarted.create_database())
    upgrade(as_owner(url))
    prepare_roles(as_owner(url), database_url=url, maintenance_url=as_maintenance(url))
    make_manager = ManagerFactory(database_url=url, inline_bytes=0, folder=tmp_path)
    manager = make_manager(durability="process")
    session = manager.session(tenant="acme", user="ann")
    reference = session.write("kept")
    keep_connections(manager)
    restarted.restart()
    assert session.read(reference) == "kept"
    for number in range(2 * CONNECTIONS):
        assert session.read(session.write(f"new {number}")) == f"new {number}"
    make_manager.close()
