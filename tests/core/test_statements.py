"""No statement of the catalogue or of the database store speaks of rows without saying whose they are."""

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import stores.database
import tenancy.catalogue
from stores.sql import Statement
from tenancy import Session, SessionManager
from tenancy.catalogue import result_statements
from tenancy.schema import BLOBS, LIMITS, METADATA, RESULTS, SESSIONS, TENANTS, USERS
from tests.core.predicates import KEYS, ties_of
from tests.core.statement_listener import (
    ACROSS_OWNERS,
    ACROSS_TENANTS,
    BY_NAME,
    StatementListener,
    judge,
    statements,
)

TENANT, USER, SESSION = sa.bindparam("tenant_id"), sa.bindparam("user_id"), sa.bindparam("session_id")
OF_TENANT, OF_SESSION = RESULTS.c.tenant_id == TENANT, RESULTS.c.session_id == SESSION
_of = SESSIONS.alias("of")
_within = sa.select(RESULTS).where(OF_TENANT, OF_SESSION).subquery("within")


@pytest.mark.parametrize("name", statements())
def test_a_statement_says_whose_rows_it_means(name: str) -> None:
    assert judge(name, statements()[name]).faults == ()


def test_every_exception_is_one() -> None:
    ties = {name: ties_of(statement._clause) for name, statement in statements().items()}
    assert set(ACROSS_TENANTS) == {name for name, found in ties.items() if found.tenants}
    assert set(BY_NAME) == {name for name, found in ties.items() if found.by_name}
    assert set(ACROSS_OWNERS) == {name for name, found in ties.items() if found.owners and not found.tenants}


def test_every_table_of_a_tenants_is_known() -> None:
    of_tenants = {table.name for table in METADATA.tables.values() if {"tenant_id", "outer_name"} & set(table.c.keys())}
    assert set(KEYS) == of_tenants


ANY_TENANTS: dict[str, Any] = {
    "no condition": sa.select(RESULTS.c.number),
    "a session alone": sa.select(RESULTS.c.number).where(OF_SESSION),
    "the others": sa.select(RESULTS.c.number).where(OF_SESSION, RESULTS.c.tenant_id != TENANT),
    "a constant": sa.select(RESULTS.c.number).where(OF_SESSION, RESULTS.c.tenant_id == "acme"),
    "another column": sa.select(RESULTS.c.number).where(OF_SESSION, RESULTS.c.tenant_id == RESULTS.c.session_id),
    "another parameter": sa.select(RESULTS.c.number).where(OF_SESSION, RESULTS.c.tenant_id == SESSION),
    "or": sa.select(RESULTS.c.number).where(OF_SESSION, sa.or_(OF_TENANT, RESULTS.c.number == 1)),
    "not": sa.select(RESULTS.c.number).where(OF_SESSION, ~OF_TENANT),
    "a join by the session": sa.select(RESULTS.c.number)
    .select_from(RESULTS.join(SESSIONS, SESSIONS.c.session_id == RESULTS.c.session_id))
    .where(OF_TENANT, OF_SESSION),
    "an outer join the wrong way round": sa.select(RESULTS.c.number)
    .select_from(SESSIONS.outerjoin(RESULTS, sa.and_(OF_TENANT, RESULTS.c.tenant_id == SESSIONS.c.tenant_id)))
    .where(SESSIONS.c.session_id == SESSION),
    "no join": sa.select(RESULTS.c.number, SESSIONS.c.name).where(OF_TENANT, OF_SESSION),
    "the other of two": sa.select(_of.c.name).where(SESSIONS.c.tenant_id == TENANT, SESSIONS.c.session_id == SESSION),
    "in a condition": sa.select(RESULTS.c.number).where(
        OF_TENANT, OF_SESSION, sa.exists(sa.select(SESSIONS.c.name).where(SESSIONS.c.session_id == SESSION))
    ),
    "in a column": sa.select(
        RESULTS.c.number, sa.select(USERS.c.name).where(USERS.c.user_id == USER).scalar_subquery()
    ).where(OF_TENANT, OF_SESSION),
    "in a list": sa.select(RESULTS.c.number).where(
        OF_TENANT, OF_SESSION, RESULTS.c.result_id.in_(sa.select(BLOBS.c.name).where(BLOBS.c.inner_name == SESSION))
    ),
    "a subquery joined by the session": sa.select(SESSIONS.c.name)
    .select_from(SESSIONS.join(_within, _within.c.session_id == SESSIONS.c.session_id))
    .where(SESSIONS.c.tenant_id == TENANT),
    "inside a subquery": sa.select(sa.select(RESULTS).where(OF_SESSION).subquery("all_of_it").c.number),
    "an update": RESULTS.update().where(OF_SESSION).values(state="deleting"),
    "in the condition of an update": RESULTS.update()
    .where(OF_TENANT, OF_SESSION, sa.exists(sa.select(SESSIONS.c.name)))
    .values(state="deleting"),
    "in the value of an update": RESULTS.update()
    .where(OF_TENANT, OF_SESSION)
    .values(state=sa.select(SESSIONS.c.state).where(SESSIONS.c.session_id == SESSION).scalar_subquery()),
    "a delete": RESULTS.delete().where(OF_SESSION),
    "an insert of a constant": RESULTS.insert().values(tenant_id="acme", session_id=SESSION),
    "an insert without": RESULTS.insert().values(session_id=SESSION),
    "in the value of an insert": RESULTS.insert().values(
        tenant_id=TENANT, state=sa.select(SESSIONS.c.state).where(SESSIONS.c.session_id == SESSION).scalar_subquery()
    ),
    "a text": sa.text("SELECT * FROM tenancy_results"),
}
ANY_SESSIONS: dict[str, Any] = {
    "a tenant alone": sa.select(RESULTS.c.number).where(OF_TENANT),
    "another parameter": sa.select(RESULTS.c.number).where(OF_TENANT, RESULTS.c.session_id == TENANT),
    "a name that many users have": sa.select(SESSIONS.c.state).where(
        SESSIONS.c.tenant_id == TENANT, SESSIONS.c.name == sa.bindparam("name")
    ),
    "no owner": sa.select(LIMITS.c.user_bytes).where(LIMITS.c.tenant_id == TENANT),
}
BOUND: dict[str, Any] = {
    "nested ands": sa.select(RESULTS.c.number).where(sa.and_(OF_TENANT, sa.and_(OF_SESSION, RESULTS.c.number == 1))),
    "a subquery": sa.select(_within.c.number),
    "an alias": sa.select(_of.c.name).where(_of.c.tenant_id == TENANT, _of.c.user_id == USER),
    "a user's name": sa.select(USERS.c.state).where(USERS.c.tenant_id == TENANT, USERS.c.name == sa.bindparam("user")),
    "a tenant": sa.select(TENANTS.c.state).where(TENANTS.c.tenant_id == sa.bindparam("of_tenant")),
    "an insert of everything": RESULTS.insert(),
    "no table": sa.text("SELECT set_config('a.setting', :tenant_id, true)"),
}


@pytest.mark.parametrize("clause", ANY_TENANTS.values(), ids=ANY_TENANTS)
def test_a_statement_that_may_see_another_tenants_rows_is_recognised(clause: Any) -> None:
    assert ties_of(clause).tenants != []


@pytest.mark.parametrize("clause", ANY_SESSIONS.values(), ids=ANY_SESSIONS)
def test_a_statement_that_may_see_another_sessions_rows_is_recognised(clause: Any) -> None:
    found = ties_of(clause)
    assert found.tenants == []
    assert found.owners != []


@pytest.mark.parametrize("clause", BOUND.values(), ids=BOUND)
def test_a_statement_that_is_bound_is_not_accused(clause: Any) -> None:
    found = ties_of(clause)
    assert (found.tenants, found.owners) == ([], [])


def test_what_may_see_all_rows_of_a_table_still_joins_what_belongs_together() -> None:
    together = sa.and_(RESULTS.c.tenant_id == SESSIONS.c.tenant_id, RESULTS.c.session_id == SESSIONS.c.session_id)
    whole = sa.select(RESULTS.c.number).select_from(SESSIONS.outerjoin(RESULTS, together))
    assert ties_of(whole).tenants == ["tenancy_sessions", "tenancy_results"]
    assert ties_of(whole, whole_table=True).tenants == []
    mixed = sa.select(RESULTS.c.number).select_from(
        SESSIONS.outerjoin(RESULTS, RESULTS.c.session_id == SESSIONS.c.session_id)
    )
    assert ties_of(mixed, whole_table=True).tenants == ["tenancy_results"]


def test_no_statement_on_these_tables_is_written_as_a_text() -> None:
    table = "|".join(KEYS)
    rooms = [*Path(*tenancy.catalogue.__path__).glob("*.py"), Path(stores.database.__file__)]
    text = re.compile(rf"exec_driver_sql|connection\.(execute|cursor)|(?<![\"\`])\b({table})\b")
    assert [path.name for path in rooms if text.search(path.read_text(encoding="utf-8"))] == []
    assert len(rooms) > 10


def test_the_listener_hears_what_goes_out_and_tells_on_it(
    manager: SessionManager, session: Session, statement_listener: StatementListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.write("x")
    list(session.results())
    assert statement_listener.heard > 5
    assert statement_listener.faults == []
    with manager._backend.catalogue.database.reading() as transaction:
        transaction.all(Statement(sa.select(RESULTS.c.number).where(OF_SESSION)), session_id="a" * 32)
        transaction.one(result_statements.STATE, tenant_id="", session_id="a" * 32, number=1, result_id="a" * 32)
        transaction.execute_many(Statement(RESULTS.delete().where(OF_SESSION)), [{"session_id": "a" * 32}])
    wrong = "another statement is bound to no tenant in tenancy_results"
    assert statement_listener.faults == [wrong, "result_statements.STATE was given no tenant_id", wrong]
    statement_listener.faults.clear()
