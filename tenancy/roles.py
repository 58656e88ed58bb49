"""
The three roles of PostgreSQL: who owns the tables, who serves tenants, who works across them.

The owner, of `owner_url`, migrates. The runtime role, of `database_url`, is held to one tenant at a time. The
maintenance role, of `maintenance_url`, sees every tenant's rows; it may overwrite and delete wrapped keys and sealed
bytes and read neither.
"""

from typing import Final

import sqlalchemy as sa

from stores.connections import parse_url
from tenancy.catalogue.row_security import MAINTENANCE_POLICY, SEALED_COLUMNS
from tenancy.errors import ConfigurationError
from tenancy.schema import CATALOGUE, METADATA, ROOT_KEYS, TENANT_TABLES, VERSION_TABLE
from tenancy.upgrade import locked_for_migration

_ROLE_EXISTS: Final = sa.text("SELECT 1 FROM pg_roles WHERE rolname = :role")
_POLICY_ROLES: Final = sa.text(
    "SELECT ARRAY(SELECT rolname FROM pg_roles WHERE oid = ANY (p.polroles)) FROM pg_policy p"
    " WHERE p.polname = :policy AND p.polrelid = to_regclass(:table)"
)
#: Where the tables are: the owner's search path found them there, and may begin elsewhere.
_SCHEMA: Final = sa.text(
    "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(:table)"
)
#: What a role that is made here is, whatever the server's defaults are.
_ORDINARY: Final = "LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION"
#: Roles are the whole server's: preparing another of its databases may make the same ones at the same time.
_IS_THERE: Final = ("23505", "42710")
_NAME_BYTES: Final = 63
_MAY_NOT: Final = (
    "owner_url: its role may not make roles, or does not own the tables. Have an administrator make the roles that "
    "database_url and maintenance_url name (CREATE ROLE … LOGIN), and run this again as the owner. No role and no "
    "right was changed."
)
#: What the server's SQLSTATE means here.
_REFUSALS: Final = {
    "42501": _MAY_NOT,
    "42939": "database_url and maintenance_url: PostgreSQL keeps such a role's name for itself; give another one.",
}


def prepare_roles(owner_url: str, *, database_url: str, maintenance_url: str | None) -> list[str]:
    """
    Make the runtime and the maintenance role where they are missing, and give them what they need and nothing more.

    All of it happens or nothing does. May be repeated. A role that is there keeps its password and its attributes;
    a manager refuses it at its start if they are the wrong ones.

    :param owner_url: Of the role that owns the tables. Needed on top for what is missing: the right to make roles.
    :returns: Which of `"runtime role"` and `"maintenance role"` were made.
    :raises ConfigurationError: If a URL names no role, two name the same, or the owner's rights do not suffice.
    :raises AlreadyRunning: If a migration kept the database for too long.
    """
    runtime, maintenance = require_different_roles(
        owner_url, database_url=database_url, maintenance_url=maintenance_url
    )
    made = []
    with locked_for_migration(owner_url, setting="owner_url") as connection:
        try:
            if _make(connection, runtime):
                made.append("runtime role")
            _serve_tenants(connection, runtime.username or "")
            if maintenance is not None:
                if _make(connection, maintenance):
                    made.append("maintenance role")
                _work_across(connection, maintenance.username or "")
        except sa.exc.ProgrammingError as error:
            refusal = _REFUSALS.get(getattr(error.orig, "sqlstate", None) or "")
            if refusal is None:
                raise
            raise ConfigurationError(refusal) from None
    return made


def require_different_roles(
    owner_url: str, *, database_url: str, maintenance_url: str | None
) -> tuple[sa.URL, sa.URL | None]:
    """
    Refuse what `prepare_roles` would refuse of the URLs, before a migration leaves services without their role.

    :returns: Where the runtime role and the maintenance role log in.
    :raises ConfigurationError: If a URL names no role, or two name the same.
    """
    owner, runtime = _role(owner_url, "owner_url"), _role(database_url, "database_url")
    maintenance = None if maintenance_url is None else _role(maintenance_url, "maintenance_url")
    others = [runtime] if maintenance is None else [runtime, maintenance]
    if len({url.username for url in (owner, *others)}) <= len(others):
        raise ConfigurationError("owner_url, database_url and maintenance_url must name different roles.")
    return runtime, maintenance


def _role(url: str, setting: str) -> sa.URL:
    try:
        parsed = parse_url(url)
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {error}") from None
    if not parsed.username:
        raise ConfigurationError(f"{setting}: the URL must name the role.")
    if len(parsed.username.encode()) > _NAME_BYTES:
        # Two that differ further on would be one and the same.
        raise ConfigurationError(
            f"{setting}: PostgreSQL keeps {_NAME_BYTES} bytes of a role's name; give a shorter one."
        )
    return parsed


def _make(connection: sa.Connection, url: sa.URL) -> bool:
    role = url.username or ""
    if connection.execute(_ROLE_EXISTS, {"role": role}).first() is not None:
        return False
    password = ""
    if url.password:
        # Sent as the verifier that the server would keep: the password itself would stand in its log.
        driver = connection.connection.driver_connection
        verifier = driver.pgconn.encrypt_password(  # type: ignore[union-attr]
            str(url.password).encode(), role.encode(), b"scram-sha-256"
        )
        password = f" PASSWORD '{verifier.decode()}'"
    try:
        with connection.begin_nested():
            _run(connection, f"CREATE ROLE {_quoted(connection, role)} {_ORDINARY}{password}")
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) not in _IS_THERE:
            raise
        return False
    return True


def _serve_tenants(connection: sa.Connection, role: str) -> None:
    to = _quoted(connection, role)
    _enter_schema(connection, to)
    for table in TENANT_TABLES:
        # What an administrator gave in one go has TRUNCATE in it, which no policy holds back.
        _run(connection, f"REVOKE ALL ON {table.name} FROM {to}")
        _run(connection, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table.name} TO {to}")
    # The first start gives a catalogue its id and its key, and takes turns by a row lock, which wants an UPDATE right.
    _run(connection, f"GRANT SELECT, INSERT, UPDATE (cleaned_at_us) ON {CATALOGUE.name} TO {to}")
    _run(connection, f"GRANT SELECT, INSERT ON {ROOT_KEYS.name} TO {to}")
    _run(connection, f"GRANT SELECT ON {VERSION_TABLE} TO {to}")


def _work_across(connection: sa.Connection, role: str) -> None:
    to = _quoted(connection, role)
    _enter_schema(connection, to)
    for table in TENANT_TABLES:
        _run(connection, f"REVOKE ALL ON {table.name} FROM {to}")
        _run(connection, f"GRANT SELECT ({', '.join(_readable(table.name))}), UPDATE, DELETE ON {table.name} TO {to}")
        _give_policy(connection, table.name, role)
    _run(connection, f"GRANT SELECT, UPDATE (cleaned_at_us) ON {CATALOGUE.name} TO {to}")
    _run(connection, f"REVOKE ALL ON {ROOT_KEYS.name} FROM {to}")
    # A rotation that has left an old key-encryption key forgets it.
    _run(connection, f"GRANT SELECT ({', '.join(_readable(ROOT_KEYS.name))}), DELETE ON {ROOT_KEYS.name} TO {to}")
    _run(connection, f"GRANT SELECT ON {VERSION_TABLE} TO {to}")


def _enter_schema(connection: sa.Connection, to: str) -> None:
    schema = connection.execute(_SCHEMA, {"table": CATALOGUE.name}).scalar_one()
    _run(connection, f"GRANT USAGE ON SCHEMA {_quoted(connection, schema)} TO {to}")


def _readable(table: str) -> list[str]:
    return [column.name for column in METADATA.tables[table].c if column.name not in SEALED_COLUMNS.get(table, ())]


def _give_policy(connection: sa.Connection, table: str, role: str) -> None:
    # Looked at first: making a policy locks the table against everybody.
    found = connection.execute(_POLICY_ROLES, {"policy": MAINTENANCE_POLICY, "table": table}).scalar()
    to = _quoted(connection, role)
    if found is None:
        _run(connection, f"CREATE POLICY {MAINTENANCE_POLICY} ON {table} TO {to} USING (true) WITH CHECK (true)")
    elif found != [role]:
        _run(connection, f"ALTER POLICY {MAINTENANCE_POLICY} ON {table} TO {to}")


def _quoted(connection: sa.Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)


def _run(connection: sa.Connection, text: str) -> None:
    connection.exec_driver_sql(text)
