"""Blobs as rows, in SQLite or PostgreSQL."""

import sqlalchemy as sa

#: The table's name, which migrations and the store share.
BLOB_TABLE = "tenancy_blobs"


def blob_table(metadata: sa.MetaData) -> sa.Table:
    """Describe the table of blobs inside `metadata`. On PostgreSQL its `data` column has STORAGE EXTERNAL."""
    return sa.Table(
        BLOB_TABLE,
        metadata,
        sa.Column("outer_name", sa.String(32), primary_key=True),
        sa.Column("inner_name", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
