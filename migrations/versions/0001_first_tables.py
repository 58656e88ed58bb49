"""
The first tables.

Revision 0001. Written out rather than built from `tenancy.schema`, which will move on while this stays.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_LIMIT_FIELDS = (
    "max_result_bytes",
    "session_bytes",
    "session_results",
    "user_bytes",
    "user_results",
    "user_sessions",
    "tenant_bytes",
    "tenant_results",
    "tenant_sessions",
)

# In the order in which they can be made; the other way round they can be dropped.
_TABLES = (
    "tenancy_catalogue",
    "tenancy_root_keys",
    "tenancy_tenants",
    "tenancy_users",
    "tenancy_sessions",
    "tenancy_tenant_keys",
    "tenancy_session_keys",
    "tenancy_results",
    "tenancy_usage",
    "tenancy_limits",
    "tenancy_receipts",
    "tenancy_blobs",
)


def upgrade() -> None:
    _create_catalogue()
    _create_tenants_and_users()
    _create_sessions()
    _create_keys()
    _create_results()
    _create_usage_and_limits()
    _create_receipts()
    _create_blobs()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _id(name: str, *, nullable: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.String(32), nullable=nullable)


def _count(name: str, *, nullable: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _small(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.SmallInteger, nullable=False)


def _version(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, autoincrement=False, nullable=False)


def _primary_key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def _of_tenant(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant_id"], ["tenancy_tenants.tenant_id"], name=op.f(f"fk_{table}_tenancy_tenants")
    )


def _of_session(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant_id", "session_id"],
        ["tenancy_sessions.tenant_id", "tenancy_sessions.session_id"],
        name=op.f(f"fk_{table}_tenancy_sessions"),
    )


def _check(table: str, name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=op.f(f"ck_{table}_{name}"))


def _create_partial_index(name: str, table: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(op.f(name), table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _create_catalogue() -> None:
    op.create_table(
        "tenancy_catalogue",
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        _id("catalogue_id"),
        _count("created_at_us"),
        _count("cleaned_at_us", nullable=True),
        _primary_key("tenancy_catalogue", "id"),
        _check("tenancy_catalogue", "single_row", "id = 1"),
    )


def _create_tenants_and_users() -> None:
    op.create_table(
        "tenancy_tenants",
        _id("tenant_id"),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        _count("created_at_us"),
        _id("receipt_id", nullable=True),
        _primary_key("tenancy_tenants", "tenant_id"),
        _check("tenancy_tenants", "state", "state IN ('live', 'erasing')"),
    )
    _create_partial_index(
        "uq_tenancy_tenants_live_name", "tenancy_tenants", ["name"], where="state = 'live'", unique=True
    )
    op.create_table(
        "tenancy_users",
        _id("tenant_id"),
        _id("user_id"),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        _count("created_at_us"),
        _id("receipt_id", nullable=True),
        _primary_key("tenancy_users", "tenant_id", "user_id"),
        _of_tenant("tenancy_users"),
        _check("tenancy_users", "state", "state IN ('live', 'erasing')"),
    )
    _create_partial_index(
        "uq_tenancy_users_live_name", "tenancy_users", ["tenant_id", "name"], where="state = 'live'", unique=True
    )


def _create_sessions() -> None:
    op.create_table(
        "tenancy_sessions",
        _id("tenant_id"),
        _id("session_id"),
        _id("user_id"),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        _count("created_at_us"),
        _count("used_at_us"),
        _count("expires_at_us"),
        _count("maximum_at_us"),
        _count("idle_us"),
        _count("result_lifetime_us", nullable=True),
        _count("claimed_until_us", nullable=True),
        _primary_key("tenancy_sessions", "tenant_id", "session_id"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "user_id"],
            ["tenancy_users.tenant_id", "tenancy_users.user_id"],
            name=op.f("fk_tenancy_sessions_tenancy_users"),
        ),
        _check("tenancy_sessions", "state", "state IN ('live', 'ended')"),
    )
    _create_partial_index(
        "uq_tenancy_sessions_live_name",
        "tenancy_sessions",
        ["tenant_id", "user_id", "name"],
        where="state = 'live'",
        unique=True,
    )
    op.create_index(op.f("ix_tenancy_sessions_user"), "tenancy_sessions", ["tenant_id", "user_id"])
    op.create_index(op.f("ix_tenancy_sessions_state_expires"), "tenancy_sessions", ["state", "expires_at_us"])


def _create_keys() -> None:
    op.create_table(
        "tenancy_root_keys",
        sa.Column("provider", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(255), nullable=False),
        sa.Column("check_value", sa.LargeBinary, nullable=False),
        _count("created_at_us"),
        _primary_key("tenancy_root_keys", "provider", "key_id"),
    )
    op.create_table(
        "tenancy_tenant_keys",
        _id("tenant_id"),
        _version("version"),
        sa.Column("provider", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(255), nullable=False),
        sa.Column("wrapped", sa.LargeBinary, nullable=False),
        _count("created_at_us"),
        _primary_key("tenancy_tenant_keys", "tenant_id", "version"),
        _of_tenant("tenancy_tenant_keys"),
    )
    op.create_table(
        "tenancy_session_keys",
        _id("tenant_id"),
        _id("session_id"),
        _version("version"),
        _version("tenant_key_version"),
        sa.Column("wrapped", sa.LargeBinary, nullable=False),
        _count("created_at_us"),
        _primary_key("tenancy_session_keys", "tenant_id", "session_id", "version"),
        _of_session("tenancy_session_keys"),
    )


def _create_results() -> None:
    op.create_table(
        "tenancy_results",
        _id("tenant_id"),
        _id("session_id"),
        sa.Column("number", sa.BigInteger, autoincrement=False, nullable=False),
        _id("result_id"),
        sa.Column("reference_hash", sa.LargeBinary(16), nullable=False),
        sa.Column("state", sa.String(9), nullable=False),
        _small("inline"),
        _count("created_at_us"),
        _count("expires_at_us", nullable=True),
        _count("lease_until_us", nullable=True),
        _count("size_bytes"),
        _count("stored_bytes"),
        _small("format"),
        _small("suite"),
        _small("kind"),
        _small("codec"),
        _version("key_version"),
        sa.Column("header", sa.LargeBinary, nullable=False),
        sa.Column("card", sa.LargeBinary, nullable=False),
        _primary_key("tenancy_results", "tenant_id", "session_id", "number"),
        _of_session("tenancy_results"),
        _check("tenancy_results", "state", "state IN ('pending', 'committed', 'deleting')"),
        _check("tenancy_results", "sizes", "size_bytes >= 0 AND stored_bytes >= 0"),
    )
    _create_partial_index(
        "ix_tenancy_results_expires", "tenancy_results", ["expires_at_us"], where="expires_at_us IS NOT NULL"
    )
    _create_partial_index(
        "ix_tenancy_results_unfinished", "tenancy_results", ["lease_until_us"], where="state != 'committed'"
    )


def _create_usage_and_limits() -> None:
    op.create_table(
        "tenancy_usage",
        _id("tenant_id"),
        _id("owner_id"),
        sa.Column("slot", sa.SmallInteger, autoincrement=False, nullable=False),
        _small("open"),
        _count("used_bytes"),
        _count("results"),
        _count("sessions"),
        _count("last_number"),
        _primary_key("tenancy_usage", "tenant_id", "owner_id", "slot"),
        _of_tenant("tenancy_usage"),
        _check("tenancy_usage", "not_negative", "used_bytes >= 0 AND results >= 0 AND sessions >= 0"),
        # Room for the new version of a counter beside the old one, so that no index has to change with it.
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "tenancy_limits",
        _id("tenant_id"),
        _id("owner_id"),
        *(_count(field, nullable=True) for field in _LIMIT_FIELDS),
        _primary_key("tenancy_limits", "tenant_id", "owner_id"),
        _of_tenant("tenancy_limits"),
    )


def _create_receipts() -> None:
    op.create_table(
        "tenancy_receipts",
        _id("tenant_id"),
        _id("receipt_id"),
        sa.Column("level", sa.String(8), nullable=False),
        _count("started_at_us"),
        _count("finished_at_us", nullable=True),
        _count("users"),
        _count("sessions"),
        _count("results"),
        _count("size_bytes"),
        _count("keys_destroyed"),
        _primary_key("tenancy_receipts", "tenant_id", "receipt_id"),
        _check("tenancy_receipts", "level", "level IN ('user', 'tenant')"),
    )


def _create_blobs() -> None:
    op.create_table(
        "tenancy_blobs",
        _id("outer_name"),
        _id("inner_name"),
        _id("name"),
        _count("created_at_us"),
        sa.Column("data", sa.LargeBinary, nullable=False),
        _primary_key("tenancy_blobs", "outer_name", "inner_name", "name"),
    )
    if op.get_context().dialect.name == "postgresql":
        # Sealed bytes do not compress, and substr() of an uncompressed value reads only the part asked for.
        op.execute("ALTER TABLE tenancy_blobs ALTER COLUMN data SET STORAGE EXTERNAL")
