"""
Row-level security in SQL: which rows of a tenants' table a transaction may see and write on PostgreSQL.

`migrations/` builds the same policies; a test holds the two against each other.
"""

from typing import Final

import sqlalchemy as sa
from sqlalchemy import event

from stores.database import OUTER_SETTING

#: The settings of a transaction that the policies read: for whom it works, or whom it is looking for.
TENANT_ID_SETTING: Final = "tenancy.tenant_id"
TENANT_NAME_SETTING: Final = "tenancy.tenant_name"
#: The policy that holds for everybody, the maintenance role aside.
ISOLATION_POLICY: Final = "tenancy_isolation"

#: Where an id is found by the name, so that the name has to be enough to see that one row.
_FOUND_BY_NAME: Final = "tenancy_tenants"


def isolation_condition(table: sa.Table) -> str:
    """Say in SQL which rows of a tenants' table are of whom a transaction has named, to be seen or to be written."""
    # The table of blobs knows no tenant, only rooms in rooms.
    if "tenant_id" not in table.c:
        return _is_setting("outer_name", OUTER_SETTING)
    allowed = _is_setting("tenant_id", TENANT_ID_SETTING)
    if table.name == _FOUND_BY_NAME:
        allowed += f" OR {_is_setting('name', TENANT_NAME_SETTING)}"
    return allowed


def build_wall(table: sa.Table) -> None:
    """Have a table come with its policy wherever PostgreSQL creates it."""
    allowed = isolation_condition(table)
    for text in (
        f"CREATE POLICY {ISOLATION_POLICY} ON %(fullname)s USING ({allowed}) WITH CHECK ({allowed})",
        "ALTER TABLE %(fullname)s ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE %(fullname)s FORCE ROW LEVEL SECURITY",
    ):
        ddl = sa.DDL(text)  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", ddl.execute_if(dialect="postgresql"))


def _is_setting(column: str, setting: str) -> str:
    # A setting of an earlier transaction is left behind as "", which is no id and no name.
    return f"{column} = NULLIF(current_setting('{setting}', true), '')"
