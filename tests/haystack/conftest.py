"""Real managers and sessions, and the events they leave in the log."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenancy.manager import SessionManager
from tenancy.session import Session
from tests.core.conftest import core_postgres_url, postgres_url

#: One PostgreSQL database for all of these tests, emptied after each.
__all__ = ["core_postgres_url", "postgres_url"]


@pytest.fixture
def manager(make_manager: Callable[..., SessionManager]) -> SessionManager:
    """A manager on each kind of database, with its results in files, and with small ones in the database."""
    return make_manager(durability="process")


@pytest.fixture
def session(manager: SessionManager) -> Iterator[Session]:
    with manager.session(tenant="acme", user="u-1", session="chat") as opened:
        yield opened


@pytest.fixture
def open_session(manager: SessionManager) -> Callable[..., Session]:
    """Opens sessions of different users of one tenant."""

    def open_for(user: str, **settings: Any) -> Session:
        return manager.session(tenant="acme", user=user, session="chat", **settings)

    return open_for


class Events(logging.Handler):
    """The records of ours, and everything else that was logged."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def names(self) -> list[str]:
        """The events, in order."""
        return [record.event for record in self.records if hasattr(record, "event")]

    @property
    def text(self) -> str:
        """Everything that was logged, with the fields."""
        return "\n".join(f"{record.getMessage()} {vars(record)}" for record in self.records)


@pytest.fixture
def events() -> Iterator[Events]:
    """What is logged from WARNING up, by us or anybody."""
    handler = Events()
    handler.setLevel(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
