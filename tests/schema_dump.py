"""Everything a database knows about its tables, as plain values that can be compared."""

import re

import sqlalchemy as sa

#: What may differ in no detail. Each query yields rows of text; `:ours` leaves out the version table.
_POSTGRES_CATALOGUE = {
    "relations": """
        SELECT relname, relkind::text, relpersistence::text, reloptions::text, relrowsecurity, relforcerowsecurity
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE :version
    """,
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attstorage::text, a.attcompression::text, a.attidentity::text, a.attgenerated::text,
               pg_get_expr(d.adbin, d.adrelid), l.collname
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
          AND a.attnum > 0 AND NOT a.attisdropped AND c.relname NOT LIKE :version
    """,
    "constraints": """
        SELECT c.relname, k.conname, k.contype::text, pg_get_constraintdef(k.oid), k.convalidated
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        WHERE k.connamespace = 'public'::regnamespace AND c.relname NOT LIKE :version
    """,
    "indexes": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisunique, i.indisvalid, c.reloptions::text
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE :version
    """,
    "policies": "SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
}
_SQLITE_CATALOGUE = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name NOT LIKE :version"
#: Alembic's own bookkeeping, of ours and of a host application.
_VERSION_TABLES = "%alembic_version%"


def dump(connection: sa.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return all that the database itself says about every table in it, the version tables aside."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(sa.text(_SQLITE_CATALOGUE), {"version": _VERSION_TABLES})
        return {"objects": sorted(tuple(_single_spaced(value) for value in row) for row in rows)}
    return {
        what: sorted((tuple(row) for row in connection.execute(sa.text(query), {"version": _VERSION_TABLES})), key=repr)
        for what, query in _POSTGRES_CATALOGUE.items()
    }


def _single_spaced(value: object) -> str:
    return re.sub(r"\s+", " ", str(value))
