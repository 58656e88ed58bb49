"""`SessionManager.local`: one private directory, made at once or refused in one sentence with nothing changed."""

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenancy import (
    ConfigurationError,
    Lifetime,
    Limits,
    SchemaOutdated,
    SessionManager,
    StorageFull,
    StorageUnavailable,
    TenancyError,
)
from tenancy.keys.keyring import Keyring
from tenancy.keys.providers import create_key_file
from tests.stores.files import record_syncs

WHO = {"tenant": "acme", "user": "ann"}


def listed(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a folder: modes and contents."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def used(folder: Path) -> str:
    """A directory with something in it; the reference of a small result, and there is a large one."""
    with SessionManager.local(folder) as manager:
        session = manager.session(**WHO)
        session.write(b"x" * 50_000)
        return session.write("kept")


@pytest.fixture(params=[0o000, 0o077, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.case(22, 92)
def test_everything_is_private_under_any_umask(folder: Path, umask: int) -> None:
    with SessionManager.local(folder) as manager:
        session = manager.session(**WHO)
        session.write("small")
        session.write(b"x" * 50_000)
        modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [folder, *folder.rglob("*")]}
    assert {path.name for path in modes} >= {"catalogue.sqlite3", "catalogue.sqlite3-wal", "keys.json", "results"}
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path.name


def test_what_was_written_is_there_when_the_directory_is_opened_again(folder: Path, used: str) -> None:
    for durability in ("power", "process"):
        with SessionManager.local(folder, durability=durability, inline_bytes=0) as manager:
            session = manager.session(**WHO)
            assert session.read(used) == "kept"
            assert len(list(session.results())) == 2


@pytest.mark.parametrize("is_new", [True, False])
def test_the_directory_itself_survives_power_loss_where_its_contents_are_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        folder.mkdir(mode=0o700)
    synced = record_syncs(monkeypatch)
    SessionManager.local(folder, durability="process").close()
    assert folder.parent.stat().st_ino not in synced
    SessionManager.local(folder).close()
    assert folder.parent.stat().st_ino in synced


def test_a_directory_that_cannot_be_made_safe_is_no_place_for_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageUnavailable):
        SessionManager.local(folder)
    assert os.listdir(folder) == []


def test_twelve_threads_that_open_one_fresh_directory_share_one_catalogue_and_one_key(folder: Path) -> None:
    ready = threading.Barrier(12)

    def use(number: int) -> str:
        ready.wait()
        with SessionManager.local(folder, durability="process") as manager:
            return manager.session(**WHO).write(f"from {number}")

    with ThreadPoolExecutor(12) as pool:
        references = list(pool.map(use, range(12)))
    with SessionManager.local(folder) as manager:
        session = manager.session(**WHO)
        assert [session.read(reference) for reference in references] == [f"from {number}" for number in range(12)]
        assert manager.verify().ok


OPEN = """
import sys
from tenancy import SessionManager
print("ready", flush=True)
sys.stdin.readline()
with SessionManager.local(sys.argv[1], durability="process") as manager:
    session = manager.session(tenant="acme", user="ann")
    print(session.write(sys.argv[2]), flush=True)
"""


@pytest.mark.slow
def test_twelve_processes_that_open_one_fresh_directory_share_one_catalogue_and_one_key(folder: Path) -> None:
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(folder), f"from {number}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(12)
    ]  # fmt: skip
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    references = [opener.communicate(timeout=100)[0].strip() for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * 12
    with SessionManager.local(folder) as manager:
        session = manager.session(**WHO)
        assert [session.read(reference) for reference in references] == [f"from {number}" for number in range(12)]
        assert manager.verify().ok


def lose_the_key_file(folder: Path) -> None:
    (folder / "keys.json").unlink()


def lose_key_file_and_catalogue(folder: Path) -> None:
    lose_the_key_file(folder)
    lose_the_catalogue(folder)


def lose_the_catalogue(folder: Path) -> None:
    for path in folder.glob("catalogue.sqlite3*"):
        path.unlink()


def let_all_read_the_key_file(folder: Path) -> None:
    (folder / "keys.json").chmod(0o644)


def take_another_key_file(folder: Path) -> None:
    lose_the_key_file(folder)
    create_key_file(folder / "keys.json")


def break_the_key_file(folder: Path) -> None:
    (folder / "keys.json").write_text("{}")


def empty_the_key_file(folder: Path) -> None:
    (folder / "keys.json").write_text("")


def link_the_key_file(folder: Path) -> None:
    (folder / "keys.json").rename(folder.parent / "elsewhere.json")
    (folder / "keys.json").symlink_to(folder.parent / "elsewhere.json")


def let_all_read_the_directory(folder: Path) -> None:
    folder.chmod(0o755)


def let_all_read_the_results(folder: Path) -> None:
    (folder / "results").chmod(0o750)


def link_the_results(folder: Path) -> None:
    (folder / "results").rename(folder.parent / "elsewhere")
    (folder / "results").symlink_to(folder.parent / "elsewhere")


def put_a_file_for_the_results(folder: Path) -> None:
    shutil.rmtree(folder / "results")
    (folder / "results").write_text("not a directory")


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (lose_the_key_file, "key file"),
    (lose_key_file_and_catalogue, "key file"),
    (lose_the_catalogue, "catalogue"),
    (let_all_read_the_key_file, "key file"),
    (take_another_key_file, "not the one this catalogue was made with"),
    (break_the_key_file, "key"),
    (empty_the_key_file, "key"),
    (link_the_key_file, "key"),
    (let_all_read_the_directory, "chmod 700"),
    (let_all_read_the_results, "0700"),
    (link_the_results, "symbolic link"),
    (put_a_file_for_the_results, "directory"),
]


@pytest.mark.parametrize(("damage", "word"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_a_directory_that_is_not_as_it_was_is_refused_in_one_sentence_and_left_alone(
    folder: Path, used: str, damage: Callable[[Path], None], word: str
) -> None:
    damage(folder)
    before = listed(folder)
    for _ in range(2):
        with pytest.raises(ConfigurationError) as refusal:
            SessionManager.local(folder)
        message = str(refusal.value)
        assert word in message
        assert message.endswith((".", str(folder))) or message.startswith("The data directory")
        assert "\n" not in message
        assert refusal.value.__cause__ is None
        after = listed(folder)
        # An open SQLite catalogue has a log and its index for as long as it is open.
        assert {name: found for name, found in after.items() if not name.endswith(("-wal", "-shm"))} == {
            name: found for name, found in before.items() if not name.endswith(("-wal", "-shm"))
        }


def test_a_directory_of_another_user_is_refused_and_left_alone(
    folder: Path, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listed(folder)
    with monkeypatch.context() as patch:
        # Whoever runs the tests may not give a directory away, but may take itself for somebody else.
        mine = os.geteuid()
        patch.setattr(os, "geteuid", lambda: mine + 1)
        with pytest.raises(ConfigurationError, match=r"^The data directory .* belongs to another user"):
            SessionManager.local(folder)
    assert listed(folder) == before


def test_a_link_to_a_directory_is_refused(folder: Path, used: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(ConfigurationError, match="links are not followed"):
        SessionManager.local(link)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError):
        SessionManager.local(dangling)
    assert not (tmp_path / "nowhere").exists()


def test_a_place_where_nothing_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "data", tmp_path / "missing" / "data", Path("/proc/data")):
        with pytest.raises(ConfigurationError) as refusal:
            SessionManager.local(place)
        assert str(place) in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


UNPRIVILEGED = """
import os, sys
from tenancy import ConfigurationError, SessionManager
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    SessionManager.local(sys.argv[1])
except ConfigurationError as error:
    print(error)
"""


def test_a_directory_that_cannot_be_written_is_refused_and_left_alone(tmp_path: Path) -> None:
    # Root may write everywhere, so somebody else tries.
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o755)
        locked = place / "locked"
        locked.mkdir(mode=0o500)
        if os.geteuid() == 0:
            os.chown(locked, 65534, 65534)
        for wanted in (locked, locked / "data"):
            ran = subprocess.run(
                [sys.executable, "-c", UNPRIVILEGED, str(wanted)], capture_output=True, text=True, check=False
            )
            assert ran.stdout.count("\n") == 1, ran.stderr
            assert "writable" in ran.stdout
        assert list(locked.iterdir()) == []
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize(
    "wrong",
    [
        {"durability": "forever"},
        {"durability": None},
        {"inline_bytes": -1},
        {"inline_bytes": 1.5},
        {"inline_bytes": True},
        {"compression": "gzip"},
        {"compression": None},
        {"compression": True},
        {"limits": {"user_bytes": 1}},
        {"lifetime": 3600},
    ],
    ids=str,
)
def test_a_setting_that_is_wrong_is_refused_before_anything_is_made(
    folder: Path, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SessionManager.local(folder, **wrong)
    assert next(iter(wrong)) in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_negative_limit_is_refused_before_anything_is_made(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        SessionManager.local(folder, limits=Limits(user_bytes=-1))
    assert list(tmp_path.iterdir()) == []


def test_limits_and_lifetime_of_the_manager_are_what_a_session_gets(folder: Path) -> None:
    limits, lifetime = Limits(max_result_bytes=5), Lifetime(idle=timedelta(minutes=1))
    with SessionManager.local(folder, limits=limits, lifetime=lifetime) as manager:
        session = manager.session(**WHO)
        assert session.usage().max_result_bytes == 5
        manager.clock.advance(timedelta(minutes=1))
        assert list(manager.sessions()) == []


@pytest.mark.parametrize("revision", ["0000", "9999"])
def test_an_older_or_newer_catalogue_is_refused_and_left_alone(folder: Path, used: str, revision: str) -> None:
    with closing(sqlite3.connect(folder / "catalogue.sqlite3")) as connection:
        connection.execute("UPDATE tenancy_alembic_version SET version_num = ?", (revision,))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = listed(folder)
    with pytest.raises(SchemaOutdated) as refusal:
        SessionManager.local(folder)
    assert ("older" if revision == "0000" else "newer") in str(refusal.value)
    after = listed(folder)
    assert {name: after[name] for name in before if not name.endswith(("-wal", "-shm"))} == {
        name: before[name] for name in before if not name.endswith(("-wal", "-shm"))
    }


def test_what_was_interrupted_while_it_was_made_is_finished_the_next_time(folder: Path) -> None:
    # A key file and nothing else; then an empty catalogue, too.
    folder.mkdir(mode=0o700)
    create_key_file(folder / "keys.json")
    key = (folder / "keys.json").read_bytes()
    (folder / "catalogue.sqlite3").touch(mode=0o600)
    with SessionManager.local(folder) as manager:
        session = manager.session(**WHO)
        assert session.read(session.write("x")) == "x"
    assert (folder / "keys.json").read_bytes() == key


def test_a_copy_of_the_key_that_a_killed_start_left_is_removed_by_the_next_one(folder: Path, used: str) -> None:
    # Killed between the link that gives the key file its name and the removal of the first name.
    os.link(folder / "keys.json", folder / f".keys.json.{'0f' * 8}")
    # Killed before that link, with a key that nobody uses.
    (folder / f".keys.json.{'1e' * 8}").write_bytes(b"{}")
    others = [".keys.json.backup", ".keys.json.0f0f", f"keys.json.{'0f' * 8}"]
    for name in others:
        (folder / name).write_bytes(b"of somebody else")
    with SessionManager.local(folder) as manager:
        assert manager.session(**WHO).read(used) == "kept"
    assert sorted(path.name for path in folder.iterdir() if "keys.json" in path.name) == sorted(["keys.json", *others])


@pytest.mark.parametrize("look", ["lstat", "exists"])
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (errno.EMFILE, StorageUnavailable),
        (errno.EIO, StorageUnavailable),
        (errno.EINTR, StorageUnavailable),
        (errno.ENOSPC, StorageFull),
        (errno.EACCES, ConfigurationError),
    ],
)
def test_a_start_that_cannot_even_look_at_its_files_says_so_in_our_words(
    folder: Path, used: str, monkeypatch: pytest.MonkeyPatch, look: str, code: int, answer: type[TenancyError]
) -> None:
    real = getattr(Path, look)
    calls = 0

    def count(path: Path) -> Any:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(code, os.strerror(code), "/a/path/that/nobody/must/see")
        return real(path)

    fails_at = 0
    monkeypatch.setattr(Path, look, count)
    SessionManager.local(folder).close()
    looks = calls
    assert looks > 1
    for fails_at in range(1, looks + 1):  # noqa: B007 - read by `count`
        calls = 0
        with pytest.raises(answer) as refusal:
            SessionManager.local(folder)
        assert type(refusal.value) is answer
        assert "nobody/must/see" not in str(refusal.value)
    fails_at = 0
    with SessionManager.local(folder) as manager:
        assert manager.session(**WHO).read(used) == "kept"


def test_a_refused_start_leaves_no_key_in_memory(folder: Path, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    close = Keyring.close

    def noticed(self: Any) -> None:
        closed.append(1)
        close(self)

    monkeypatch.setattr("tenancy.keys.keyring.Keyring.close", noticed)

    def fail(*_: object, **__: object) -> None:
        raise TenancyError("no")

    for step in ("upgrade_if_empty", "require_schema", "require_key", "Database"):
        with monkeypatch.context() as patch:
            patch.setattr(f"tenancy.startup.{step}", fail)
            closed.clear()
            with pytest.raises(TenancyError):
                SessionManager.local(folder)
            assert closed == [1], step
