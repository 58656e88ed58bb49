"""Which roles of PostgreSQL a manager and `tenancy doctor` refuse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from stores.sql import Database, Statement
from tenancy import ConfigurationError
from tenancy.catalogue import row_security
from tenancy.catalogue.row_security import version_problem
from tenancy.schema import TENANT_TABLES
from tests.cli.conftest import Run
from tests.conftest import ManagerFactory
from tests.postgres import APP_ROLE, MAINTENANCE_ROLE, OWNER_ROLE, PostgresServer, as_admin, as_maintenance, as_owner

FORCED = [table.name for table in TENANT_TABLES]


def as_superuser(url: str, *statements: str) -> None:
    with psycopg.connect(as_admin(url).replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def make_manager(postgres_url: str, tmp_path: Path) -> Iterator[ManagerFactory]:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    factory = ManagerFactory(database_url=postgres_url, inline_bytes=0, folder=folder)
    yield factory
    factory.close()


WRONG: dict[str, tuple[str, str, str]] = {
    "a superuser": (f"ALTER ROLE {APP_ROLE} SUPERUSER", f"ALTER ROLE {APP_ROLE} NOSUPERUSER", "superuser"),
    "one who bypasses": (f"ALTER ROLE {APP_ROLE} BYPASSRLS", f"ALTER ROLE {APP_ROLE} NOBYPASSRLS", "BYPASSRLS"),
    "one who may become a superuser": (
        f"GRANT postgres TO {APP_ROLE}",
        f"REVOKE postgres FROM {APP_ROLE}",
        "superuser",
    ),
    "one who may become the owner": (
        f"GRANT {OWNER_ROLE} TO {APP_ROLE} WITH INHERIT FALSE",
        f"REVOKE {OWNER_ROLE} FROM {APP_ROLE}",
        "owns",
    ),
    "one who may become the maintenance role": (
        f"GRANT {MAINTENANCE_ROLE} TO {APP_ROLE} WITH INHERIT FALSE",
        f"REVOKE {MAINTENANCE_ROLE} FROM {APP_ROLE}",
        "every tenant's rows",
    ),
    "the owner of one table": (f"ALTER TABLE tenancy_limits OWNER TO {APP_ROLE}", "SELECT 1", "owns"),
    "the owner of the schema": (f"ALTER SCHEMA public OWNER TO {APP_ROLE}", "SELECT 1", "owns"),
    "a policy of somebody's": (
        "CREATE POLICY support ON tenancy_results USING (true)",
        "SELECT 1",
        "not haystack-tenancy's",
    ),
    "a policy that hides": (
        "CREATE POLICY support ON tenancy_results AS RESTRICTIVE USING (false)",
        "SELECT 1",
        "not haystack-tenancy's",
    ),
    "our policy in other words": (
        "ALTER POLICY tenancy_isolation ON tenancy_results USING (true)",
        "SELECT 1",
        "its policy as it was made",
    ),
    "our policy for whatever is written": (
        "ALTER POLICY tenancy_isolation ON tenancy_tenants WITH CHECK (true)",
        "SELECT 1",
        "its policy as it was made",
    ),
    "our policy gone": ("DROP POLICY tenancy_isolation ON tenancy_blobs", "SELECT 1", "its policy as it was made"),
    "the maintenance policy for all": (
        "ALTER POLICY tenancy_maintenance ON tenancy_results TO PUBLIC",
        "SELECT 1",
        "every tenant's rows",
    ),
    "one who runs programs on the server": (
        f"GRANT pg_execute_server_program TO {APP_ROLE}",
        f"REVOKE pg_execute_server_program FROM {APP_ROLE}",
        "superuser",
    ),
    "one who makes operators for others": (f"GRANT CREATE ON SCHEMA public TO {APP_ROLE}", "SELECT 1", "CREATE"),
    "everybody who makes operators for others": ("GRANT CREATE ON SCHEMA public TO PUBLIC", "SELECT 1", "CREATE"),
    "one who truncates": (f"GRANT ALL ON tenancy_results TO {APP_ROLE}", "SELECT 1", "TRUNCATE"),
    "one who has a tenant from the start": (
        f"ALTER ROLE {APP_ROLE} SET tenancy.tenant_id = '{'a' * 32}'",
        f"ALTER ROLE {APP_ROLE} RESET tenancy.tenant_id",
        "names a tenant",
    ),
}


@pytest.mark.case(67)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_runtime_role_that_the_wall_does_not_hold_back_is_refused(
    make_manager: ManagerFactory, run: Run, tmp_path: Path, wrong: str
) -> None:
    wreck, mend, message = WRONG[wrong]
    make_manager().close()
    as_superuser(make_manager.database_url, wreck)
    try:
        with pytest.raises(ConfigurationError, match=rf"^database_url: .*{message}"):
            make_manager()
        require_doctor_fails(run, make_manager, tmp_path, message)
    finally:
        as_superuser(make_manager.database_url, mend)
    assert make_manager.database_url.count(APP_ROLE) == 1


@pytest.mark.case(67)
@pytest.mark.parametrize("table", FORCED)
@pytest.mark.parametrize("wreck", ["NO FORCE ROW LEVEL SECURITY", "DISABLE ROW LEVEL SECURITY"])
def test_one_table_without_the_wall_is_enough_to_be_refused(
    make_manager: ManagerFactory, run: Run, tmp_path: Path, table: str, wreck: str
) -> None:
    as_superuser(make_manager.database_url, f"ALTER TABLE {table} {wreck}")
    with pytest.raises(ConfigurationError, match=r"^database_url: .*FORCE"):
        make_manager()
    if table == FORCED[-1]:
        require_doctor_fails(run, make_manager, tmp_path, "FORCE")


WRONG_MAINTENANCE: dict[str, tuple[str, str, str]] = {
    "a superuser": (
        f"ALTER ROLE {MAINTENANCE_ROLE} SUPERUSER",
        f"ALTER ROLE {MAINTENANCE_ROLE} NOSUPERUSER",
        "superuser",
    ),
    "one who reads keys": (f"GRANT SELECT ON tenancy_session_keys TO {MAINTENANCE_ROLE}", "SELECT 1", "wrapped keys"),
    "one who reads a check value": (
        f"GRANT SELECT (check_value) ON tenancy_root_keys TO {MAINTENANCE_ROLE}",
        "SELECT 1",
        "wrapped keys",
    ),
    "one who reads bytes": (f"GRANT SELECT (data) ON tenancy_blobs TO {MAINTENANCE_ROLE}", "SELECT 1", "sealed bytes"),
    "one who may become one who reads keys": (
        f"GRANT {APP_ROLE} TO {MAINTENANCE_ROLE} WITH INHERIT FALSE",
        f"REVOKE {APP_ROLE} FROM {MAINTENANCE_ROLE}",
        "wrapped keys",
    ),
    "one whose policy shows nothing": (
        "ALTER POLICY tenancy_maintenance ON tenancy_usage USING (false)",
        "SELECT 1",
        "not haystack-tenancy's",
    ),
    "one from whom rows are hidden": (
        f"CREATE POLICY support ON tenancy_results AS RESTRICTIVE TO {MAINTENANCE_ROLE} USING (false)",
        "SELECT 1",
        "not haystack-tenancy's",
    ),
    "one who makes operators for others": (
        f"GRANT CREATE ON SCHEMA public TO {MAINTENANCE_ROLE}",
        "SELECT 1",
        "CREATE",
    ),
    "one without its policies": ("DROP POLICY tenancy_maintenance ON tenancy_usage", "SELECT 1", "tenancy init"),
}


@pytest.mark.parametrize("wrong", WRONG_MAINTENANCE)
def test_a_maintenance_role_that_may_too_much_or_too_little_is_refused(
    make_manager: ManagerFactory, run: Run, tmp_path: Path, wrong: str
) -> None:
    wreck, mend, message = WRONG_MAINTENANCE[wrong]
    as_superuser(make_manager.database_url, wreck)
    try:
        with pytest.raises(ConfigurationError, match=rf"^maintenance_url: .*{message}"):
            make_manager()
        make_manager(maintenance_url=None)
        require_doctor_fails(run, make_manager, tmp_path, message)
    finally:
        as_superuser(make_manager.database_url, mend)


def test_the_runtime_role_in_the_place_of_the_maintenance_role_is_refused(make_manager: ManagerFactory) -> None:
    with pytest.raises(ConfigurationError, match=r"^maintenance_url"):
        make_manager(maintenance_url=make_manager.database_url)
    with pytest.raises(ConfigurationError, match=r"^database_url"):
        make_manager(database_url=as_maintenance(make_manager.database_url))
    with pytest.raises(ConfigurationError, match=r"^database_url: .*owns"):
        make_manager(database_url=as_owner(make_manager.database_url))
    with pytest.raises(ConfigurationError, match=r"^database_url: .*superuser"):
        make_manager(database_url=as_admin(make_manager.database_url))


def test_a_maintenance_role_in_another_database_is_refused(
    make_manager: ManagerFactory, postgres: PostgresServer, upgraded_template: str
) -> None:
    make_manager().close()
    other = postgres.create_database(template=upgraded_template)
    try:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"^maintenance_url: .*another database"):
                make_manager(maintenance_url=postgres.url(other, role=MAINTENANCE_ROLE))
            # Now it is a catalogue of its own.
            make_manager(database_url=postgres.url(other), maintenance_url=None).close()
    finally:
        postgres.drop_database(other)


def config_of(make_manager: ManagerFactory, folder: Path, **more: str) -> Path:
    config = folder / "tenancy.toml"
    values = {
        "database_url": make_manager.database_url,
        "maintenance_url": as_maintenance(make_manager.database_url),
        "store_url": f"file://{make_manager.results}",
        "keys": f"file:{make_manager.key_file}",
        **more,
    }
    config.write_text("".join(f'{name} = "{value}"\n' for name, value in values.items() if value))
    return config


def require_doctor_fails(run: Run, make_manager: ManagerFactory, folder: Path, message: str) -> None:
    report = run("doctor", "--config", config_of(make_manager, folder), "--output", "json")
    assert report.code == 1
    (found,) = [check for check in report.json["checks"] if check["name"] == "roles"]
    assert (found["status"], message in found["detail"]) == ("fail", True)
    assert "tenancy init" in found["advice"]


def test_doctor_says_that_the_roles_are_right_or_that_one_is_missing(
    run: Run, make_manager: ManagerFactory, tmp_path: Path
) -> None:
    def roles_check(**more: str) -> Any:
        report = run("doctor", "--config", config_of(make_manager, tmp_path, **more), "--output", "json").json
        return next(check for check in report["checks"] if check["name"] == "roles")

    make_manager()
    assert roles_check()["status"] == "ok"
    missing = roles_check(maintenance_url="")
    assert (missing["status"], "cleanup" in missing["detail"]) == ("warn", True)


def test_commands_across_tenants_say_which_role_they_miss(
    run: Run, make_manager: ManagerFactory, tmp_path: Path
) -> None:
    make_manager()
    config = config_of(make_manager, tmp_path, maintenance_url="")
    for command in (("cleanup",), ("verify",), ("sessions", "list")):
        ran = run(*command, "--config", config)
        assert (ran.code, "maintenance_url" in ran.err) == (2, True)
    assert run("sessions", "list", "--tenant", "acme", "--config", config).code == 0
    for command in (("init",), ("db", "upgrade")):
        ran = run(*command, "--config", config)
        assert (ran.code, "owner_url" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("version", "holes"),
    [(170005, True), (170006, False), (160009, True), (160010, False), (150013, True), (150014, False), (140018, True),
     (140019, False), (180000, False), (190000, False), (130023, True), (90624, True)],
)  # fmt: skip
def test_a_server_with_known_holes_in_row_level_security_is_named(
    make_manager: ManagerFactory, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, holes: bool
) -> None:
    make_manager()
    monkeypatch.setattr(row_security, "_VERSION", Statement(sa.text(f"SELECT {version}")))
    database = Database(make_manager.database_url)
    assert (version_problem(database) is not None) == holes
    database.close()
    if version == 170005:
        report = run("doctor", "--config", config_of(make_manager, tmp_path), "--output", "json")
        (found,) = [check for check in report.json["checks"] if check["name"] == "server"]
        assert (report.code, found["status"], "17.6" in found["detail"]) == (0, "warn", True)


@pytest.mark.parametrize("command", [("init",), ("db", "upgrade")])
def test_a_role_in_two_settings_is_refused_before_anything_is_migrated(
    run: Run, empty_postgres_url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'database_url = "{empty_postgres_url}"\nowner_url = "{empty_postgres_url}"\n'
        f'store_url = "database:"\nkeys = "file:{tmp_path}/keys.json"\n'
    )
    ran = run(*command, "--config", config)
    assert (ran.code, "different roles" in ran.err) == (2, True)
    with psycopg.connect(as_admin(empty_postgres_url).replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    assert list(tmp_path.iterdir()) == [config]
