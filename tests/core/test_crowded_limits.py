"""A limit that many want to have the rest of at once: exact, whoever is quickest, and nobody else's trouble."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenancy import Limits, QuotaExceeded, Session, SessionManager, StorageUnavailable
from tests.conftest import ManagerFactory
from tests.core.failing import House
from tests.core.ledger import Ledger

Open = Callable[..., Session]
TENANT = {"tenant": "acme"}

#: Writes in some threads, so often, when it is told to; says how often that went through.
WRITER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from tenancy import QuotaExceeded, SessionManager
from tenancy.settings import Settings
database_url, store_url, keys, inline_bytes, user, threads, times, content = sys.argv[1:]
settings = Settings(database_url=database_url, store_url=store_url, keys=keys, inline_bytes=int(inline_bytes),
                    durability="process")
def write(session):
    written = 0
    for _ in range(int(times)):
        try:
            session.write(content)
            written += 1
        except QuotaExceeded:
            pass
    return written
with SessionManager.from_settings(settings) as manager:
    sessions = [manager.session(tenant="acme", user=user, session=f"chat {n}") for n in range(int(threads))]
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(len(sessions)) as pool:
        print(sum(pool.map(write, sessions)))
"""


def written_by_processes(factory: ManagerFactory, count: int, *, threads: int, times: int, content: str) -> int:
    """Have so many processes write at once, of two users in turns; any other error than a refusal fails."""
    places = (f"file://{factory.results}", f"file:{factory.key_file}", str(factory.inline_bytes))
    what = (str(threads), str(times), content)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, factory.database_url, *places, f"u{number % 2} of {number}", *what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    answers = [writer.communicate(timeout=200)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * count
    return sum(map(int, answers))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case(46)
def test_eight_processes_of_sixty_writes_use_a_limit_up_and_never_exceed_it(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    manager = make_manager(durability="process")
    manager.session(**TENANT, user="somebody")
    manager.set_limits(Limits(tenant_bytes=1000), **TENANT)
    assert written_by_processes(make_manager, 8, threads=1, times=60, content="1234567") == 142
    assert manager.usage(**TENANT).used_bytes == 994
    assert ledger.where() == ledger.ways(small=142)
    ledger.require_balanced()
    assert manager.verify().ok


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.case(125)
def test_four_processes_of_sixty_four_threads_want_the_last_byte_and_one_gets_it(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    manager = make_manager(durability="process")
    manager.session(**TENANT, user="somebody").write("x" * 999)
    manager.set_limits(Limits(tenant_bytes=1000), **TENANT)
    assert written_by_processes(make_manager, 4, threads=64, times=2, content="x") == 1
    assert manager.usage(**TENANT).used_bytes == 1000
    ledger.require_balanced()


@pytest.mark.case(125)
def test_sixty_four_threads_want_the_last_byte_and_one_gets_it(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    sessions = [open_session(f"chat {number}") for number in range(64)]
    sessions[0].write("x" * 99)
    manager.set_limits(Limits(tenant_bytes=100), **TENANT)
    ready = threading.Barrier(64)

    def take(session: Session) -> str | None:
        ready.wait()
        try:
            return session.write("x")
        except QuotaExceeded:
            return None

    with ThreadPoolExecutor(64) as pool:
        for _ in range(2):
            (winner,) = [(one, given) for one, given in zip(sessions, pool.map(take, sessions), strict=True) if given]
            assert manager.usage(**TENANT).used_bytes == 100
            # What was refused took nothing with it: the byte given back is there for somebody again.
            winner[0].delete(winner[1])
    assert manager.usage(**TENANT).used_bytes == 99
    ledger.require_balanced()


@pytest.mark.case(125)
@pytest.mark.parametrize("table", ["tenancy_usage", "tenancy_limits"])
def test_a_write_whose_charge_cannot_be_asked_about_is_refused_and_leaves_nothing(
    table: str, make_manager: ManagerFactory, ledger: Ledger
) -> None:
    house = House(make_manager)
    house.write()
    before = ledger.snapshot()
    with house.changed(f"ALTER TABLE {table} RENAME TO away", f"ALTER TABLE away RENAME TO {table}"):
        for content in ("x", "x" * 2_000_000, b"x" * 50_000):
            with pytest.raises(StorageUnavailable):
                house.write(content)
    assert ledger.snapshot() == before
    house.write()
    ledger.require_balanced()


@pytest.mark.case(52)
def test_a_tenant_that_keeps_being_refused_holds_nobody_up(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    greedy = [open_session(f"chat {number}", user=f"u{number}") for number in range(8)]
    manager.set_limits(Limits(tenant_bytes=3), **TENANT)
    other, done, refused = open_session(tenant="globex"), threading.Event(), []

    def beg(session: Session) -> None:
        while not done.is_set():
            try:
                session.write("four")
            except QuotaExceeded:
                refused.append(1)

    longest = 0.0
    with ThreadPoolExecutor(8) as pool:
        begging = [pool.submit(beg, session) for session in greedy]
        try:
            for _ in range(20):
                started = time.monotonic()
                other.read(other.write("four"))
                longest = max(longest, time.monotonic() - started)
        finally:
            done.set()
        for one in begging:
            one.result()
    # A bound that holds on a busy machine; `benchmarks/noisy_tenant.py` measures it.
    assert longest < 5
    assert len(refused) >= 8
    assert ledger.where() == ledger.ways(small=20)
    ledger.require_balanced()
