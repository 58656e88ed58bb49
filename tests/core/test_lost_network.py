"""A server of which nothing is heard any more: whoever waits for it is told so in bounded time, and nothing is lost."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from stores.sql import Database
from tenancy import Session, SessionManager, StorageUnavailable
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.core.lossy import LossyWay

#: A second each, where the library's own are for networks.
HASTE: Final = "connect_timeout=2&keepalives_idle=1&keepalives_interval=1&keepalives_count=1&tcp_user_timeout=1000"
#: Far less than the quarter of an hour that the system would wait, and far more than a busy machine needs.
BOUND_SECONDS: Final = 30


@pytest.fixture
def inline_bytes() -> int:
    """Where the bytes are does not matter here."""
    return 32768


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """Only PostgreSQL has a network in between."""
    return postgres_url


@pytest.fixture
def way(postgres_url: str) -> Iterator[LossyWay]:
    folder = sa.make_url(postgres_url).query["host"]
    assert isinstance(folder, str)
    with LossyWay(Path(folder) / ".s.PGSQL.5432") as opened:
        yield opened


@pytest.fixture
def distant(way: LossyWay, make_manager: ManagerFactory, postgres_url: str) -> SessionManager:
    """A manager that reaches its database by that way."""
    url = sa.make_url(postgres_url)
    place = f"{url.username}@127.0.0.1:{way.port}/{url.database}?{HASTE}"
    return make_manager(database_url=f"postgresql+psycopg://{place}")


def require_told(session: Session, content: str) -> None:
    began = time.monotonic()
    with pytest.raises(StorageUnavailable) as failure:
        session.write(content)
    assert failure.value.retryable
    assert time.monotonic() - began < BOUND_SECONDS


@pytest.mark.case(63)
def test_a_call_whose_network_vanishes_is_told_and_works_again_when_it_is_back(
    distant: SessionManager, way: LossyWay, ledger: Ledger
) -> None:
    session = distant.session(tenant="acme", user="ann", session="chat")
    kept = session.write(b"kept")
    way.vanish()
    # The connection that is there, and then one that cannot be made.
    require_told(session, "one")
    require_told(session, "two")
    way.come_back()
    again = session.write(b"three")
    assert [session.read(reference) for reference in (kept, again)] == [b"kept", b"three"]
    assert session.usage().results == 2
    assert distant.verify().ok


def test_a_server_is_given_up_in_a_minute_unless_the_url_has_another_idea(postgres_url: str) -> None:
    def told(url: str) -> dict[str, str]:
        database = Database(url)
        try:
            with database.reading() as transaction:
                parameters: dict[str, str] = transaction.connection.info.get_parameters()
                return parameters
        finally:
            database.close()

    plain = told(postgres_url)
    assert {name: plain[name] for name in ("connect_timeout", "keepalives_idle", "tcp_user_timeout")} == {
        "connect_timeout": "10",
        "keepalives_idle": "30",
        "tcp_user_timeout": "60000",
    }
    asked = told(f"{postgres_url}&tcp_user_timeout=5000&connect_timeout=3")
    assert (asked["tcp_user_timeout"], asked["connect_timeout"]) == ("5000", "3")
    assert asked["keepalives_idle"] == "30"
