"""Looks at a catalogue and its store from behind: rows, blobs, files and counters, without the library's own eyes."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from stores.entries import TRASH
from stores.sql import Database, Statement
from tests.conftest import ManagerFactory
from tests.postgres import as_admin

TABLES = (
    "tenancy_tenants",
    "tenancy_users",
    "tenancy_sessions",
    "tenancy_tenant_keys",
    "tenancy_session_keys",
    "tenancy_results",
    "tenancy_usage",
    "tenancy_limits",
    "tenancy_blobs",
)


class Ledger:
    """
    The truth about what is stored.

    :param factory: Whose database and directory it looks at.
    """

    def __init__(self, factory: ManagerFactory) -> None:
        self._factory = factory
        self._database = Database(as_admin(factory.database_url))

    def close(self) -> None:
        self._database.close()

    def all(self, text: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a query."""
        with self._database.reading() as transaction:
            return transaction.all(Statement(sa.text(text).bindparams(**values)))

    def one(self, text: str, **values: Any) -> Any:
        """Run a query for one value."""
        return self.all(text, **values)[0][0]

    def run(self, text: str, **values: Any) -> int:
        """Change something behind the library's back; returns how many rows."""
        with self._database.writing() as transaction:
            return transaction.execute(Statement(sa.text(text).bindparams(**values)))

    def count(self, table: str) -> int:
        return int(self.one(f"SELECT count(*) FROM {table}"))

    def counts(self) -> dict[str, int]:
        """How many rows each table of ours has."""
        return {table: self.count(table) for table in TABLES}

    def states(self) -> dict[str, int]:
        """How many results are in which state."""
        return dict(self.all("SELECT state, count(*) FROM tenancy_results GROUP BY state"))

    @property
    def files(self) -> list[Path]:
        """Every file of the store, also in its trash."""
        return sorted(path for path in self._factory.results.rglob("*") if not path.is_dir())

    @property
    def directories(self) -> list[Path]:
        """Every directory below the store's root but its own trash."""
        found = [path for path in self._factory.results.rglob("*") if path.is_dir()]
        return sorted(path for path in found if path.name != TRASH)

    def where(self) -> tuple[int, int]:
        """How many blobs are in the database, and how many are files."""
        return self.count("tenancy_blobs"), len(self.files)

    def ways(self, *, small: int = 0, large: int = 0) -> tuple[int, int]:
        """What `where` must say after so many small and large results, by the setting of this test."""
        return (small, large) if self._factory.inline_bytes else (0, small + large)

    def counters(self) -> list[tuple[Any, ...]]:
        return self.all("SELECT owner_id, used_bytes, results, sessions FROM tenancy_usage ORDER BY 1")

    def snapshot(self) -> dict[str, Any]:
        """Everything that a refused call must leave as it was."""
        rows = {table: sorted(map(repr, self.all(f"SELECT * FROM {table}"))) for table in TABLES}
        return {**rows, "files": [(str(path), path.read_bytes()) for path in self.files]}

    def require_balanced(self) -> None:
        """Every counter is the sum of its rows; every readable row has its exact bytes; all bytes have a row."""
        totals: dict[str, list[int]] = {}
        owners = {}
        for tenant, user, session in self.all("SELECT tenant_id, user_id, session_id FROM tenancy_sessions"):
            owners[tenant, session] = (tenant, user, session)
            totals.setdefault(session, [0, 0, 0])
            for owner in (user, tenant):
                totals.setdefault(owner, [0, 0, 0])[2] += 1
        for tenant, session, size in self.all("SELECT tenant_id, session_id, size_bytes FROM tenancy_results"):
            for owner in owners[tenant, session]:
                totals[owner][0] += size
                totals[owner][1] += 1
        counted = {owner: list(found) for owner, *found in self.counters()}
        assert {owner: found for owner, found in counted.items() if any(found) or owner in totals} == totals
        query = "SELECT tenant_id, session_id, result_id, stored_bytes FROM tenancy_results WHERE state = 'committed'"
        blobs = self.all("SELECT outer_name, inner_name, name, length(data) FROM tenancy_blobs")
        assert sorted(blobs) == sorted(self.all(f"{query} AND inline = 1"))
        found = [(*path.relative_to(self._factory.results).parts, path.stat().st_size) for path in self.files]
        assert sorted(found) == sorted(self.all(f"{query} AND inline = 0"))

    def require_empty(self) -> None:
        """Nothing of anybody is left: no session, result, key of one, byte, directory or charge."""
        for table in ("tenancy_sessions", "tenancy_session_keys", "tenancy_results", "tenancy_blobs"):
            assert self.count(table) == 0, table
        assert self.files == []
        assert self.directories == []
        assert [row for row in self.counters() if any(row[1:])] == []
