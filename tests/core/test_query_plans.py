"""However much there is, what everybody waits for finds its rows by an index."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from stores.sql import Database, Statement
from tenancy import SessionManager
from tenancy.catalogue import erasure, reclaim_statements, result_statements, session_statements
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.postgres import PostgresServer

MANY = 3000
STATEMENTS: dict[str, Statement] = {
    "open a session": session_statements.FIND,
    "ask whether it lives": session_statements.IS_LIVE,
    "admit a write": result_statements.ADMIT,
    "find a result": result_statements.FIND,
    "list results": result_statements.LIST,
    "list all sessions": session_statements.LIST_ALL,
    "list a tenant's sessions": session_statements.LIST_TENANT,
    "list a user's sessions": session_statements.LIST_USER,
    "expired sessions": reclaim_statements.EXPIRED,
    "expired sessions of a tenant": reclaim_statements.EXPIRED_OF_TENANT,
    "ended sessions": reclaim_statements.ENDED,
    "ended sessions of a user": reclaim_statements.ENDED_OF_USER,
    "expired results": reclaim_statements.EXPIRED_RESULTS,
    "expired results of a tenant": reclaim_statements.EXPIRED_RESULTS_OF_TENANT,
    "stale results": reclaim_statements.STALE_RESULTS,
    "erasures of users that were interrupted": erasure._UNFINISHED_USERS,
}
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)"


@pytest.fixture
def inline_bytes() -> int:
    """Where the bytes are does not matter here."""
    return 0


@pytest.fixture
def postgres_url(postgres: PostgresServer, upgraded_template: str) -> Iterator[str]:
    """A database of this test's own: what it says about its size would stay behind."""
    name = postgres.create_database(template=upgraded_template)
    yield postgres.url(name)
    postgres.drop_database(name)


def copy_rows(ledger: Ledger, table: str, **changed: str) -> None:
    """Have `MANY` rows where there is one; what is given replaces the column of that name."""
    with ledger._database.reading() as transaction:
        cursor = transaction.connection.execute(f"SELECT * FROM {table}")
        columns = [column[0] for column in cursor.description]
    taken = ", ".join(changed.get(column, column) for column in columns)
    source = f"(SELECT * FROM {table} LIMIT 1) AS one, numbers"
    ledger.run(f"INSERT INTO {table} ({', '.join(columns)}) {_NUMBERS} SELECT {taken} FROM {source}", many=MANY)


def plan_of(database: Database, statement: Statement, values: dict[str, Any]) -> list[str]:
    """How the database would run a statement."""
    text, constants = statement.compiled(database.dialect)
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    known = {name: value for name, value in constants.items() if value is not None}
    with database.reading() as transaction:
        rows = transaction.connection.execute(f"{explain} {text}", {**values, **known}).fetchall()
    return [str(row[-1]).strip() for row in rows]


@pytest.mark.case(136)
def test_nothing_everybody_waits_for_goes_through_all_rows(
    make_manager: ManagerFactory, manager: SessionManager, ledger: Ledger
) -> None:
    manager.session(tenant="acme", user="ann", session="chat").write("x")
    who = dict(
        zip(
            ("tenant_id", "user_id", "session_id"),
            ledger.all("SELECT tenant_id, user_id, session_id FROM tenancy_sessions")[0],
            strict=True,
        )
    )
    number = "CAST(n AS VARCHAR(32))"
    copy_rows(ledger, "tenancy_results", number="n")
    ledger.run("DELETE FROM tenancy_usage WHERE owner_id <> :session_id", session_id=who["session_id"])
    copy_rows(ledger, "tenancy_usage", owner_id=number)
    copy_rows(ledger, "tenancy_sessions", session_id=number, name=number)
    copy_rows(ledger, "tenancy_session_keys", session_id=number)
    copy_rows(ledger, "tenancy_users", user_id=number, name=number)
    if not ledger._database.is_sqlite:
        # Autovacuum does this on a server; nobody does on SQLite.
        ledger.run("ANALYZE")
    values: dict[str, Any] = {
        **who,
        "tenant": "acme",
        "user": "ann",
        "session": "chat",
        "now_us": 1_000_000 if ledger._database.is_sqlite else 0,
        "page": 20,
        "number": 5,
        "reference_hash": b"h" * 16,
        "before": 2**62,
        "body_up_to": 2**16,
        "key_version": 1,
        "after_tenant": "",
        "after_session": "",
        **{f"default_{field}": 1 for field in result_statements.WRITE_LIMITS},
    }
    # An index of what is being erased is gone through from end to end: there is hardly anything in it.
    few = " USING INDEX ix_tenancy_users_erasing"
    full = re.compile(rf"(Seq Scan on|SCAN) tenancy_(sessions|results|usage|users)\b(?!{few})")
    plans = {name: plan_of(ledger._database, statement, values) for name, statement in STATEMENTS.items()}
    assert all(plans.values())
    scans = {name: [step for step in plan if full.search(step)] for name, plan in plans.items()}
    assert {name: found for name, found in scans.items() if found} == {}
    # What has ended is little: found by what it is, not among all that its tenant has.
    reclaimed = [name for name in plans if name.startswith(("expired", "ended", "stale", "erasures"))]
    assert [name for name in reclaimed if "ix_tenancy_" not in str(plans[name])] == []
    # And not all of it is sorted for a page of it.
    assert [name for name in reclaimed if re.search(r"Sort|TEMP B-TREE", str(plans[name]))] == []
