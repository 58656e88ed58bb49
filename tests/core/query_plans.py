"""How a database would run the library's statements, and which of them would go through a whole table."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from stores.sql import Statement, Transaction
from tenancy import SessionManager
from tenancy.catalogue.access import Access
from tests.core.predicates import DIALECT
from tests.core.statement_listener import ACROSS_TENANTS, BY_NAME, statements

#: Statements that go through much, and why they may: nobody waits for them.
MAY_GO_THROUGH_ALL: Final[Mapping[str, str]] = {
    "audit._DRIFTS[0]": "verify compares every session's counters",
    "audit._DRIFTS[1]": "verify compares every user's counters",
    "audit._DRIFTS[2]": "verify compares every tenant's counters",
    "audit._DRIFT_OF_EMPTY": "verify compares the counters of owners without a session",
    "audit._UNKNOWN_BLOBS": "verify looks for bytes without a row",
    "database.rooms_after": "verify goes through all rooms of a store",
    "erasure._FIND_TENANTS": "an erasure that was interrupted is found by a name that no index has any more",
    "reclaim_statements.COUNT_RESULTS": "a dry cleanup counts",
    "reclaim_statements.COUNT_SESSIONS": "a dry cleanup counts",
    "rotation_statements.COUNT_DUE[session]": "a rotation says how much is left",
    "rotation_statements.COUNT_DUE[tenant]": "a rotation says how much is left",
    "root_key_statements.KEYS_UNDER_EACH": "a rotation says how much is left",
    "rotation_statements.MARK_ALL[session]": "a rotation of all tenants' keys is asked for",
    "rotation_statements.MARK_ALL[tenant]": "a rotation of all tenants' keys is asked for",
    "root_key_statements.OLDEST_KEYS": "the report on keys says how many and how old",
    "root_key_statements.ROOT_KEYS_IN_USE": "the report on keys says how many tenants hang on which",
    "rotation_statements.TENANTS_DUE[session]": "a rotation looks for whom it is not finished",
    "rotation_statements.TENANTS_DUE[tenant]": "a rotation looks for whom it is not finished",
    "root_key_statements.TENANTS_UNDER": "a rotation looks for what hangs on an old key",
}
#: What is known before anybody asks how many tenants there are.
_SMALL: Final = ("tenancy_catalogue", "tenancy_root_keys", "tenancy_tenant_keys", "tenancy_limits", "tenancy_receipts")
#: Indexes of what is unfinished or has an end of its own: of few rows, and those are wanted.
_OF_FEW: Final = ("ix_tenancy_results_unfinished", "ix_tenancy_users_erasing", "ix_tenancy_tenants_erasing")
_SQLITE_SCAN: Final = re.compile(r"SCAN (tenancy_\w+)(?: USING (?:COVERING )?INDEX (\w+))?")


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What the database would do.

    :param steps: In its own words.
    :param whole: The tables it would go through from end to end, small ones aside.
    """

    steps: list[str]
    whole: list[str]


def plans(manager: SessionManager, names: Mapping[str, str], *, among_few_tenants: bool = False) -> dict[str, Plan]:
    """
    Plan every statement on a tenant's tables, as the role that runs it.

    :param names: Of a session with a result in it.
    :param among_few_tenants: There are so few that going through all of them is best.
    """
    backend = manager._backend
    with manager.session(**names) as session:
        session.write("x")
        ids = session._opened.ids
    known = {
        **names,
        "tenant_id": ids.tenant_id,
        "of_tenant": ids.tenant_id,
        "outer_name": ids.tenant_id,
        "user_id": ids.user_id,
        "of_user": ids.user_id,
        "session_id": ids.session_id,
        "of_session": ids.session_id,
        "inner_name": ids.session_id,
        "owner_id": ids.session_id,
        "wider_owner_id": ids.user_id,
        "widest_owner_id": ids.tenant_id,
        "now_us": backend.catalogue.sessions._moments.parameter(),
        "page": 20,
        "after_tenant": "",
        "after_session": "",
        "before": 2**62,
        "body_up_to": 2**16,
    }
    found = {}
    for name, statement in statements().items():
        if name.startswith(("access.", "identity.", "row_security.")) or statement._clause.is_insert:
            continue
        if name == "result_statements.ADMIT_AND_CHARGE" and backend.catalogue.database.is_sqlite:
            # There it is two.
            continue
        access = (backend.across if name in ACROSS_TENANTS else backend.catalogue).access
        with _as_its_role(access, name, known) as transaction:
            found[name] = _plan(transaction, statement, known, small=_SMALL + ("tenancy_tenants",) * among_few_tenants)
    return found


def _as_its_role(access: Access, name: str, known: Mapping[str, Any]) -> AbstractContextManager[Transaction]:
    if name in ACROSS_TENANTS:
        return access.writing_across()
    return access.writing_named(known["tenant"]) if name in BY_NAME else access.writing(known["tenant_id"])


def _plan(transaction: Transaction, statement: Statement, known: Mapping[str, Any], *, small: tuple[str, ...]) -> Plan:
    text, constants = statement.compiled(transaction._dialect)
    binds = statement._clause.compile(dialect=DIALECT).binds
    values = {name: known.get(name, _any(bind.type)) for name, bind in binds.items()}
    values |= {name: value for name, value in constants.items() if value is not None}
    if transaction._dialect.name == "sqlite":
        steps = [str(row[-1]) for row in transaction.connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
        scans = [match for step in steps for match in [_SQLITE_SCAN.match(step)] if match]
        whole = [match[1] for match in scans if match[2] not in _OF_FEW]
    else:
        ((told,),) = transaction.connection.execute(f"EXPLAIN (FORMAT JSON) {text}", values).fetchall()
        nodes = list(_nodes((json.loads(told) if isinstance(told, str) else told)[0]["Plan"]))
        steps = [_in_words(node) for node in nodes if {"Relation Name", "Index Name"} & set(node)]
        whole = [node["Relation Name"] for node in nodes if _is_whole(node)]
    return Plan(steps, [table for table in whole if table not in small])


def _any(kind: Any) -> Any:
    if isinstance(kind, sa.LargeBinary):
        return b"x" * 16
    return "x" if isinstance(kind, sa.String) else 1


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from _nodes(below)


def _in_words(node: dict[str, Any]) -> str:
    words = [node["Node Type"]]
    for key in ("Index Name", "Relation Name", "Index Cond"):
        if key in node:
            words.append(str(node[key]))
    return " ".join(words)


def _is_whole(node: dict[str, Any]) -> bool:
    if node["Node Type"] == "Seq Scan":
        return True
    if "Index Name" not in node or "Relation Name" not in node:
        return False
    return "Index Cond" not in node and node["Index Name"] not in _OF_FEW
