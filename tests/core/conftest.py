"""A manager on each kind of database and each way results take, and a look at what it stores."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tenancy import Session, SessionManager
from tests.conftest import ManagerFactory
from tests.core.interposed import Store, interpose, statements
from tests.core.ledger import Ledger
from tests.core.people import People
from tests.core.statement_listener import StatementListener
from tests.postgres import PostgresServer, as_owner

__all__ = ["statements"]


@pytest.fixture(autouse=True)
def statement_listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatementListener]:
    """Whatever a test does: no statement of the library's goes out without its tenant."""
    listener = StatementListener()
    listener.listen(monkeypatch)
    yield listener
    assert listener.faults == []


@pytest.fixture(scope="session")
def core_postgres_url(postgres: PostgresServer, upgraded_template: str) -> Iterator[str]:
    """One database for all tests of the core: making one anew takes longer than most of these tests."""
    name = postgres.create_database(template=upgraded_template)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(core_postgres_url: str) -> Iterator[str]:
    """That database, emptied after each test of everything but its schema and its revision."""
    yield core_postgres_url
    with psycopg.connect(as_owner(core_postgres_url).replace("+psycopg", ""), autocommit=True) as connection:
        tables = connection.execute(
            "SELECT string_agg(format('%I', tablename), ', ') FROM pg_tables"
            " WHERE schemaname = 'public' AND tablename <> 'tenancy_alembic_version'"
        ).fetchone()
        assert tables is not None
        connection.execute(f"TRUNCATE {tables[0]}")
        # They would outlive the rows, and have the server plan for other ones in every test that comes.
        assert connection.execute("SELECT tablename FROM pg_stats WHERE schemaname = 'public'").fetchall() == []


@pytest.fixture
def manager(make_manager: ManagerFactory) -> SessionManager:
    """A manager that does not wait for the disk: nobody pulls the plug here."""
    return make_manager(durability="process")


@pytest.fixture
def ledger(make_manager: ManagerFactory) -> Iterator[Ledger]:
    """What is stored, seen from behind."""
    opened = Ledger(make_manager)
    yield opened
    opened.close()


@pytest.fixture
def open_session(manager: SessionManager) -> Callable[..., Session]:
    """Opens a session of that user of that tenant, unless told otherwise."""

    def opened(session: str | None = "chat", *, user: str = "ann", tenant: str = "acme", **settings: object) -> Session:
        return manager.session(tenant=tenant, user=user, session=session, **settings)  # type: ignore[arg-type]

    return opened


@pytest.fixture
def session(open_session: Callable[..., Session]) -> Session:
    """A session of one user."""
    return open_session()


@pytest.fixture
def store(manager: SessionManager) -> Store:
    """The manager's stores, with somebody in between."""
    return interpose(manager)


@pytest.fixture
def people(manager: SessionManager) -> People:
    """Four people's sessions, all with something in them."""
    return People(manager)
