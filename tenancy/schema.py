"""
The tables of the catalogue. `migrations/` builds the same ones; a test holds the two against each other.

Every table of a tenant's has `tenant_id` first in its primary and foreign keys. Ids are stored names (`stores.names`).
Moments are microseconds since 1970 UTC. The texts a tenant, a user and a session are called by stand once, in the
tables that name them.
"""

from typing import Final

import sqlalchemy as sa

from stores.database import blob_table
from tenancy.isolation import build_wall
from tenancy.quotas import FIELDS

#: The newest revision in `migrations/versions`. A test compares it with alembic's own idea of the head.
HEAD_REVISION: Final = "0005"
VERSION_TABLE: Final = "tenancy_alembic_version"

METADATA: Final = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _id(name: str, *, primary_key: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.String(32), primary_key=primary_key, nullable=False)


def _moment(name: str, *, nullable: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=nullable)


#: One row: which catalogue this is, and when cleanup last finished.
CATALOGUE: Final = sa.Table(
    "tenancy_catalogue",
    METADATA,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    _id("catalogue_id"),
    _moment("created_at_us"),
    _moment("cleaned_at_us", nullable=True),
    # SQLite only: the newest transaction that has overwritten pages, until the log was cut after it.
    sa.Column("shredding_id", sa.String(32), nullable=True),
    sa.CheckConstraint("id = 1", name="single_row"),
)

#: The key-encryption keys in use, each with a value that only the right key opens.
ROOT_KEYS: Final = sa.Table(
    "tenancy_root_keys",
    METADATA,
    sa.Column("provider", sa.String(32), primary_key=True),
    sa.Column("key_id", sa.String(255), primary_key=True),
    sa.Column("check_value", sa.LargeBinary, nullable=False),
    _moment("created_at_us"),
)

TENANTS: Final = sa.Table(
    "tenancy_tenants",
    METADATA,
    _id("tenant_id", primary_key=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("state", sa.String(8), nullable=False),
    _moment("created_at_us"),
    # Set while the tenant is being erased: which receipt the work resumes under.
    sa.Column("receipt_id", sa.String(32), nullable=True),
    # Older versions of the tenant's key than this are refused, wherever they come from.
    sa.Column("key_floor", sa.Integer, nullable=False, server_default=sa.text("0")),
    # When a rotation was last asked for: keys that were made before are due.
    _moment("tenant_key_from_us", nullable=True),
    _moment("session_keys_from_us", nullable=True),
    sa.CheckConstraint("state IN ('live', 'erasing')", name="state"),
)
sa.Index(
    "uq_tenancy_tenants_live_name",
    TENANTS.c.name,
    unique=True,
    sqlite_where=TENANTS.c.state == "live",
    postgresql_where=TENANTS.c.state == "live",
)
#: Which ones an erasure was begun of and not finished, for a cleanup that must not go through all to find them.
sa.Index(
    "ix_tenancy_tenants_erasing",
    TENANTS.c.tenant_id,
    sqlite_where=TENANTS.c.state == "erasing",
    postgresql_where=TENANTS.c.state == "erasing",
)

USERS: Final = sa.Table(
    "tenancy_users",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("user_id", primary_key=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("state", sa.String(8), nullable=False),
    _moment("created_at_us"),
    sa.Column("receipt_id", sa.String(32), nullable=True),
    sa.ForeignKeyConstraint(["tenant_id"], ["tenancy_tenants.tenant_id"]),
    sa.CheckConstraint("state IN ('live', 'erasing')", name="state"),
)
sa.Index(
    "uq_tenancy_users_live_name",
    USERS.c.tenant_id,
    USERS.c.name,
    unique=True,
    sqlite_where=USERS.c.state == "live",
    postgresql_where=USERS.c.state == "live",
)
sa.Index(
    "ix_tenancy_users_erasing",
    USERS.c.tenant_id,
    USERS.c.user_id,
    sqlite_where=USERS.c.state == "erasing",
    postgresql_where=USERS.c.state == "erasing",
)

#: A row is one generation of a session: a name that is opened again after its end gets a new row, id and key.
SESSIONS: Final = sa.Table(
    "tenancy_sessions",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("session_id", primary_key=True),
    _id("user_id"),
    # "" is the user's own room.
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("state", sa.String(8), nullable=False),
    _moment("created_at_us"),
    _moment("used_at_us"),
    # The earlier of the idle and the maximum expiry; moved by use.
    _moment("expires_at_us"),
    _moment("maximum_at_us"),
    sa.Column("idle_us", sa.BigInteger, nullable=False),
    sa.Column("result_lifetime_us", sa.BigInteger, nullable=True),
    # How far cleanup's claim on an ended session reaches, so that two workers rarely do the same work.
    _moment("claimed_until_us", nullable=True),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["tenancy_users.tenant_id", "tenancy_users.user_id"]),
    sa.CheckConstraint("state IN ('live', 'ended')", name="state"),
)
sa.Index(
    "uq_tenancy_sessions_live_name",
    SESSIONS.c.tenant_id,
    SESSIONS.c.user_id,
    SESSIONS.c.name,
    unique=True,
    sqlite_where=SESSIONS.c.state == "live",
    postgresql_where=SESSIONS.c.state == "live",
)
sa.Index("ix_tenancy_sessions_user", SESSIONS.c.tenant_id, SESSIONS.c.user_id)
sa.Index("ix_tenancy_sessions_state_expires", SESSIONS.c.state, SESSIONS.c.expires_at_us)

TENANT_KEYS: Final = sa.Table(
    "tenancy_tenant_keys",
    METADATA,
    _id("tenant_id", primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("provider", sa.String(32), nullable=False),
    sa.Column("key_id", sa.String(255), nullable=False),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
    _moment("created_at_us"),
    sa.ForeignKeyConstraint(["tenant_id"], ["tenancy_tenants.tenant_id"]),
)

SESSION_KEYS: Final = sa.Table(
    "tenancy_session_keys",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("session_id", primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tenant_key_version", sa.Integer, nullable=False),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
    _moment("created_at_us"),
    sa.ForeignKeyConstraint(["tenant_id", "session_id"], ["tenancy_sessions.tenant_id", "tenancy_sessions.session_id"]),
)

RESULTS: Final = sa.Table(
    "tenancy_results",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("session_id", primary_key=True),
    # Counts up in the session and is the number inside the reference.
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    # Also the blob's name in the store.
    _id("result_id"),
    # Of the whole reference: its hint comes from the tool's name, which must not stand here in clear.
    sa.Column("reference_hash", sa.LargeBinary(16), nullable=False),
    sa.Column("state", sa.String(9), nullable=False),
    # Where the sealed bytes are: 1 in this database, 0 in the store.
    sa.Column("inline", sa.SmallInteger, nullable=False),
    _moment("created_at_us"),
    _moment("expires_at_us", nullable=True),
    # Until when a pending write may still be at work.
    _moment("lease_until_us", nullable=True),
    # Plaintext bytes, which are what is charged; and the sealed bytes behind the header.
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    sa.Column("format", sa.SmallInteger, nullable=False),
    sa.Column("suite", sa.SmallInteger, nullable=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("codec", sa.SmallInteger, nullable=False),
    sa.Column("key_version", sa.Integer, nullable=False),
    # Salt and commitment of the sealed content; emptied when the result is deleted, and with it the card.
    sa.Column("header", sa.LargeBinary, nullable=False),
    # What the content is called and how it is cut, sealed on its own.
    sa.Column("card", sa.LargeBinary, nullable=False),
    sa.ForeignKeyConstraint(["tenant_id", "session_id"], ["tenancy_sessions.tenant_id", "tenancy_sessions.session_id"]),
    sa.CheckConstraint("state IN ('pending', 'committed', 'deleting')", name="state"),
    sa.CheckConstraint("size_bytes >= 0 AND stored_bytes >= 0", name="sizes"),
)
sa.Index(
    "ix_tenancy_results_expires",
    RESULTS.c.expires_at_us,
    sqlite_where=RESULTS.c.expires_at_us.is_not(None),
    postgresql_where=RESULTS.c.expires_at_us.is_not(None),
)
sa.Index(
    "ix_tenancy_results_unfinished",
    RESULTS.c.lease_until_us,
    sqlite_where=RESULTS.c.state != "committed",
    postgresql_where=RESULTS.c.state != "committed",
)

#: The counters: changed by every write, so narrow and apart. One row per tenant, user and session (`owner_id`).
USAGE: Final = sa.Table(
    "tenancy_usage",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("owner_id", primary_key=True),
    # 0 for now; a hot tenant can be spread over several rows later.
    sa.Column("slot", sa.SmallInteger, primary_key=True, autoincrement=False),
    # 0 once its owner has ended: a charge that comes later finds no open row and is refused.
    sa.Column("open", sa.SmallInteger, nullable=False),
    sa.Column("used_bytes", sa.BigInteger, nullable=False),
    sa.Column("results", sa.BigInteger, nullable=False),
    sa.Column("sessions", sa.BigInteger, nullable=False),
    # The number of the newest result ever charged here; sessions count up with it.
    sa.Column("last_number", sa.BigInteger, nullable=False),
    sa.ForeignKeyConstraint(["tenant_id"], ["tenancy_tenants.tenant_id"]),
    sa.CheckConstraint("used_bytes >= 0 AND results >= 0 AND sessions >= 0", name="not_negative"),
    postgresql_with={"fillfactor": 50},
)

#: Limits that were set at a tenant, user or session (`owner_id`). NULL inherits, -1 is unlimited.
LIMITS: Final = sa.Table(
    "tenancy_limits",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("owner_id", primary_key=True),
    *(sa.Column(field, sa.BigInteger, nullable=True) for field in FIELDS),
    sa.ForeignKeyConstraint(["tenant_id"], ["tenancy_tenants.tenant_id"]),
)

#: What an erasure removed. Outlives what it speaks of, hence no foreign key and no identifier but the opaque id.
RECEIPTS: Final = sa.Table(
    "tenancy_receipts",
    METADATA,
    _id("tenant_id", primary_key=True),
    _id("receipt_id", primary_key=True),
    sa.Column("level", sa.String(8), nullable=False),
    _moment("started_at_us"),
    _moment("finished_at_us", nullable=True),
    sa.Column("users", sa.BigInteger, nullable=False),
    sa.Column("sessions", sa.BigInteger, nullable=False),
    sa.Column("results", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("keys_destroyed", sa.BigInteger, nullable=False),
    sa.Column("key_ids", sa.Text, nullable=True),
    sa.CheckConstraint("level IN ('user', 'tenant')", name="level"),
)

BLOBS: Final = blob_table(METADATA)

#: Every table that holds something of a tenant's. PostgreSQL puts row-level security around each.
TENANT_TABLES: Final = (
    TENANTS,
    USERS,
    SESSIONS,
    TENANT_KEYS,
    SESSION_KEYS,
    RESULTS,
    USAGE,
    LIMITS,
    RECEIPTS,
    BLOBS,
)

for _each in TENANT_TABLES:
    build_wall(_each)
