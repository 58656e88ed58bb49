"""Rotation of ten thousand keys by a process that is killed again and again, while others read."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tenancy import Session, SessionManager
from tests.conftest import ManagerFactory
from tests.core.fleet import CHECKOUT
from tests.postgres import as_maintenance

SESSIONS: Final = 10_000
KILLS: Final = 10
#: So large that it goes to a file, one in so many.
LARGE: Final = random.Random(0).randbytes(40_000).hex()
EVERY: Final = 50

_ROTATE: Final = """
import sys
from tenancy import SessionManager
from tenancy.settings import Settings

with SessionManager.from_settings(Settings(**__import__("json").loads(sys.argv[1]))) as manager:
    print("begins", flush=True)
    report = manager.rotate_keys(sys.argv[2], tenant="acme", on_progress=lambda done, total: print(done, flush=True))
    print("left", report.left, flush=True)
"""


@pytest.fixture
def inline_bytes() -> int:
    return 32768


class Full:
    """A tenant with very many sessions and a result in each."""

    def __init__(self, make_manager: ManagerFactory) -> None:
        self.make_manager = make_manager
        self.manager = make_manager(durability="process")
        # What is created first creates tenant and users for all.
        for user in range(20):
            self.manager.session(tenant="acme", user=f"u{user}", session="first")
        with ThreadPoolExecutor(8) as pool:
            self.handles: list[tuple[Session, str, str]] = list(pool.map(self._filled, range(SESSIONS)))
        self.before = self.files()

    def _filled(self, number: int) -> tuple[Session, str, str]:
        session = self.manager.session(tenant="acme", user=f"u{number % 20}", session=f"s{number}")
        text = f"result {number} " + (LARGE if number % EVERY == 0 else "small")
        return session, session.write(text), text

    def files(self) -> dict[Path, tuple[bytes, int, int]]:
        found = sorted(path for path in self.make_manager.results.rglob("*") if path.is_file())
        return {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in found}

    def read(self, numbers: Iterator[int] | range, manager: SessionManager | None = None) -> int:
        """Read results, by the handles there are or as somebody who comes new. Returns how many were right."""
        right = 0
        for number in numbers:
            session, reference, text = self.handles[number]
            if manager is not None:
                session = manager.session(tenant="acme", user=f"u{number % 20}", session=f"s{number}")
            right += session.read(reference) == text
        return right

    @contextmanager
    def being_read(self) -> Iterator[list[int]]:
        """Read one after the other in the background, each with nothing remembered. Yields how many, at the end."""
        counted: list[int] = []
        faults: list[BaseException] = []
        over = threading.Event()

        def go(seed: int) -> None:
            random_number = random.Random(seed)
            done = 0
            try:
                while not over.is_set():
                    self.manager._backend.keyring._cache.close()
                    assert self.read(iter([random_number.randrange(SESSIONS)])) == 1
                    done += 1
            except BaseException as error:
                faults.append(error)
            counted.append(done)

        threads = [threading.Thread(target=go, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield counted
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert faults == []


def rotate(make_manager: ManagerFactory, level: str, *, kill_after: int | None) -> str:
    """Rotate in a process of its own, and kill it after so many lines. Returns its last line."""
    settings = {
        "database_url": make_manager.database_url,
        "store_url": f"file://{make_manager.results}",
        "keys": f"file:{make_manager.key_file}",
        "durability": "process",
    }
    if not make_manager.database_url.startswith("sqlite"):
        settings["maintenance_url"] = as_maintenance(make_manager.database_url)
    command = [sys.executable, "-c", _ROTATE, json.dumps(settings), level]
    last = ""
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            last = line.strip()
            if kill_after is not None and number >= kill_after:
                # Anywhere in what comes next.
                threading.Timer(random.random() * 0.05, process.kill).start()
                break
        process.wait()
    assert process.returncode == (0 if kill_after is None else -9)
    return last


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["tenant", "session"])
def test_ten_thousand_keys_are_rotated_by_a_process_that_is_killed_ten_times(
    make_manager: ManagerFactory, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full = Full(make_manager)
    chance = random.Random(level)
    done = []
    with full.being_read() as counted:
        for _ in range(KILLS):
            done.append(rotate(make_manager, level, kill_after=chance.randrange(4)))
            fresh = make_manager(durability="process")
            numbers = [chance.randrange(SESSIONS) for _ in range(100)]
            assert full.read(iter(numbers), fresh) == len(numbers)
            fresh.close()
        # Killed, and never done: otherwise nothing was shown.
        assert full.manager._backend.catalogue.rotation.count_due(level, tenant_id=tenant_id(full.manager)) > 0
        assert rotate(make_manager, level, kill_after=None) == "left 0"
    again = full.manager.rewrap_keys(level, tenant="acme")
    assert (again.changed, again.failed, again.left) == (0, 0, 0)
    assert full.read(range(SESSIONS), make_manager()) == SESSIONS
    assert full.files() == full.before
    assert len(full.before) == SESSIONS // EVERY
    with capsys.disabled():
        print(f"\n{level}: killed after {done} keys; {sum(counted):,} reads meanwhile, all of them right")


def tenant_id(manager: SessionManager) -> str:
    found = manager._backend.catalogue.rotation.tenant_id("acme")
    assert found is not None
    return found
