"""
Receipts say which keys they speak of, and SQLite's log is cut after whoever has overwritten pages.

Revision 0005. What is there keeps NULL: of older receipts the keys are not known.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenancy_receipts", sa.Column("key_ids", sa.Text(), nullable=True))
    op.add_column("tenancy_catalogue", sa.Column("shredding_id", sa.String(32), nullable=True))


def downgrade() -> None:
    op.drop_column("tenancy_catalogue", "shredding_id")
    op.drop_column("tenancy_receipts", "key_ids")
