"""PostgreSQL's row-level security: what the runtime role can reach whatever its SQL says, and what maintenance can."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.sql.elements import BinaryExpression, BindParameter
from sqlalchemy.sql.visitors import replacement_traverse

from stores.database import OUTER_SETTING, DatabaseStore
from stores.errors import StoreDenied
from stores.sql import Database, Statement
from tenancy import ConfigurationError, Lifetime, Limits, Session, SessionManager
from tenancy.catalogue import counters, erasure, result_statements, session_statements
from tenancy.isolation import TENANT_ID_SETTING, TENANT_NAME_SETTING
from tenancy.schema import TENANT_TABLES
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.core.statement_listener import StatementListener
from tests.core.test_cleanup import HOUR
from tests.postgres import as_admin, as_maintenance

TABLES = {table.name: "outer_name" if "outer_name" in table.c else "tenant_id" for table in TENANT_TABLES}


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """Only PostgreSQL has it."""
    return postgres_url


@pytest.fixture(autouse=True)
def unheard(statement_listener: StatementListener) -> Iterator[None]:
    """These tests say on purpose what the library must never say."""
    yield
    statement_listener.faults.clear()


class Two:
    """Two tenants that have something in every table, and connections that belong to nobody yet."""

    def __init__(self, manager: SessionManager, url: str) -> None:
        self.manager = manager
        self.url = url
        self.sessions: dict[str, Session] = {}
        for tenant in ("acme", "globex"):
            session = manager.session(tenant=tenant, user="ann", session="chat")
            session.write(f"small of {tenant}")
            session.write(tenant.encode() * 20_000)
            manager.set_limits(Limits(user_results=100), tenant=tenant, user="ann")
            manager.session(tenant=tenant, user="gone").write("x")
            manager.erase_user(tenant=tenant, user="gone")
            self.sessions[tenant] = session
        self.ids = {tenant: session._opened.ids for tenant, session in self.sessions.items()}

    def connect(self, url: str | None = None) -> "psycopg.Connection[Any]":
        return psycopg.connect((url or self.url).replace("+psycopg", ""))

    def enter(self, connection: "psycopg.Connection[Any]", tenant: str) -> None:
        connection.execute(
            "SELECT set_config(%s, %s, true), set_config(%s, %s, true)",
            (TENANT_ID_SETTING, self.ids[tenant].tenant_id, OUTER_SETTING, self.ids[tenant].tenant_id),
        )


@pytest.fixture
def two(manager: SessionManager, make_manager: ManagerFactory) -> Two:
    return Two(manager, make_manager.database_url)


def seen(connection: "psycopg.Connection[Any]") -> dict[str, set[str]]:
    """Whose rows each table shows."""
    return {
        table: {row[0] for row in connection.execute(f"SELECT {column} FROM {table}")}
        for table, column in TABLES.items()
    }


def only(tenant_id: str, *, inline: bool) -> dict[str, set[str]]:
    """What a tenant's own look shows: itself in each table, in that of blobs if anything is there."""
    return {table: set() if table == "tenancy_blobs" and not inline else {tenant_id} for table in TABLES}


def test_a_transaction_that_names_nobody_sees_changes_and_counts_nothing(two: Two) -> None:
    with two.connect() as connection:
        assert seen(connection) == {table: set() for table in TABLES}
        for table in TABLES:
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
            assert connection.execute(f"DELETE FROM {table}").rowcount == 0
            column = TABLES[table]
            assert connection.execute(f"UPDATE {table} SET {column} = {column}").rowcount == 0


@pytest.mark.parametrize("value", ["", "nobody", "%", "*", "' OR true --"])
def test_a_setting_that_is_no_tenants_id_shows_nothing(two: Two, value: str) -> None:
    with two.connect() as connection:
        for setting in (TENANT_ID_SETTING, TENANT_NAME_SETTING, OUTER_SETTING):
            connection.execute("SELECT set_config(%s, %s, true)", (setting, value))
        assert seen(connection) == {table: set() for table in TABLES}


def test_a_transaction_sees_changes_and_counts_its_own_tenant_only(two: Two, ledger: Ledger, inline_bytes: int) -> None:
    before = {table: ledger.one(f"SELECT count(*) FROM {table}") for table in TABLES}
    own = two.ids["acme"].tenant_id
    with two.connect() as connection:
        two.enter(connection, "acme")
        assert seen(connection) == only(own, inline=bool(inline_bytes))
        mine = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in TABLES}
        assert all(0 <= count[0] < before[table] or before[table] == 0 for table, count in mine.items() if count)
        other = two.ids["globex"].tenant_id
        for table, column in TABLES.items():
            assert connection.execute(f"SELECT 1 FROM {table} WHERE {column} = %s", (other,)).fetchall() == []
            assert connection.execute(f"DELETE FROM {table} WHERE {column} = %s", (other,)).rowcount == 0
            changed = connection.execute(f"UPDATE {table} SET {column} = {column}").rowcount
            assert (changed,) == mine[table]
        connection.rollback()
        # Every row there is, as far as this tenant can say.
        two.enter(connection, "acme")
        for table in ("tenancy_blobs", "tenancy_results", "tenancy_session_keys", "tenancy_limits", "tenancy_receipts"):
            connection.execute(f"DELETE FROM {table}")
    left = {
        table: ledger.one(f"SELECT count(*) FROM {table} WHERE {TABLES[table]} = :other", other=other)
        for table in TABLES
    }
    assert {table: 2 * count for table, count in left.items()} == before
    assert [result.size_bytes for result in two.sessions["globex"].results()] == [120_000, 15]


@pytest.mark.case(66)
def test_a_row_of_another_tenants_can_be_neither_written_nor_given_away(two: Two) -> None:
    other = two.ids["globex"].tenant_id
    refusal = "row-level security"
    with two.connect() as connection:
        for table, column in TABLES.items():
            two.enter(connection, "acme")
            if connection.execute(f"SELECT 1 FROM {table}").fetchone() is not None:
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match=refusal):
                    connection.execute(f"UPDATE {table} SET {column} = %s", (other,))
                connection.rollback()
        for insert in (
            "INSERT INTO tenancy_tenants VALUES (%s, 'new', 'live', 1)",
            "INSERT INTO tenancy_users VALUES (%s, 'u', 'eve', 'live', 1)",
            "INSERT INTO tenancy_usage VALUES (%s, 'o', 0, 1, 0, 0, 0, 0)",
            "INSERT INTO tenancy_limits (tenant_id, owner_id) VALUES (%s, 'o')",
            "INSERT INTO tenancy_blobs VALUES (%s, 'i', 'n', 1, '')",
            "INSERT INTO tenancy_receipts VALUES (%s, 'r', 'user', 1, NULL, 0, 0, 0, 0, 0, NULL)",
            "INSERT INTO tenancy_tenant_keys VALUES (%s, 9, 'p', 'k', '', 1)",
        ):
            two.enter(connection, "acme")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=refusal):
                connection.execute(insert, (other,))
            connection.rollback()


@pytest.mark.case(65, 101)
def test_a_pooled_connection_taken_for_another_tenant_knows_nothing_of_the_first(two: Two) -> None:
    # One connection, so that it is the very same each time.
    database = Database(two.url)
    counted = Statement(sa.text("SELECT count(DISTINCT tenant_id), min(tenant_id) FROM tenancy_results"))
    process = Statement(sa.text("SELECT pg_backend_pid()"))
    processes = set()
    for _ in range(3):
        for tenant in ("acme", "globex"):
            mine = {TENANT_ID_SETTING: two.ids[tenant].tenant_id}
            with database.reading(local=mine) as transaction:
                assert transaction.one(counted) == (1, mine[TENANT_ID_SETTING])
                processes.add(transaction.one(process))
            with database.reading() as transaction:
                assert transaction.one(counted) == (0, None)
                processes.add(transaction.one(process))
            for snapshot in (False, True):
                with database.writing(local=mine, snapshot=snapshot) as transaction:
                    assert transaction.one(counted) == (1, mine[TENANT_ID_SETTING])
                    processes.add(transaction.one(process))
                with database.writing(snapshot=snapshot) as transaction:
                    assert transaction.one(counted) == (0, None)
    assert len(processes) == 1
    database.close()


def test_a_failed_or_abandoned_transaction_takes_its_tenant_with_it(two: Two) -> None:
    database = Database(two.url)
    mine = {TENANT_ID_SETTING: two.ids["acme"].tenant_id}
    counted = Statement(sa.text("SELECT count(*) FROM tenancy_results"))

    def fail(write: bool, text: str) -> None:
        with (database.writing if write else database.reading)(local=mine) as transaction:
            transaction.one(Statement(sa.text(text)))
            raise ZeroDivisionError

    for write in (False, True):
        for text in ("SELECT 1", "SELECT 1/0"):
            with pytest.raises(Exception):  # noqa: B017, PT011 - ours or the database's, as it may be
                fail(write, text)
            with database.reading() as transaction:
                assert transaction.one(counted) == (0,)
    database.close()


def test_the_name_of_a_tenant_shows_that_tenants_row_and_nothing_else(two: Two) -> None:
    with two.connect() as connection:
        connection.execute("SELECT set_config(%s, 'acme', true)", (TENANT_NAME_SETTING,))
        found = seen(connection)
    assert found == {**{table: set() for table in TABLES}, "tenancy_tenants": {two.ids["acme"].tenant_id}}


def without_tenant(statement: Statement) -> Statement:
    """The statement with every comparison with the bound tenant taken out: a mistake that anybody may make once."""

    def replaced(element: Any, **_: Any) -> Any:
        if isinstance(element, BinaryExpression):
            sides = (element.left, element.right)
            if any(isinstance(side, BindParameter) and side.key in ("tenant_id", "of_tenant") for side in sides):
                return sa.true()
        return None

    return Statement(replacement_traverse(statement._clause, {}, replaced))


def questions(two: Two) -> dict[str, tuple[Statement, Callable[[], dict[str, Any]]]]:
    ids, now = two.ids["acme"], two.manager.clock.offset_us
    tenant = {"tenant_id": ids.tenant_id}
    session = {**tenant, "session_id": ids.session_id, "user_id": ids.user_id, "now_us": now}
    page = {"page": 100, "after_tenant": "", "after_session": "", "now_us": now}
    return {
        "open": (session_statements.FIND, lambda: {**tenant, "user": "ann", "session": "chat", "now_us": now}),
        "owners": (session_statements.FIND, lambda: {**tenant, "user": "ann", "session": "none", "now_us": now}),
        "sessions": (session_statements.LIST_TENANT, lambda: {**tenant, **page}),
        "results": (result_statements.LIST, lambda: {**session, "before": 2**62, "page": 100}),
        "limits": (counters._READ_LIMITS, lambda: {**tenant, "owner_id": ids.user_id}),
        "users": (erasure._USERS_OF_TENANT, lambda: tenant),
        "live": (erasure._LIVE_OF_TENANT, lambda: tenant),
        "drop the tenant's keys": (erasure._DROP_TENANT_KEYS, lambda: tenant),
        "drop all limits": (counters._REMOVE_ALL_LIMITS, lambda: tenant),
        "mark the users": (erasure._MARK_USERS_OF_TENANT, lambda: {**tenant, "new_receipt_id": "r" * 32}),
    }


QUESTIONS = ("open", "owners", "sessions", "results", "limits", "users", "live")
CHANGES = ("drop the tenant's keys", "drop all limits", "mark the users")


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_query_that_lost_its_tenant_still_answers_of_this_one_only(two: Two, name: str) -> None:
    statement, parameters = questions(two)[name]
    careless = without_tenant(statement)
    access = two.manager._backend.catalogue.access
    dialect = access.database.dialect
    assert careless.compiled(dialect) != statement.compiled(dialect)
    with access.reading(two.ids["acme"].tenant_id) as transaction:
        right = transaction.all(statement, **parameters())
        assert right
        assert transaction.all(careless, **parameters()) == right
    with access.database.reading() as transaction:
        assert transaction.all(careless, **parameters()) == []
    if name in ("sessions", "users", "live"):
        # Whom the wall does not hold back, the question tells of the other.
        everything = Database(as_admin(two.url))
        with everything.reading() as transaction:
            assert len(transaction.all(careless, **parameters())) == 2 * len(right)
        everything.close()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_lost_its_tenant_still_touches_this_one_only(two: Two, ledger: Ledger, name: str) -> None:
    statement, parameters = questions(two)[name]
    tables = ("tenancy_tenant_keys", "tenancy_limits", "tenancy_users")
    other = two.ids["globex"].tenant_id

    def of_other() -> list[Any]:
        return [ledger.all(f"SELECT * FROM {table} WHERE tenant_id = :other", other=other) for table in tables]

    before = of_other()
    access = two.manager._backend.catalogue.access
    with access.writing(two.ids["acme"].tenant_id) as transaction:
        assert transaction.execute(without_tenant(statement), **parameters()) >= 1
    assert of_other() == before


def test_the_maintenance_role_reads_no_wrapped_key_and_no_sealed_byte(two: Two) -> None:
    with two.connect(as_maintenance(two.url)) as connection:
        for table, column in (
            ("tenancy_tenant_keys", "wrapped"),
            ("tenancy_session_keys", "wrapped"),
            ("tenancy_root_keys", "check_value"),
            ("tenancy_results", "header"),
            ("tenancy_results", "card"),
            ("tenancy_blobs", "data"),
        ):
            for text in (
                f"SELECT {column} FROM {table}",
                f"SELECT length({column}) FROM {table}",
                f"SELECT count(*) FROM {table} WHERE {column} = ''",
                f"SELECT t::text FROM {table} t",
                f"SELECT * FROM {table}",
                f"TABLE {table}",
                f"UPDATE {table} SET {column} = {column}",
                f"UPDATE {table} SET {column} = '' RETURNING {column}",
                f"DELETE FROM {table} RETURNING {column}",
                f"COPY {table} TO STDOUT",
                f"CREATE TEMPORARY TABLE copy AS SELECT {column} FROM {table}",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(text)
                connection.rollback()


def test_the_maintenance_role_overwrites_and_deletes_what_it_cannot_read(two: Two, inline_bytes: int) -> None:
    with two.connect(as_maintenance(two.url)) as connection:
        sealed = {"tenancy_tenant_keys": "wrapped", "tenancy_session_keys": "wrapped", "tenancy_results": "header"}
        for table, column in {**sealed, "tenancy_blobs": "data"}.items():
            there = 0 if table == "tenancy_blobs" and not inline_bytes else 1
            assert connection.execute(f"UPDATE {table} SET {column} = ''").rowcount >= there
            assert connection.execute(f"DELETE FROM {table}").rowcount >= there
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO tenancy_blobs VALUES ('o', 'i', 'n', 1, '')")


def test_cleanup_verify_and_listings_reach_every_tenant(two: Two, ledger: Ledger) -> None:
    manager = two.manager
    short = Lifetime(idle=HOUR, result=HOUR / 2)
    for tenant in ("acme", "globex", "initech"):
        session = manager.session(tenant=tenant, user="bob", session="brief", lifetime=short)
        session.write("x")
        session.write(b"y" * 50_000)
    assert {one.tenant for one in manager.sessions()} == {"acme", "globex", "initech"}
    assert manager.verify().checked_results == 10
    ledger.run("UPDATE tenancy_usage SET used_bytes = used_bytes + 1")
    assert manager.verify(repair=True).ok
    ledger.require_balanced()
    manager.clock.advance(2 * HOUR)
    assert manager.cleanup(dry_run=True).sessions == 3
    report = manager.cleanup()
    assert (report.sessions, report.results, report.complete) == (3, 6, True)
    assert {one.tenant for one in manager.sessions()} == {"acme", "globex"}
    assert manager.verify().ok


def test_without_the_maintenance_role_calls_across_tenants_refuse_and_all_others_work(
    make_manager: ManagerFactory, two: Two
) -> None:
    alone = make_manager(maintenance_url=None)
    for call in (alone.sessions, alone.cleanup, alone.verify, lambda: alone.cleanup(dry_run=True)):
        with pytest.raises(ConfigurationError, match="maintenance_url"):
            call()
    session = alone.session(tenant="acme", user="ann", session="chat")
    assert session.read(session.write("mine")) == "mine"
    assert [one.tenant for one in alone.sessions(tenant="acme")] == ["acme"]
    assert [one.user for one in alone.sessions(tenant="acme", user="ann")] == ["ann"]
    assert alone.usage(tenant="acme").results == 3
    # A tenant at its limit makes room among its own, and erasing names whom it erases.
    alone.session(tenant="acme", user="bob", session="old", lifetime=Lifetime(idle=HOUR)).write("x")
    alone.set_limits(Limits(tenant_sessions=2), tenant="acme")
    alone.clock.advance(2 * HOUR)
    assert alone.session(tenant="acme", user="bob", session="new").write("y")
    assert alone.erase_user(tenant="acme", user="bob").finished_at is not None
    assert alone.erase_tenant(tenant="globex").finished_at is not None


def test_every_step_on_all_tenants_refuses_where_it_would_find_nothing(two: Two) -> None:
    runtime = two.manager._backend.catalogue
    steps: list[Callable[[], Any]] = [
        lambda: runtime.reclaim.end_expired(page=1),
        lambda: runtime.reclaim.claim_ended(page=1),
        lambda: runtime.reclaim.doom_expired(page=1),
        lambda: runtime.reclaim.doom_stale(page=1),
        lambda: runtime.reclaim.release(sessions=[], results=[]),
        runtime.reclaim.waiting,
        runtime.reclaim.mark_cleaned,
        lambda: list(runtime.audit.sessions()),
        runtime.audit.stale,
        runtime.audit.unknown_blobs,
        runtime.audit.drifts,
        lambda: runtime.audit.drifts(repair=True),
        runtime.erasure.unfinished,
        lambda: list(runtime.sessions.list()),
    ]
    for step in steps:
        with pytest.raises(ConfigurationError, match="maintenance_url"):
            step()


def test_going_through_all_rooms_takes_a_role_that_sees_them(two: Two, inline_bytes: int) -> None:
    with closing(Database(two.url)) as runtime, closing(Database(as_maintenance(two.url))) as maintenance:
        with pytest.raises(StoreDenied, match="Row-level security"):
            list(DatabaseStore(runtime).namespaces())
        rooms = {(ids.tenant_id, ids.session_id) for ids in two.ids.values()}
        assert set(DatabaseStore(runtime, overseer=maintenance).namespaces()) == (rooms if inline_bytes else set())
