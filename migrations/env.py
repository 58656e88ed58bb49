"""
What alembic runs around the revisions.

`tenancy.upgrade` hands over an open, locked transaction. Called by alembic's own command line, this opens one itself,
to the database named by `-x url=…` or by `HAYSTACK_TENANCY_DATABASE_URL`. Logging is left as it is.
"""

import os

import sqlalchemy as sa
from alembic import context

from tenancy.schema import METADATA, VERSION_TABLE
from tenancy.upgrade import dialect_name, locked_for_migration

#: Every table of this library starts with it. A host application's tables in the same database do not concern us.
_PREFIX = "tenancy_"


def _include_name(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or (name is not None and name.startswith(_PREFIX) and name != VERSION_TABLE)


def _database_url() -> str:
    url: str = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get(
        "HAYSTACK_TENANCY_DATABASE_URL", ""
    )
    return url


def _migrate(connection: sa.Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        include_name=_include_name,
        compare_type=True,
        compare_server_default=True,
        # SQLite changes a table by building it anew.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def _print_sql() -> None:
    context.configure(
        dialect_name=dialect_name(_database_url()),
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        literal_binds=True,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given: sa.Connection | None = context.config.attributes.get("connection")
if given is not None:
    _migrate(given)
elif context.is_offline_mode():
    _print_sql()
else:
    with locked_for_migration(_database_url()) as opened:
        _migrate(opened)
