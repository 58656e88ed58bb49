"""
Is the second wall there? What a manager asks PostgreSQL before it starts.

Row-level security does not hold back a superuser, a role with BYPASSRLS, or whoever may become one of them; an owner
can take it away; and a policy of the maintenance role holds for its members too.
"""

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from stores.sql import Database, Statement
from tenancy.schema import ISOLATION_POLICY, TENANT_TABLES

#: The policy of the maintenance role.
MAINTENANCE_POLICY: Final = "tenancy_maintenance"

#: The first minor version of each major one without a known hole in row-level security: CVE-2024-10976 (policies
#: applied as another role inside subqueries) and CVE-2025-8713 (planner statistics show rows that policies hide), see
#: https://www.postgresql.org/support/security/. Later majors were released with both mended.
_MENDED: Final = {14: 19, 15: 14, 16: 10, 17: 6}

_TABLES: Final = [table.name for table in TENANT_TABLES]
#: Columns that only whoever decrypts may read: wrapped keys and sealed bytes.
SEALED_COLUMNS: Final = {
    "tenancy_tenant_keys": ("wrapped",),
    "tenancy_session_keys": ("wrapped",),
    "tenancy_root_keys": ("check_value",),
    "tenancy_results": ("header", "card"),
    "tenancy_blobs": ("data",),
}

_names = sa.bindparam("tables", type_=ARRAY(sa.Text))
_ROLE: Final = Statement(
    sa.text(
        """
        WITH role AS (
            SELECT oid, rolsuper, rolbypassrls FROM pg_roles
            WHERE pg_has_role(session_user, oid, 'MEMBER') OR pg_has_role(current_user, oid, 'MEMBER')
        ), wall AS (
            SELECT c.* FROM unnest(:tables) AS name LEFT JOIN pg_class c ON c.oid = to_regclass(name)
        )
        SELECT
            EXISTS (SELECT FROM role WHERE rolsuper),
            EXISTS (SELECT FROM role WHERE rolbypassrls),
            EXISTS (SELECT FROM role JOIN wall ON relowner = role.oid)
                OR EXISTS (
                    SELECT FROM role JOIN pg_namespace n ON n.nspowner = role.oid
                    WHERE n.oid IN (SELECT relnamespace FROM wall)
                ),
            EXISTS (SELECT FROM wall WHERE NOT coalesce(relrowsecurity AND relforcerowsecurity, false)),
            (
                SELECT count(DISTINCT p.polrelid) FROM pg_policy p JOIN wall ON wall.oid = p.polrelid
                WHERE p.polname = :maintenance AND EXISTS (SELECT FROM role WHERE role.oid = ANY (p.polroles))
            ),
            EXISTS (
                SELECT FROM pg_policy p JOIN wall ON wall.oid = p.polrelid
                WHERE p.polpermissive AND p.polname NOT IN (:isolation, :maintenance)
                    AND (0 = ANY (p.polroles) OR EXISTS (SELECT FROM role WHERE role.oid = ANY (p.polroles)))
            )
        """
    ).bindparams(_names, isolation=ISOLATION_POLICY, maintenance=MAINTENANCE_POLICY)
)
_READS_SEALED: Final = Statement(
    sa.text(
        "SELECT EXISTS (SELECT FROM unnest(:tables, :columns) AS sealed(name, col)"
        " WHERE has_column_privilege(to_regclass(name), col, 'SELECT'))"
    ).bindparams(_names, sa.bindparam("columns", type_=ARRAY(sa.Text)))
)
_VERSION: Final = Statement(sa.text("SELECT current_setting('server_version_num')::integer"))


@dataclass(frozen=True, slots=True)
class Role:
    """
    What the role of a connection is, directly or because it may become it, and what it meets.

    :param lacks_wall: Whether a tenant's table is without row-level security, or without FORCE.
    :param maintains: For how many of the tenants' tables a maintenance policy holds for it.
    :param has_other_policy: Whether a policy that is not ours lets it see more.
    """

    is_superuser: bool
    bypasses: bool
    is_owner: bool
    lacks_wall: bool
    maintains: int
    has_other_policy: bool


def runtime_problem(database: Database) -> str | None:
    """
    Return why this role must not serve tenants, or `None`.

    :param database: PostgreSQL with the current schema, as the role in question.
    """
    role = _look(database)
    if (problem := _problem(role)) is not None:
        return problem
    if role.maintains:
        return "Its role has the policies of the maintenance role and would see every tenant's rows."
    return None


def maintenance_problem(database: Database) -> str | None:
    """Return why this role must not work on all tenants, or `None`. See `runtime_problem`."""
    role = _look(database)
    if (problem := _problem(role)) is not None:
        return problem
    if role.maintains != len(_TABLES):
        return "Its role lacks the policies of the maintenance role; run `tenancy init` with owner_url."
    sealed = [(table, column) for table, columns in SEALED_COLUMNS.items() for column in columns]
    tables, columns = (list(each) for each in zip(*sealed, strict=True))
    with database.reading() as transaction:
        row = transaction.one(_READS_SEALED, tables=tables, columns=columns)
    return "Its role may read wrapped keys or sealed bytes; revoke that." if row == (True,) else None


def version_problem(database: Database) -> str | None:
    """Return why this server's row-level security is known to have holes, or `None`."""
    with database.reading() as transaction:
        row = transaction.one(_VERSION)
    major, minor = divmod(0 if row is None else row[0], 10_000)
    mended = _MENDED.get(major, 0)
    if major >= min(_MENDED) and minor >= mended:
        return None
    newest = f"at least {major}.{mended}" if mended else "a supported version"
    return f"PostgreSQL {major}.{minor} has known holes in row-level security; upgrade to {newest}."


def _problem(role: Role) -> str | None:
    if role.is_superuser:
        return "Its role is a superuser, or may become one, and row-level security does not hold it back."
    if role.bypasses:
        return "Its role has BYPASSRLS, or may take a role that has, and row-level security does not hold it back."
    if role.is_owner:
        return "Its role owns the tables or their schema, and could take row-level security away."
    if role.lacks_wall:
        return "A table of the tenants' is without row-level security, or without FORCE; put it back."
    if role.has_other_policy:
        return "A policy that is not haystack-tenancy's lets its role see more rows; drop it."
    return None


def _look(database: Database) -> Role:
    with database.reading() as transaction:
        row = transaction.one(_ROLE, tables=_TABLES)
    if row is None:
        raise LookupError("The server says nothing about this role.")
    return Role(*row)
