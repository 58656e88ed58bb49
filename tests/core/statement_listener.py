"""
Listens to every statement of the catalogue and of the database store, and demands a tenant in it.

SQLite cannot hold a tenant back, so there the predicates are the only wall. What a statement leaves open is read from
its tree once; that a tenant's id is really given, at every run.
"""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
import sqlalchemy as sa

import tenancy.catalogue
from stores.database import _Statements, blob_table
from stores.sql import Statement, Transaction
from tests.core.predicates import DIALECT, Ties, ties_of

#: Statements that may see every tenant's rows, and why.
ACROSS_TENANTS: Final[Mapping[str, str]] = {
    "audit._SESSIONS": "verify goes through all sessions",
    "audit._STALE": "verify counts what everybody left behind",
    "audit._UNKNOWN_BLOBS": "verify looks for bytes without a row",
    "audit._DRIFTS[0]": "verify compares every session's counters",
    "audit._DRIFTS[1]": "verify compares every user's counters",
    "audit._DRIFTS[2]": "verify compares every tenant's counters",
    "audit._DRIFT_OF_EMPTY": "verify compares the counters of owners without a session",
    "database.rooms_after": "verify and sweep go through all rooms of a store",
    "erasure._UNFINISHED_TENANTS": "cleanup resumes whatever erasure was interrupted",
    "erasure._UNFINISHED_USERS": "cleanup resumes whatever erasure was interrupted",
    "receipts._FIND": "a receipt is asked for by whoever knows nothing but its id",
    "reclaim_statements.COUNT_RESULTS": "a dry cleanup counts",
    "reclaim_statements.COUNT_SESSIONS": "a dry cleanup counts",
    "reclaim_statements.ENDED": "cleanup claims whatever has ended",
    "reclaim_statements.EXPIRED": "cleanup ends whatever has expired",
    "reclaim_statements.EXPIRED_RESULTS": "cleanup takes whatever has expired",
    "reclaim_statements.STALE_RESULTS": "cleanup takes whatever was left behind",
    "rotation_statements.COUNT_DUE[session]": "a rotation says how much is left",
    "rotation_statements.COUNT_DUE[tenant]": "a rotation says how much is left",
    "root_key_statements.KEYS_UNDER_EACH": "a rotation says how much is left",
    "root_key_statements.FORGET_ROOT_KEY": "a key is forgotten if no tenant hangs on it",
    "rotation_statements.MARK_ALL[session]": "a rotation of all tenants' keys is asked for",
    "rotation_statements.MARK_ALL[tenant]": "a rotation of all tenants' keys is asked for",
    "root_key_statements.OLDEST_KEYS": "the report on keys says how many and how old",
    "root_key_statements.ROOT_KEYS_IN_USE": "the report on keys says how many tenants hang on which",
    "rotation_statements.TENANTS_DUE[session]": "a rotation looks for whom it is not finished",
    "rotation_statements.TENANTS_DUE[tenant]": "a rotation looks for whom it is not finished",
    "root_key_statements.TENANTS_UNDER": "a rotation looks for what hangs on an old key",
    "session_statements.LIST_ALL": "the operator's listing of all tenants",
}
#: Statements that begin with a tenant's name, since nothing else is known yet.
BY_NAME: Final[Mapping[str, str]] = {
    "erasure._FIND_TENANTS": "looks the ids up, of a tenant that is being erased too",
    "tenants._FIND": "looks the id up",
}
#: Statements that see the rows of all users and sessions of the one tenant they are bound to, and why.
ACROSS_OWNERS: Final[Mapping[str, str]] = {
    "counters._REMOVE_ALL_LIMITS": "a tenant was erased",
    "erasure._LIVE_OF_TENANT": "a tenant is being erased",
    "erasure._MARK_USERS_OF_TENANT": "a tenant is being erased",
    "erasure._USERS_OF_TENANT": "a tenant is being erased",
    "reclaim_statements.ENDED_OF_TENANT": "a tenant is being erased",
    "reclaim_statements.EXPIRED_OF_TENANT": "room is made for a tenant at its limit",
    "reclaim_statements.EXPIRED_RESULTS_OF_TENANT": "room is made for a tenant at its limit",
    "receipts._OF_TENANT": "a tenant's key goes under another one, of which its receipts are to speak",
    "rotation_statements.ANY_UNDER_OLD": "a tenant's keys are rotated",
    "rotation_statements.COUNT_DUE_OF_TENANT[session]": "a tenant's sessions get new keys",
    "rotation_statements.COUNT_DUE_OF_TENANT[tenant]": "a tenant's keys are rotated",
    "rotation_statements.IS_DUE[session]": "a tenant's sessions get new keys",
    "rotation_statements.MARK[session]": "a tenant's sessions get new keys",
    "rotation_statements.SESSIONS_DUE": "a tenant's sessions get new keys",
    "rotation_statements.SESSION_KEYS_UNDER_OLD": "a tenant's keys are rotated",
    "session_statements.LIST_TENANT": "the listing of a tenant's sessions",
    "session_statements.LIST_USER": "the counters of a page of a user's sessions",
}


#: What is left open all the same where everything belongs together, and why: a tenant owns all of its sessions.
ALL_OF_AN_OWNER: Final[Mapping[str, tuple[str, ...]]] = {
    "audit._DRIFT_OF_EMPTY": ("tenancy_sessions",),
    "rotation_statements.IS_DUE[session]": ("tenancy_sessions", "tenancy_session_keys"),
    # The newest of a tenant's, once for each comparison with it.
    "rotation_statements.MARK[session]": ("tenancy_session_keys",) * 4,
    "rotation_statements.MARK_ALL[session]": ("tenancy_session_keys",) * 4,
    "rotation_statements.TENANTS_DUE[session]": ("tenancy_sessions", "tenancy_session_keys"),
}
#: Likewise where a row belongs to no tenant: any tenant may hang on a key-encryption key.
OF_ANY_TENANT: Final[Mapping[str, tuple[str, ...]]] = {"root_key_statements.FORGET_ROOT_KEY": ("tenancy_tenant_keys",)}


def statements() -> dict[str, Statement]:
    """Every statement on the tables of tenants, by `module.NAME`."""
    found: dict[str, Statement] = {}
    for module in pkgutil.iter_modules(tenancy.catalogue.__path__):
        for name, value in vars(importlib.import_module(f"tenancy.catalogue.{module.name}")).items():
            if isinstance(value, Statement):
                found[f"{module.name}.{name}"] = value
            elif isinstance(value, tuple) and any(isinstance(entry, Statement) for entry in value):
                found.update({f"{module.name}.{name}[{index}]": entry for index, entry in enumerate(value)})
            elif isinstance(value, dict) and any(isinstance(entry, Statement) for entry in value.values()):
                found.update({f"{module.name}.{name}[{key}]": entry for key, entry in value.items()})
    for name, statement in vars(_Statements(blob_table(sa.MetaData()))).items():
        found[f"database.{name}"] = statement
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What a statement must not be and is.

    :param faults: In words; empty where there is nothing to say.
    :param parameters: Those that say whose rows they are, and must be given a value.
    """

    faults: tuple[str, ...]
    parameters: frozenset[str]


def judge(name: str, statement: Statement) -> Verdict:
    """Hold a statement against the lists above."""
    ties = ties_of(statement._clause)
    faults: list[str] = []
    if ties.by_name and name not in BY_NAME:
        faults.append(f"{name} tells a tenant by its name")
    if ties.tenants and name not in ACROSS_TENANTS:
        faults.append(f"{name} is bound to no tenant in {', '.join(ties.tenants)}")
    if ties.owners and name not in ACROSS_OWNERS and name not in ACROSS_TENANTS:
        faults.append(f"{name} is bound to no user or session in {', '.join(ties.owners)}")
    if ties.tenants or ties.owners:
        faults += _loose_ends(name, ties_of(statement._clause, whole_table=True))
    return Verdict(tuple(faults), frozenset(ties.parameters))


def _loose_ends(name: str, ties: Ties) -> Iterator[str]:
    """Whoever may see all rows of a table must still take what belongs to each row, and nothing else."""
    if tuple(ties.tenants) != OF_ANY_TENANT.get(name, ()):
        yield f"{name} joins rows of different tenants in {', '.join(ties.tenants)}"
    if tuple(ties.owners) != ALL_OF_AN_OWNER.get(name, ()):
        yield f"{name} joins rows of different owners in {', '.join(ties.owners)}"


class StatementListener:
    """Judges what is said, and keeps what is wrong with it: an error raised here might be taken for the database's."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.heard = 0

    def hear(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """Judge one statement that is about to be run with each of `rows`."""
        if isinstance(statement._clause, sa.TextClause):
            # A test that looks from behind. The library has none on these tables, which a test of its own sees to.
            return
        self.heard += 1
        name, verdict = _judged(statement)
        self.faults += verdict.faults
        for parameters in rows:
            empty = [parameter for parameter in verdict.parameters if not parameters.get(parameter)]
            self.faults += [f"{name} was given no {parameter}" for parameter in empty]

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Hear what every transaction of this process says, until the patch is undone."""
        run, many = Transaction._run, Transaction.execute_many
        later, finish = Transaction.later, Transaction.finish

        def heard_run(transaction: Transaction, statement: Statement, parameters: Mapping[str, Any]) -> Any:
            self.hear(statement, [parameters])
            return run(transaction, statement, parameters)

        def heard_many(transaction: Transaction, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
            self.hear(statement, rows)
            many(transaction, statement, rows)

        def heard_later(transaction: Transaction, statement: Statement, **parameters: Any) -> None:
            self.hear(statement, [parameters])
            later(transaction, statement, **parameters)

        def heard_finish(transaction: Transaction, *last: tuple[Statement, Mapping[str, Any]]) -> bool:
            for statement, parameters in last:
                self.hear(statement, [parameters])
            return finish(transaction, *last)

        patch.setattr(Transaction, "later", heard_later)
        patch.setattr(Transaction, "finish", heard_finish)
        patch.setattr(Transaction, "_run", heard_run)
        patch.setattr(Transaction, "execute_many", heard_many)


@functools.lru_cache(maxsize=1000)
def _judged(statement: Statement) -> tuple[str, Verdict]:
    name = _names().get(_text_of(statement), "another statement")
    return name, judge(name, statement)


@functools.cache
def _names() -> Mapping[str, str]:
    # By their text, since each store makes its statements anew.
    return {_text_of(statement): name for name, statement in statements().items()}


def _text_of(statement: Statement) -> str:
    # Not by `compiled`, which would remember what another dialect object made of it.
    return str(statement._clause.compile(dialect=DIALECT))
