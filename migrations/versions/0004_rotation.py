"""
Rotation of keys: from when on keys count, and which versions are refused.

Revision 0004. That a rotation was asked for stands with each tenant, so that one that was interrupted is found and
carried on by whoever comes next.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenancy_tenants", sa.Column("key_floor", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("tenancy_tenants", sa.Column("tenant_key_from_us", sa.BigInteger, nullable=True))
    op.add_column("tenancy_tenants", sa.Column("session_keys_from_us", sa.BigInteger, nullable=True))


def downgrade() -> None:
    for column in ("session_keys_from_us", "tenant_key_from_us", "key_floor"):
        op.drop_column("tenancy_tenants", column)
