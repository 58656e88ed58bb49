"""
Is the second wall there? What a manager asks PostgreSQL before it starts.

Row-level security does not hold back a superuser, a role with BYPASSRLS, or whoever may become one of them; an owner
can take it away; and a policy of the maintenance role holds for its members too.
"""

import re
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from stores.database import OUTER_SETTING
from stores.sql import Database, Statement
from tenancy.isolation import ISOLATION_POLICY, TENANT_ID_SETTING, TENANT_NAME_SETTING, isolation_condition
from tenancy.schema import TENANT_TABLES

#: The policy of the maintenance role.
MAINTENANCE_POLICY: Final = "tenancy_maintenance"

#: The first minor version of each major one without a known hole in row-level security: CVE-2024-10976 (policies
#: applied as another role inside subqueries) and CVE-2025-8713 (planner statistics show rows that policies hide), see
#: https://www.postgresql.org/support/security/. Later majors were released with both mended.
_MENDED: Final = {14: 19, 15: 14, 16: 10, 17: 6}

_TABLES: Final = [table.name for table in TENANT_TABLES]
#: What PostgreSQL adds when it prints a condition back: casts, brackets and spaces.
_NOISE: Final = r"::[a-z ]+|[()\s]"
_CONDITIONS: Final = [re.sub(_NOISE, "", isolation_condition(table)) for table in TENANT_TABLES]
#: Columns that only whoever decrypts may read: wrapped keys and sealed bytes.
SEALED_COLUMNS: Final = {
    "tenancy_tenant_keys": ("wrapped",),
    "tenancy_session_keys": ("wrapped",),
    "tenancy_root_keys": ("check_value",),
    "tenancy_results": ("header", "card"),
    "tenancy_blobs": ("data",),
}

#: All that a role is: itself and whatever it may become. The logged-in role counts, whatever it has become since.
_ROLES: Final = """
        role AS (
            SELECT oid, rolname, rolsuper, rolbypassrls, rolcreaterole FROM pg_roles
            WHERE pg_has_role(session_user, oid, 'MEMBER') OR pg_has_role(current_user, oid, 'MEMBER')
        )"""
_texts = ARRAY(sa.Text)
_ROLE: Final = Statement(
    sa.text(
        f"""
        WITH {_ROLES}, wall AS (
            SELECT wanted.condition, c.* FROM unnest(:tables, :conditions) AS wanted(name, condition)
            LEFT JOIN pg_class c ON c.oid = to_regclass(wanted.name)
        ), policy AS (
            SELECT p.polrelid, p.polname, p.polroles, p.polcmd = '*' AND p.polpermissive AS is_general, wall.condition,
                regexp_replace(pg_get_expr(p.polqual, p.polrelid), :noise, '', 'g') AS sees,
                regexp_replace(pg_get_expr(p.polwithcheck, p.polrelid), :noise, '', 'g') AS writes
            FROM pg_policy p JOIN wall ON wall.oid = p.polrelid
        ), isolating AS (
            SELECT * FROM policy WHERE polname = :isolation AND is_general AND 0 = ANY (polroles)
                AND sees = condition AND writes = condition
        ), met AS (
            SELECT *, polname = :maintenance AND is_general AND sees = 'true' AND writes = 'true' AS maintains
            FROM policy WHERE 0 = ANY (polroles) OR EXISTS (SELECT FROM role WHERE role.oid = ANY (polroles))
        )
        SELECT
            EXISTS (
                SELECT FROM role WHERE rolsuper
                    -- https://www.postgresql.org/docs/current/predefined-roles.html
                    OR rolname IN ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')
                    -- Before 16 it could make itself a member of any other role.
                    OR rolcreaterole AND current_setting('server_version_num')::integer < 160000
            ),
            EXISTS (SELECT FROM role WHERE rolbypassrls),
            EXISTS (SELECT FROM role JOIN wall ON relowner = role.oid)
                OR EXISTS (
                    SELECT FROM role JOIN pg_namespace n ON n.nspowner = role.oid
                    WHERE n.oid IN (SELECT relnamespace FROM wall)
                ),
            EXISTS (SELECT FROM role JOIN wall ON has_schema_privilege(role.oid, wall.relnamespace, 'CREATE')),
            EXISTS (
                SELECT FROM role JOIN wall ON has_table_privilege(role.oid, wall.oid, 'TRUNCATE, TRIGGER, REFERENCES')
            ),
            EXISTS (
                SELECT FROM wall WHERE NOT coalesce(relrowsecurity AND relforcerowsecurity, false)
                    OR NOT EXISTS (SELECT FROM isolating WHERE polrelid = wall.oid)
            ),
            (SELECT count(*) FROM met WHERE maintains),
            EXISTS (SELECT FROM met WHERE polname <> :isolation AND NOT maintains),
            EXISTS (SELECT FROM unnest(:settings) AS name WHERE current_setting(name, true) <> '')
        """  # noqa: S608 - no text but our own
    ).bindparams(
        sa.bindparam("tables", _TABLES, type_=_texts),
        sa.bindparam("conditions", _CONDITIONS, type_=_texts),
        sa.bindparam("settings", [TENANT_ID_SETTING, TENANT_NAME_SETTING, OUTER_SETTING], type_=_texts),
        noise=_NOISE,
        isolation=ISOLATION_POLICY,
        maintenance=MAINTENANCE_POLICY,
    )
)
_READS_SEALED: Final = Statement(
    sa.text(
        f"""
        WITH {_ROLES} SELECT EXISTS (
            SELECT FROM role, unnest(:tables, :columns) AS sealed(name, col)
            WHERE has_column_privilege(role.oid, to_regclass(name), col, 'SELECT')
        )
        """  # noqa: S608 - no text but our own
    ).bindparams(sa.bindparam("tables", type_=_texts), sa.bindparam("columns", type_=_texts))
)
_VERSION: Final = Statement(sa.text("SELECT current_setting('server_version_num')::integer"))


@dataclass(frozen=True, slots=True)
class Role:
    """
    What the role of a connection is, directly or because it may become it, and what it meets.

    :param may_create: Whether it may put things into the tables' schema, which the other roles would trip over: an
        operator that fits better than PostgreSQL's own runs as whoever compares something.
    :param passes_rows: Whether it may do to a table what row-level security does not look at.
    :param lacks_wall: Whether a tenant's table is without row-level security, without FORCE, or without our policy as
        we made it.
    :param maintains: For how many of the tenants' tables a maintenance policy holds for it.
    :param has_other_policy: Whether a policy that is not ours, or not as we made it, shows it more rows or fewer.
    :param is_preset: Whether a transaction that names no tenant has one all the same.
    """

    is_superuser: bool
    bypasses: bool
    is_owner: bool
    may_create: bool
    passes_rows: bool
    lacks_wall: bool
    maintains: int
    has_other_policy: bool
    is_preset: bool


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
        return "Its role is a superuser, or may become as good as one, and row-level security does not hold it back."
    if role.bypasses:
        return "Its role has BYPASSRLS, or may take a role that has, and row-level security does not hold it back."
    if role.is_owner:
        return "Its role owns the tables or their schema, and could take row-level security away."
    if role.may_create:
        return "Its role may create things in the tables' schema, which other roles would run; revoke CREATE on it."
    if role.passes_rows:
        return (
            "Its role may TRUNCATE a table or has TRIGGER or REFERENCES on it, which row-level security does not hold "
            "back; run `tenancy init` with owner_url, or revoke them."
        )
    if role.lacks_wall:
        return "A table of the tenants' is without row-level security, FORCE or its policy as it was made; put it back."
    if role.has_other_policy:
        return "A policy that is not haystack-tenancy's decides which rows its role sees; drop it."
    if role.is_preset:
        return "Its role, its database or its URL names a tenant for every transaction; take that setting away."
    return None


def _look(database: Database) -> Role:
    with database.reading() as transaction:
        row = transaction.one(_ROLE)
    if row is None:
        raise LookupError("The server says nothing about this role.")
    return Role(*row)
