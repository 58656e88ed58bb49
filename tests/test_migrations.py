"""The revisions: they build what the metadata says, can be undone, and never touch what is not ours."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tenancy.catalogue.row_security import MAINTENANCE_POLICY
from tenancy.errors import ConfigurationError, SchemaOutdated
from tenancy.roles import prepare_roles
from tenancy.schema import HEAD_REVISION, METADATA, VERSION_TABLE
from tenancy.upgrade import locked_for_migration, migrations_folder, upgrade
from tests.conftest import ManagerFactory
from tests.postgres import as_maintenance, as_owner
from tests.schema_dump import dump

CHECKOUT = Path(__file__).parent.parent


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """A connection that has nothing to do with the code under test; commits at the end."""
    engine = sa.create_engine(as_owner(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def dumped(url: str) -> dict[str, list[tuple[object, ...]]]:
    with connected(url) as connection:
        return dump(connection)


def table_names(url: str) -> set[str]:
    with connected(url) as connection:
        return set(sa.inspect(connection).get_table_names())


def revisions() -> list[str]:
    """All revisions, the oldest first."""
    return [script.revision for script in reversed(list(ScriptDirectory(migrations_folder()).walk_revisions()))]


def alembic(url: str, run: Callable[[Config], object]) -> None:
    """Run one of alembic's commands in the transaction that may migrate."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with locked_for_migration(url) as connection:
        config.attributes["connection"] = connection
        run(config)


def test_the_revisions_build_the_very_schema_that_the_metadata_builds(
    empty_database_url: str, database_url: str, database_kind: str
) -> None:
    # On SQLite both fixtures name one file; here they have to be two databases.
    from_metadata = f"{empty_database_url}-metadata" if database_kind == "sqlite" else empty_database_url
    with connected(from_metadata) as connection:
        METADATA.create_all(connection)

    built, migrated = dumped(from_metadata), dumped(database_url)
    if database_kind == "postgresql":
        # Who the maintenance role is, only an installation knows.
        migrated["policies"] = [policy for policy in migrated["policies"] if policy[1] != MAINTENANCE_POLICY]

    assert migrated == built
    assert sum(len(rows) for rows in migrated.values()) >= len(METADATA.tables)


def test_alembic_finds_nothing_left_to_generate(database_url: str) -> None:
    options = {"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE}
    with connected(database_url) as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []


def test_sealed_bytes_are_kept_uncompressed_and_counters_have_room_beside_them(postgres_url: str) -> None:
    with connected(postgres_url) as connection:
        storage = connection.scalar(
            sa.text(
                "SELECT attstorage::text FROM pg_attribute"
                " WHERE attrelid = 'tenancy_blobs'::regclass AND attname = 'data'"
            )
        )
        options = connection.scalar(sa.text("SELECT reloptions FROM pg_class WHERE oid = 'tenancy_usage'::regclass"))
    assert (storage, options) == ("e", ["fillfactor=50"])


def test_every_revision_can_be_undone_and_done_again(empty_database_url: str, database_kind: str) -> None:
    history = [dumped_after(empty_database_url, "base")]
    for revision in revisions():
        history.append(dumped_after(empty_database_url, revision))
        # Row-level security, which SQLite has not.
        changes_nothing = database_kind == "sqlite" and revision == "0002"
        assert (history[-1] == history[-2]) == changes_nothing

    for index in range(len(history) - 2, -1, -1):
        alembic(empty_database_url, lambda config: command.downgrade(config, "-1"))
        assert dumped(empty_database_url) == history[index]

    assert table_names(empty_database_url) == {VERSION_TABLE}
    upgrade(empty_database_url)
    assert dumped(empty_database_url) == history[-1]


def dumped_after(url: str, revision: str) -> dict[str, list[tuple[object, ...]]]:
    alembic(url, lambda config: command.upgrade(config, revision) if revision != "base" else None)
    return dumped(url)


def test_the_newest_revision_is_the_one_the_code_works_with() -> None:
    scripts = ScriptDirectory(migrations_folder())
    assert scripts.get_heads() == [HEAD_REVISION]


def test_revisions_count_up_in_four_digits_one_after_the_other() -> None:
    # This is what lets `require_current` tell older from newer without alembic.
    found = revisions()
    assert found == [f"{number:04}" for number in range(1, len(found) + 1)]


def test_every_one_of_our_tables_has_our_prefix() -> None:
    assert all(name.startswith("tenancy_") for name in [*METADATA.tables, VERSION_TABLE])


def test_a_host_applications_tables_and_version_stay_as_they_are(empty_database_url: str) -> None:
    with connected(empty_database_url) as connection:
        for statement in (
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(20))",
            "CREATE INDEX ix_users_name ON users (name)",
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
            "INSERT INTO alembic_version VALUES ('their-own')",
            "INSERT INTO users VALUES (1, 'theirs')",
        ):
            connection.exec_driver_sql(statement)
    before = dumped(empty_database_url)

    upgrade(empty_database_url)
    # With a host's tables beside ours, autogenerate still proposes nothing: `check` raises otherwise.
    alembic(empty_database_url, command.check)
    alembic(empty_database_url, lambda config: command.downgrade(config, "base"))

    assert dumped(empty_database_url) == before
    with connected(empty_database_url) as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "their-own"
        assert connection.scalar(sa.text("SELECT name FROM users")) == "theirs"


def test_autogenerate_sees_what_is_wrong_with_our_own_tables(database_url: str) -> None:
    with connected(database_url) as connection:
        connection.exec_driver_sql("DROP INDEX ix_tenancy_results_expires")
    with pytest.raises(Exception, match="ix_tenancy_results_expires"):
        alembic(database_url, command.check)


def run_alembic(*arguments: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(CHECKOUT / "alembic.ini"), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_alembics_own_command_works_from_a_checkout(empty_database_url: str, tmp_path: Path) -> None:
    up = run_alembic("-x", f"url={empty_database_url}", "upgrade", "head", folder=tmp_path)
    assert up.returncode == 0, up.stderr

    current = run_alembic("current", folder=tmp_path, HAYSTACK_TENANCY_DATABASE_URL=empty_database_url)
    assert current.stdout.split() == [HEAD_REVISION, "(head)"]

    down = run_alembic("downgrade", "base", folder=tmp_path, HAYSTACK_TENANCY_DATABASE_URL=empty_database_url)
    assert down.returncode == 0, down.stderr
    assert table_names(empty_database_url) == {VERSION_TABLE}


def test_alembics_own_command_writes_the_statements_down_instead(empty_postgres_url: str, tmp_path: Path) -> None:
    printed = run_alembic("-x", f"url={empty_postgres_url}", "upgrade", "head", "--sql", folder=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert table_names(empty_postgres_url) == set()

    with connected(empty_postgres_url) as connection:
        connection.exec_driver_sql(printed.stdout.replace("BEGIN;", "").replace("COMMIT;", ""))
    assert table_names(empty_postgres_url) == {*METADATA.tables, VERSION_TABLE}


def test_alembics_own_command_without_a_url_says_what_one_looks_like(tmp_path: Path) -> None:
    refused = run_alembic("upgrade", "head", folder=tmp_path, HAYSTACK_TENANCY_DATABASE_URL="")
    assert refused.returncode != 0
    assert f"{ConfigurationError.__name__}: database_url: A database URL looks like" in refused.stderr


def test_what_was_stored_before_row_level_security_is_read_behind_it(postgres_url: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    make_manager = ManagerFactory(database_url=postgres_url, inline_bytes=32768, folder=tmp_path)
    with make_manager() as manager:
        reference = manager.session(tenant="acme", user="ann").write("kept")
    alembic(as_owner(postgres_url), lambda config: command.downgrade(config, "0001"))
    with pytest.raises(SchemaOutdated, match="older"):
        make_manager()
    upgrade(as_owner(postgres_url))
    # The maintenance role's policies went with the rest, and come back with its rights.
    with pytest.raises(ConfigurationError, match="maintenance_url"):
        make_manager()
    prepare_roles(as_owner(postgres_url), database_url=postgres_url, maintenance_url=as_maintenance(postgres_url))
    with make_manager() as manager:
        assert manager.session(tenant="acme", user="ann").read(reference) == "kept"
        assert manager.verify().checked_results == 1
