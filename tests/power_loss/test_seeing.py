"""Whatever is wrong in a data directory is seen: a look that sees nothing would find no state broken."""

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenancy import SessionManager
from tenancy.verify import VerifyReport
from tests.power_loss.promises import Promises, Seen, faults
from tests.power_loss.scenarios import ANN, DATA, FILE, SCENARIOS
from tests.power_loss.seeing import digest_of, see


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Promises]:
    """Three sessions with two results each, and what is promised of them."""
    folder = tmp_path_factory.mktemp("furnished")
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == "delete file"]
    return folder / DATA, scenario.prepare(folder)


@pytest.fixture
def data(furnished: tuple[Path, Promises], tmp_path: Path) -> Path:
    return Path(shutil.copytree(furnished[0], tmp_path / DATA))


@pytest.fixture
def promises(furnished: tuple[Path, Promises]) -> Promises:
    return furnished[1]


def looked(data: Path, promises: Promises) -> Seen:
    return see(data, keys=promises.keys, offset_us=0)


def run(statement: str) -> Callable[[Path], None]:
    def do(data: Path) -> None:
        with closing(sqlite3.connect(data / "catalogue.sqlite3")) as catalogue, catalogue:
            catalogue.execute(statement)

    return do


def files(data: Path) -> Iterator[Path]:
    return (path for path in sorted((data / "results").rglob("*")) if path.is_file())


def cut(data: Path) -> None:
    os.truncate(next(files(data)), 39_000)


def fill_with_zeros(data: Path) -> None:
    file = next(files(data))
    file.write_bytes(bytes(file.stat().st_size))


def make_room(data: Path) -> None:
    (next(files(data)).parents[1] / ("a" * 32)).mkdir(mode=0o700)


def test_what_is_as_it_should_be_keeps_every_promise(data: Path, promises: Promises) -> None:
    seen = looked(data, promises)
    assert seen == Seen(read=promises.kept)
    assert sorted(seen.read.values()) == sorted([digest_of("a small result"), digest_of(FILE)] * 3)
    assert faults(promises, seen, all_there=True) == []
    # To have looked changes nothing of it.
    assert looked(data, promises) == seen


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (cut, "stored is ResultCorrupt"),
        (fill_with_zeros, "stored is ResultCorrupt"),
        (cut, "Verify finds damaged"),
        (lambda data: next(files(data)).unlink(), "stored is ResultCorrupt"),
        (lambda data: next(files(data)).unlink(), "A row has no bytes"),
        (run("UPDATE tenancy_usage SET used_bytes = used_bytes + 1"), "Usage is not the sum of the rows"),
        (run("UPDATE tenancy_usage SET results = results - 1 WHERE sessions = 0"), "Usage is not the sum of the rows"),
        (run("DELETE FROM tenancy_blobs WHERE rowid = 1"), "Rows and blobs differ"),
        (run("UPDATE tenancy_results SET state = 'deleting', lease_until_us = 9e15"), "are left with state"),
        (run("UPDATE tenancy_sessions SET state = 'ended', claimed_until_us = 9e15"), "tenancy_sessions are left"),
        (run("DELETE FROM tenancy_results"), "stored is lost"),
        (run("DELETE FROM tenancy_results"), "files have no row"),
        (run("DELETE FROM tenancy_session_keys"), "stored is lost"),
        (make_room, "A directory belongs to no session"),
        (lambda data: (data / "catalogue.sqlite3").unlink(), "does not open: ConfigurationError"),
        (lambda data: (data / "keys.json").unlink(), "does not open: ConfigurationError"),
        (lambda data: (data / "catalogue.sqlite3").write_bytes(b"x" * 5000), "does not open"),
        (run("DROP TABLE tenancy_limits"), "Working in it raises"),
        (shutil.rmtree, "stored is lost"),
        (lambda data: (data / "stray").touch(), "A file stray is left"),
    ],
)
def test_what_is_wrong_is_seen(data: Path, promises: Promises, do: Callable[[Path], None], said: str) -> None:
    do(data)
    assert said in "\n".join(faults(promises, looked(data, promises), all_there=True))


def test_a_file_without_a_row_is_counted_and_no_fault_of_its_own(data: Path, promises: Promises) -> None:
    known = next(files(data))
    shutil.copy(known, known.with_name("a" * 32))
    seen = looked(data, promises)
    assert seen == Seen(read=promises.kept, unknown_files=1)
    assert faults(promises, seen, all_there=False) == ["1 files have no row"]


def test_what_has_expired_is_not_read(data: Path, promises: Promises) -> None:
    month_us = 31 * 24 * 3600 * 1_000_000
    assert see(data, keys=promises.keys, offset_us=month_us) == Seen()
    assert list(files(data)) == []


def test_a_result_that_nobody_has_been_told_of_is_read_too(data: Path, promises: Promises) -> None:
    kept = {key: digest for key, digest in promises.kept.items() if key[:3] != ANN}
    seen = see(data, keys=(), offset_us=0)
    assert seen.read == promises.kept
    assert faults(Promises(kept=kept), seen, all_there=True) == ["A result nobody wrote"] * 2


def test_what_looking_itself_breaks_is_seen(data: Path, promises: Promises, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = SessionManager.verify

    def careless(manager: SessionManager, *, repair: bool) -> VerifyReport:
        report = verify(manager, repair=repair)
        run("UPDATE tenancy_usage SET used_bytes = 0")(data)
        return report

    monkeypatch.setattr(SessionManager, "verify", careless)
    before = logging.root.manager.disable
    assert looked(data, promises).problems == ("Usage is not the sum of the rows",)
    assert logging.root.manager.disable == before


def test_what_was_interrupted_before_is_still_there_when_its_cleanup_is_recorded(tmp_path: Path) -> None:
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == "cleanup of leftovers"]
    promises = scenario.prepare(tmp_path)
    data = tmp_path / DATA
    with closing(sqlite3.connect(data / "catalogue.sqlite3")) as catalogue:
        states = dict(catalogue.execute("SELECT state, count(*) FROM tenancy_results GROUP BY state"))
        erasing = catalogue.execute("SELECT count(*) FROM tenancy_users WHERE state = 'erasing'").fetchone()
    assert states == {"committed": 5, "deleting": 1, "pending": 1}
    assert erasing == (1,)
    assert len(list(files(data))) == 4
    assert (len(promises.kept), len(promises.gone)) == (3, 3)
    assert faults(promises, see(data, keys=promises.keys, offset_us=0), all_there=True) == []
    assert len(list(files(data))) == 1
