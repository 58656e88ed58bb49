"""Bringing a database to the schema: once, by one process, or not at all; and knowing where it stands."""

import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from stores.connections import create_sqlite_file
from stores.sql import Database
from tenancy.errors import AlreadyRunning, ConfigurationError, SchemaOutdated, StorageUnavailable, TenancyError
from tenancy.schema import METADATA, VERSION_TABLE
from tenancy.upgrade import check, locked_for_migration, require_current, upgrade, upgrade_if_empty
from tests.postgres import PostgresServer, as_admin, as_owner

_PROCESSES = 12
_UNREACHABLE = "postgresql+psycopg://owner:hunter2@127.0.0.1:1/customers"
#: Says when it is about to start, so that all start together, and what alembic reports.
_UPGRADING_PROCESS = """
import logging, sys
import alembic.command
from tenancy.upgrade import upgrade
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
print("ready", flush=True)
upgrade(sys.stdin.readline().strip())
"""


def require(url: str) -> None:
    with closing(Database(url)) as database:
        require_current(database)


def table_names(url: str) -> set[str]:
    engine = sa.create_engine(url)
    try:
        return set(sa.inspect(engine).get_table_names())
    finally:
        engine.dispose()


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(as_admin(url))
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions hold back everybody but root, which is who runs the tests in many a container."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.slow
def test_twelve_processes_at_once_all_succeed_and_one_does_the_work(empty_database_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _UPGRADING_PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for _ in range(_PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{empty_database_url}\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, outputs, strict=True)] == [
        (0, "")
    ] * _PROCESSES
    assert sum("Running upgrade" in output for output, _ in outputs) == 1
    require(empty_database_url)


def test_twelve_threads_upgrade_twelve_databases_of_one_process(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / str(number)}" for number in range(_PROCESSES)]
    failures: list[BaseException] = []

    def run(url: str) -> None:
        try:
            upgrade(url)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(url,), daemon=True) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    for url in urls:
        require(url)


def test_an_upgrade_waits_for_another_one_and_then_succeeds(empty_database_url: str) -> None:
    waiting = threading.Thread(target=upgrade, args=(empty_database_url,), daemon=True)
    with locked_for_migration(empty_database_url):
        waiting.start()
        waiting.join(0.4)
        assert waiting.is_alive()
        assert not METADATA.tables.keys() & table_names(empty_database_url)
    waiting.join(60)

    assert not waiting.is_alive()
    require(empty_database_url)


def test_an_upgrade_that_waited_long_enough_says_who_is_in_the_way(empty_database_url: str) -> None:
    with (
        locked_for_migration(empty_database_url),
        pytest.raises(AlreadyRunning, match=r"^Another migration.* Nothing was changed\.$"),
    ):
        upgrade(empty_database_url, wait_seconds=0.2)
    assert table_names(empty_database_url) == set()


def test_a_current_schema_is_left_alone_without_waiting_for_anybody(database_url: str) -> None:
    with locked_for_migration(database_url):
        upgrade(database_url, wait_seconds=0)
    require(database_url)


def test_on_postgresql_an_upgrade_keeps_no_writer_waiting(postgres_url: str) -> None:
    with locked_for_migration(postgres_url):
        execute(postgres_url, "SET lock_timeout = 100", "INSERT INTO tenancy_catalogue VALUES (1, 'x', 0, NULL)")
    require(postgres_url)


def test_an_upgrade_that_fails_leaves_nothing_behind(empty_database_url: str) -> None:
    execute(empty_database_url, "CREATE TABLE tenancy_blobs (in_the_way INTEGER)")

    with pytest.raises(StorageUnavailable):
        upgrade(empty_database_url)

    assert table_names(empty_database_url) == {"tenancy_blobs"}


@pytest.mark.parametrize("ask", [check, require], ids=["check", "require_current"])
class TestWhereASchemaStands:
    def test_a_current_one_is_fine(self, database_url: str, ask: Callable[[str], None]) -> None:
        assert ask(database_url) is None

    def test_an_empty_database_says_to_run_init(self, empty_database_url: str, ask: Callable[[str], None]) -> None:
        with pytest.raises(SchemaOutdated, match=r"holds no catalogue yet\. Run `tenancy init`"):
            ask(empty_database_url)
        assert table_names(empty_database_url) == set()

    def test_a_missing_file_says_so_too_and_is_not_made(
        self, empty_sqlite_url: str, tmp_path: Path, ask: Callable[[str], None]
    ) -> None:
        with pytest.raises(SchemaOutdated, match=r"holds no catalogue yet\. Run `tenancy init`"):
            ask(empty_sqlite_url)
        assert list(tmp_path.iterdir()) == []

    def test_one_that_was_taken_down_counts_as_empty(self, database_url: str, ask: Callable[[str], None]) -> None:
        execute(database_url, f"DELETE FROM {VERSION_TABLE}")
        with pytest.raises(SchemaOutdated, match="holds no catalogue yet"):
            ask(database_url)

    def test_an_older_one_says_to_upgrade_the_database(self, database_url: str, ask: Callable[[str], None]) -> None:
        execute(database_url, f"UPDATE {VERSION_TABLE} SET version_num = '0000'")
        with pytest.raises(SchemaOutdated, match=r"older than this version .* Run `tenancy db upgrade`\.$"):
            ask(database_url)

    @pytest.mark.parametrize("revision", ["9999", "5f2c1d9a7b30", "00000"])
    def test_a_newer_or_unknown_one_says_to_upgrade_the_code(
        self, database_url: str, revision: str, ask: Callable[[str], None]
    ) -> None:
        execute(database_url, f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
        with pytest.raises(SchemaOutdated, match=r"newer than this version .* Upgrade the code\.$"):
            ask(database_url)

    def test_two_revisions_at_once_are_nothing_this_version_wrote(
        self, database_url: str, ask: Callable[[str], None]
    ) -> None:
        execute(database_url, f"INSERT INTO {VERSION_TABLE} VALUES ('0001')")
        with pytest.raises(SchemaOutdated, match="Upgrade the code"):
            ask(database_url)


def test_only_an_empty_database_is_filled_unasked(empty_database_url: str) -> None:
    upgrade_if_empty(empty_database_url)
    require(empty_database_url)

    execute(empty_database_url, f"UPDATE {VERSION_TABLE} SET version_num = '0000'")
    upgrade_if_empty(empty_database_url)
    with pytest.raises(SchemaOutdated, match="older"):
        require(empty_database_url)


def test_a_newer_schema_is_not_upgraded(database_url: str) -> None:
    execute(database_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    before = table_names(database_url)
    with pytest.raises(SchemaOutdated, match="Upgrade the code"):
        upgrade(as_owner(database_url))
    assert table_names(database_url) == before


def test_opening_a_catalogue_never_loads_alembic(sqlite_url: str) -> None:
    program = f"import sys, tenancy.upgrade as u; u.upgrade({sqlite_url!r}); sys.exit('alembic' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent, check=False).returncode == 0
    )


def test_a_new_file_is_readable_by_its_owner_only_under_any_umask(empty_sqlite_url: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        upgrade(empty_sqlite_url)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://owner:hunter2@localhost/app",
        "postgresql://owner:hunter2@localhost/app",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
@pytest.mark.parametrize("call", [upgrade, check])
def test_a_url_of_another_kind_is_refused_without_showing_it(url: str, call: Callable[[str], None]) -> None:
    with pytest.raises(ConfigurationError, match=r"^database_url: A database URL looks like sqlite:///PATH") as caught:
        call(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_directory_that_is_missing_or_not_writable_is_refused() -> None:
    # Not below `tmp_path`, which is closed as a whole to anybody but the user who runs the tests.
    with tempfile.TemporaryDirectory() as name:
        outer = Path(name)
        outer.chmod(0o755)
        (outer / "closed").mkdir(mode=0o555)
        (outer / "open").mkdir()
        (outer / "open").chmod(0o777)
        # Loads alembic, too, while this process may still read where it is installed.
        upgrade(f"sqlite:///{outer / 'open' / 'catalogue.sqlite3'}")
        with unprivileged():
            assert os.access(outer / "open", os.W_OK, effective_ids=True)
            for folder in (outer / "closed", outer / "missing", Path(__file__)):
                with pytest.raises(ConfigurationError, match="directory of the SQLite file is missing or not writable"):
                    upgrade(f"sqlite:///{folder / 'catalogue.sqlite3'}")
        assert list((outer / "closed").iterdir()) == []


def test_a_path_with_something_else_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a file this process may write"):
        upgrade(f"sqlite:///{tmp_path}")

    (tmp_path / "text").write_text("Dear diary, this is no database. " * 100)
    with pytest.raises(ConfigurationError, match="damaged or is not a SQLite database"):
        upgrade(f"sqlite:///{tmp_path / 'text'}")
    assert (tmp_path / "text").read_text().startswith("Dear diary")


def test_an_odd_path_is_a_path_like_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "100 % sure?#&=ü"
    folder.mkdir()
    database = Database(str(sa.URL.create("sqlite", database=str(folder / "a b.sqlite3"))))
    database.close()
    upgrade(database.url.render_as_string(hide_password=False))
    assert [path.name for path in folder.iterdir()] == ["a b.sqlite3"]


def test_a_role_that_may_not_make_tables_is_told_so(postgres: PostgresServer, empty_postgres_url: str) -> None:
    database = sa.make_url(empty_postgres_url).database or ""
    execute(postgres.admin_url(database), "ALTER SCHEMA public OWNER TO postgres")
    with pytest.raises(ConfigurationError, match="role may not do this"):
        upgrade(empty_postgres_url)
    assert table_names(empty_postgres_url) == set()


@pytest.mark.parametrize("call", [upgrade, check])
def test_an_unreachable_server_is_unavailable_and_its_password_is_nowhere(
    call: Callable[[str], None], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StorageUnavailable) as caught:
        call(_UNREACHABLE)

    shown = "".join([*traceback.format_exception(caught.value), caplog.text, *capfd.readouterr()])
    assert caught.value.retryable
    assert not any(secret in shown for secret in ("hunter2", "owner:", "customers"))


def test_an_upgrade_says_nothing_of_where_and_leaves_logging_as_it_is(
    empty_database_url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    hosts = logging.getLogger("a.host.application")
    root = logging.getLogger()
    before = (root.level, list(root.handlers), hosts.disabled, logging.getLogger("alembic").level)
    caplog.set_level(logging.DEBUG)

    upgrade(empty_database_url)

    caplog.set_level(before[0])
    assert (root.level, list(root.handlers), hosts.disabled, logging.getLogger("alembic").level) == before
    assert "Running upgrade" in caplog.text
    # The path of the file, or the folder of the socket.
    assert str(Path(empty_database_url.split("/", 3)[3]).parent) not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_upgraded_raises_errors_of_ours_only(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    for url in ("", f"sqlite:///{tmp_path}", f"sqlite:///{tmp_path / 'text'}", "postgresql+psycopg://127.0.0.1:1/x"):
        with pytest.raises(TenancyError) as caught:
            upgrade(url)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_whatever_stands_in_the_place_of_a_sqlite_file_is_left_alone(tmp_path: Path) -> None:
    target, missing = tmp_path / "target", tmp_path / "missing"
    target.write_bytes(b"of somebody else")
    target.chmod(0o640)
    for number, place in enumerate((target, missing)):
        link = tmp_path / f"link-{number}"
        link.symlink_to(place)
        create_sqlite_file(link)
        assert link.is_symlink()
    create_sqlite_file(target)
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"of somebody else", 0o640)
    assert not missing.exists()
