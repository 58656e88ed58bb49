"""
Find interrupted erasures without going through all tenants and users.

Revision 0003. Every cleanup looks for them. The indexes hold only what is being erased: nothing, nearly always.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COLUMNS = {"tenancy_tenants": ["tenant_id"], "tenancy_users": ["tenant_id", "user_id"]}


def upgrade() -> None:
    erasing = sa.text("state = 'erasing'")
    for table, columns in _COLUMNS.items():
        op.create_index(op.f(f"ix_{table}_erasing"), table, columns, sqlite_where=erasing, postgresql_where=erasing)


def downgrade() -> None:
    for table in _COLUMNS:
        op.drop_index(op.f(f"ix_{table}_erasing"), table_name=table)
