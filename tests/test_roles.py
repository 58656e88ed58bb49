"""The three roles of PostgreSQL: how they are made, and which ones a manager refuses."""

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tenancy import ConfigurationError
from tenancy.roles import prepare_roles
from tenancy.schema import TENANT_TABLES
from tenancy.upgrade import check, upgrade
from tests.conftest import ManagerFactory
from tests.postgres import OWNER_ROLE, as_admin, as_maintenance, as_owner, as_runtime

SECRET = "hunter2-of-the-role"


def as_superuser(url: str, *statements: str) -> None:
    with psycopg.connect(as_admin(url).replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


class NewRoles:
    """Names of roles that no other test has, and an owner who may make roles."""

    def __init__(self, url: str) -> None:
        self._url = url
        tag = secrets.token_hex(4)
        self.names = {kind: f'{kind} "of" {tag}' for kind in ("owner", "runtime", "maintenance")}
        as_superuser(
            url,
            f"CREATE ROLE {self.quoted('owner')} LOGIN CREATEROLE",
            f"GRANT CREATE ON SCHEMA public TO {self.quoted('owner')}",
        )

    def quoted(self, kind: str) -> str:
        return sql.Identifier(self.names[kind]).as_string()

    def url(self, kind: str, *, password: str = "") -> str:
        name = self.names[kind].replace(" ", "%20").replace('"', "%22")
        return self._url.replace(f"//{OWNER_ROLE}@", f"//{name}{password and ':' + password}@")

    def drop(self) -> None:
        for kind in ("runtime", "maintenance", "owner"):
            name = self.quoted(kind)
            with psycopg.connect(as_admin(self._url).replace("+psycopg", ""), autocommit=True) as connection:
                if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (self.names[kind],)).fetchone():
                    connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
def roles(empty_postgres_url: str) -> Iterator[NewRoles]:
    made = NewRoles(empty_postgres_url)
    yield made
    made.drop()


def attributes(url: str, role: str) -> Any:
    with psycopg.connect(as_admin(url).replace("+psycopg", "")) as connection:
        return connection.execute(
            "SELECT rolcanlogin, rolsuper, rolbypassrls, rolcreatedb, rolcreaterole, rolreplication, rolpassword"
            " FROM pg_authid WHERE rolname = %s",
            (role,),
        ).fetchone()


@pytest.mark.parametrize("password", ["", SECRET])
def test_missing_roles_are_made_as_ordinary_ones_with_the_passwords_of_their_urls(
    roles: NewRoles, empty_postgres_url: str, tmp_path: Path, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    urls = {"database_url": roles.url("runtime", password=password), "maintenance_url": roles.url("maintenance")}
    upgrade(roles.url("owner"))
    assert prepare_roles(roles.url("owner"), **urls) == ["runtime role", "maintenance role"]
    assert prepare_roles(roles.url("owner"), **urls) == []
    for kind in ("runtime", "maintenance"):
        found = attributes(empty_postgres_url, roles.names[kind])
        assert found[:6] == (True, False, False, False, False, False)
        has_password = bool(password) and kind == "runtime"
        assert (found[6] or "").startswith("SCRAM-SHA-256$") == has_password
    tmp_path.chmod(0o700)
    make_manager = ManagerFactory(database_url=urls["database_url"], inline_bytes=0, folder=tmp_path)
    with make_manager(maintenance_url=urls["maintenance_url"]) as manager:
        session = manager.session(tenant="acme", user="ann")
        assert session.read(session.write("kept")) == "kept"
        assert [one.tenant for one in manager.sessions()] == ["acme"]
    assert SECRET not in caplog.text


def test_a_role_that_was_there_keeps_its_password_and_attributes(roles: NewRoles, empty_postgres_url: str) -> None:
    as_superuser(empty_postgres_url, f"CREATE ROLE {roles.quoted('runtime')} LOGIN CREATEDB PASSWORD 'old'")
    before = attributes(empty_postgres_url, roles.names["runtime"])
    upgrade(roles.url("owner"))
    made = prepare_roles(roles.url("owner"), database_url=roles.url("runtime", password=SECRET), maintenance_url=None)
    assert made == []
    assert attributes(empty_postgres_url, roles.names["runtime"]) == before


def test_another_maintenance_role_takes_the_place_of_the_first(roles: NewRoles, postgres_url: str) -> None:
    as_superuser(postgres_url, f"CREATE ROLE {roles.quoted('maintenance')} LOGIN")
    mine = roles.url("maintenance").rpartition("/")[0] + "/" + postgres_url.rpartition("/")[2]
    prepare_roles(as_owner(postgres_url), database_url=postgres_url, maintenance_url=mine)
    assert {role for _, (role,) in policies(postgres_url)} == {roles.names["maintenance"]}
    assert len(policies(postgres_url)) == len(TENANT_TABLES)
    as_superuser(postgres_url, f"DROP OWNED BY {roles.quoted('maintenance')}")


def test_databases_of_one_server_are_prepared_with_the_same_roles_at_once(
    roles: NewRoles, empty_postgres_url: str
) -> None:
    upgrade(roles.url("owner"))
    prepare = {"database_url": roles.url("runtime"), "maintenance_url": None}
    made: list[list[str]] = []
    with psycopg.connect(as_admin(empty_postgres_url).replace("+psycopg", "")) as other:
        # As the other one's transaction does, which ends while this one waits for it.
        other.execute(f"CREATE ROLE {roles.quoted('runtime')} LOGIN")
        thread = threading.Thread(target=lambda: made.append(prepare_roles(roles.url("owner"), **prepare)))
        thread.start()
        with psycopg.connect(as_admin(empty_postgres_url).replace("+psycopg", ""), autocommit=True) as admin:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
            while thread.is_alive() and admin.execute(waiting).fetchone() is None:
                pass
    thread.join()
    assert made == [[]]


def test_a_name_that_the_server_would_cut_off_is_refused(postgres_url: str) -> None:
    long = postgres_url.replace("//tenancy_app@", f"//{'r' * 64}@")
    with pytest.raises(ConfigurationError, match=r"^database_url: .*63 bytes") as caught:
        prepare_roles(as_owner(postgres_url), database_url=long, maintenance_url=None)
    assert "rrr" not in str(caught.value)


@pytest.mark.parametrize("name", ["public", "none", "pg_tenants"])
def test_a_name_that_the_server_keeps_for_itself_is_refused(
    roles: NewRoles, empty_postgres_url: str, name: str
) -> None:
    upgrade(roles.url("owner"))
    reserved = as_runtime(empty_postgres_url).replace("//tenancy_app@", f"//{name}@")
    with pytest.raises(ConfigurationError, match=r"^database_url .*for itself"):
        prepare_roles(roles.url("owner"), database_url=reserved, maintenance_url=None)


def test_who_is_refused_as_the_owner_is_called_so(postgres_url: str) -> None:
    as_superuser(postgres_url, "REVOKE SELECT ON tenancy_alembic_version FROM tenancy_app")
    with pytest.raises(ConfigurationError, match=r"^owner_url: "):
        check(postgres_url, setting="owner_url")


def test_rights_that_were_too_many_are_taken_back(postgres_url: str) -> None:
    prepare = {"database_url": postgres_url, "maintenance_url": as_maintenance(postgres_url)}
    before = rights(postgres_url)
    as_superuser(
        postgres_url,
        *(f"GRANT ALL ON {table.name} TO tenancy_app, tenancy_maintenance" for table in TENANT_TABLES),
    )
    assert rights(postgres_url) != before
    prepare_roles(as_owner(postgres_url), **prepare)
    assert rights(postgres_url) == before


def rights(url: str) -> Any:
    with psycopg.connect(as_admin(url).replace("+psycopg", "")) as connection:
        return connection.execute(
            "SELECT table_name, column_name, grantee, privilege_type FROM information_schema.column_privileges"
            " UNION ALL SELECT table_name, '', grantee, privilege_type FROM information_schema.table_privileges"
            " WHERE table_schema = 'public' ORDER BY 1, 2, 3, 4"
        ).fetchall()


def policies(url: str) -> list[Any]:
    with psycopg.connect(as_admin(url).replace("+psycopg", "")) as connection:
        return connection.execute(
            "SELECT tablename, roles FROM pg_policies WHERE policyname = 'tenancy_maintenance' ORDER BY 1"
        ).fetchall()


def test_an_owner_who_may_not_make_roles_is_told_and_nothing_is_changed(empty_postgres_url: str) -> None:
    upgrade(empty_postgres_url)
    missing = empty_postgres_url.replace(f"//{OWNER_ROLE}@", "//nobody_yet@")
    with pytest.raises(ConfigurationError, match="CREATE ROLE") as caught:
        prepare_roles(empty_postgres_url, database_url=as_runtime(empty_postgres_url), maintenance_url=missing)
    assert "nobody_yet" not in str(caught.value)
    with (
        psycopg.connect(as_runtime(empty_postgres_url).replace("+psycopg", "")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        # What had been granted before the refusal was taken back with it.
        connection.execute("SELECT * FROM tenancy_catalogue")


@pytest.mark.parametrize("same", ["database_url", "maintenance_url"])
def test_two_settings_that_name_one_role_are_refused(empty_postgres_url: str, same: str) -> None:
    upgrade(empty_postgres_url)
    urls = {"database_url": as_runtime(empty_postgres_url), "maintenance_url": as_maintenance(empty_postgres_url)}
    with pytest.raises(ConfigurationError, match="different roles"):
        prepare_roles(empty_postgres_url, **{**urls, same: empty_postgres_url})
    with pytest.raises(ConfigurationError, match="different roles"):
        prepare_roles(empty_postgres_url, **{**urls, "maintenance_url": urls["database_url"]})
    with pytest.raises(ConfigurationError, match=f"{same}: the URL must name the role"):
        prepare_roles(empty_postgres_url, **{**urls, same: "postgresql+psycopg:///x"})
