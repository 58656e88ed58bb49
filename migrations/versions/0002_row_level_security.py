"""
Row-level security on PostgreSQL: the second wall around a tenant.

Revision 0002. A transaction reaches the rows of the tenant it names in the setting `tenancy.tenant_id`, and none
without it; the table that names tenants also by `tenancy.tenant_name`, since that is how an id is found; the table of
blobs by `stores.outer`. Who the maintenance role is depends on the installation: `tenancy init` and `tenancy db
upgrade` give it its own policies. SQLite has no such thing, and nothing changes there.

FORCE holds the owner back too. A later revision that changes rows lifts it inside its transaction, puts it back, and
compares how many rows it changed: under FORCE an owner silently changes nothing.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# What a setting is after its transaction: missing, or, on a connection that once had it, empty. Neither is an id.
_SETTING = "NULLIF(current_setting('{}', true), '')"
_BY_TENANT_ID = f"tenant_id = {_SETTING.format('tenancy.tenant_id')}"
_CONDITIONS = {
    "tenancy_tenants": f"{_BY_TENANT_ID} OR name = {_SETTING.format('tenancy.tenant_name')}",
    "tenancy_users": _BY_TENANT_ID,
    "tenancy_sessions": _BY_TENANT_ID,
    "tenancy_tenant_keys": _BY_TENANT_ID,
    "tenancy_session_keys": _BY_TENANT_ID,
    "tenancy_results": _BY_TENANT_ID,
    "tenancy_usage": _BY_TENANT_ID,
    "tenancy_limits": _BY_TENANT_ID,
    "tenancy_receipts": _BY_TENANT_ID,
    "tenancy_blobs": f"outer_name = {_SETTING.format('stores.outer')}",
}


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    for table, condition in _CONDITIONS.items():
        # For every command and every role; what may be seen and what may be written are one and the same.
        op.execute(f"CREATE POLICY tenancy_isolation ON {table} USING ({condition}) WITH CHECK ({condition})")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def downgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    for table in _CONDITIONS:
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        op.execute(f"DROP POLICY tenancy_isolation ON {table}")
        op.execute(f"DROP POLICY IF EXISTS tenancy_maintenance ON {table}")
