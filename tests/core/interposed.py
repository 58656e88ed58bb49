"""Stands between the library and its store or database: counts, and breaks on purpose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stores.lending import Lender
from stores.sql import Transaction
from tenancy import SessionManager


class Killed(BaseException):
    """The process ends here: nothing that comes after in this call may run, no handler either."""


class Store:
    """
    A store that calls `before(operation, name)` and `after(operation, name)` around each step.

    :param inner: The real one.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.before: Callable[[str, str], None] = lambda operation, name: None
        self.after: Callable[[str, str], None] = lambda operation, name: None

    def namespace(self, outer: str, inner: str) -> "_Namespace":
        return _Namespace(self, self._inner.namespace(outer, inner))

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)


class _Namespace:
    def __init__(self, store: Store, inner: Any) -> None:
        self._store = store
        self._inner = inner

    def joined(self, transaction: Transaction) -> "_Namespace":
        return _Namespace(self._store, self._inner.joined(transaction))

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method = getattr(self._inner, operation)

        def call(*arguments: Any, **settings: Any) -> Any:
            name = arguments[0] if arguments else ""
            self._store.calls.append(operation)
            self._store.before(operation, name)
            answer = method(*arguments, **settings)
            self._store.after(operation, name)
            return answer

        return call


def interpose(manager: SessionManager) -> Store:
    """Put one `Store` in front of both places where a manager keeps bytes; the same hooks see both."""
    backend = manager._backend
    store = Store(backend.store)
    inline = Store(backend.inline)
    inline.calls = store.calls
    inline.before = lambda operation, name: store.before(operation, name)
    inline.after = lambda operation, name: store.after(operation, name)
    backend.store, backend.inline = store, inline  # type: ignore[assignment]
    return store


class Statements:
    """What was said to the database, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.connections = 0

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        """Only what is said inside."""
        start = len(self.texts)
        said: list[str] = []
        yield said
        said.extend(self.texts[start:])


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """Every statement and every use of a connection, whoever causes it."""
    seen = Statements()
    run, many, out = Transaction._run, Transaction.execute_many, Lender.take
    later, finish = Transaction.later, Transaction.finish

    def counting_run(self: Transaction, statement: Any, parameters: Any) -> Any:
        seen.texts.append(statement.compiled(self._dialect)[0])
        return run(self, statement, parameters)

    def counting_many(self: Transaction, statement: Any, rows: Any) -> None:
        seen.texts.append(statement.compiled(self._dialect)[0])
        many(self, statement, rows)

    # On SQLite these two run what they are given like everything else.
    def counting_later(self: Transaction, statement: Any, **parameters: Any) -> None:
        if self._dialect.name != "sqlite":
            seen.texts.append(statement.compiled(self._dialect)[0])
        later(self, statement, **parameters)

    def counting_finish(self: Transaction, *last: Any) -> bool:
        if self._dialect.name != "sqlite":
            seen.texts.extend(statement.compiled(self._dialect)[0] for statement, _ in last)
        return finish(self, *last)

    def counting_out(self: Lender) -> Any:
        seen.connections += 1
        return out(self)

    monkeypatch.setattr(Transaction, "_run", counting_run)
    monkeypatch.setattr(Transaction, "execute_many", counting_many)
    monkeypatch.setattr(Transaction, "later", counting_later)
    monkeypatch.setattr(Transaction, "finish", counting_finish)
    monkeypatch.setattr(Lender, "take", counting_out)
    return seen
