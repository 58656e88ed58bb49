"""Quotas: exact at every level and unit, unchanged by a refusal, never exceeded by anybody's speed."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stores.errors import StoreUnavailable
from tenancy import Lifetime, Limits, QuotaExceeded, Session, SessionManager, StorageUnavailable
from tenancy.catalogue import charges
from tests.conftest import ManagerFactory
from tests.core.interposed import Store
from tests.core.ledger import Ledger

Open = Callable[..., Session]
TENANT = {"tenant": "acme"}
USER = {**TENANT, "user": "ann"}
SESSION = {**USER, "session": "chat"}
LEVELS = {"session": SESSION, "user": USER, "tenant": TENANT}


@pytest.mark.parametrize("level", LEVELS)
def test_bytes_are_allowed_up_to_the_limit_and_refused_exactly_behind_it(
    manager: SessionManager, session: Session, ledger: Ledger, level: str
) -> None:
    manager.set_limits(Limits(**{f"{level}_bytes": 50_010}), **LEVELS[level])
    session.write(b"x" * 50_000)
    session.write("x" * 9)
    before = ledger.snapshot()
    for content in ("xx", b"xx", "\u00e9", "x" * 2_000_000):
        with pytest.raises(QuotaExceeded) as refusal:
            session.write(content)
        error = refusal.value
        size = len(content.encode() if isinstance(content, str) else content)
        assert (error.level, error.unit, error.limit, error.used, error.requested) == (
            level, "bytes", 50_010, 50_009, size,
        )  # fmt: skip
        assert (error.limit_bytes, error.used_bytes, error.requested_bytes) == (50_010, 50_009, size)
        assert ledger.snapshot() == before
    session.write("x")
    session.write("")
    with pytest.raises(QuotaExceeded):
        session.write(b"x")
    assert ledger.where() == ledger.ways(small=3, large=1)
    ledger.require_balanced()


@pytest.mark.case(48)
@pytest.mark.parametrize("level", LEVELS)
def test_the_eleventh_of_ten_results_is_refused_however_small(
    manager: SessionManager, session: Session, ledger: Ledger, level: str
) -> None:
    manager.set_limits(Limits(**{f"{level}_results": 10}), **LEVELS[level])
    references = [session.write("" if number % 2 else b"x") for number in range(10)]
    before = ledger.snapshot()
    for content in ("", b"", "x"):
        with pytest.raises(QuotaExceeded) as refusal:
            session.write(content)
        error = refusal.value
        assert (error.level, error.unit, error.limit, error.used, error.requested) == (level, "results", 10, 10, 1)
        assert error.limit_bytes is None
        assert ledger.snapshot() == before
    session.delete(references[3])
    session.write("room again")
    assert ledger.where() == ledger.ways(small=10)
    ledger.require_balanced()


@pytest.mark.parametrize("level", ["user", "tenant"])
def test_one_session_more_than_allowed_is_refused_and_leaves_nothing(
    manager: SessionManager, open_session: Open, ledger: Ledger, level: str
) -> None:
    open_session()
    manager.set_limits(Limits(**{f"{level}_sessions": 2}), **LEVELS[level])
    open_session("second")
    before = ledger.snapshot()
    with pytest.raises(QuotaExceeded) as refusal:
        open_session("third")
    error = refusal.value
    assert (error.level, error.unit, error.limit, error.used, error.requested) == (level, "sessions", 2, 2, 1)
    if level == "tenant":
        # Nor does a new user come into being by being refused.
        with pytest.raises(QuotaExceeded):
            open_session(user="bob")
    assert ledger.snapshot() == before
    # What exists is opened as before, and there is room again after a deletion.
    open_session()
    manager.delete_session(**SESSION)
    open_session("third")
    ledger.require_balanced()


@pytest.mark.case(47)
def test_a_write_too_large_for_its_session_leaves_the_counters_of_user_and_tenant_alone(
    manager: SessionManager, session: Session, ledger: Ledger
) -> None:
    manager.set_limits(Limits(session_bytes=5), **SESSION)
    before = ledger.counters()
    with pytest.raises(QuotaExceeded):
        session.write("six by")
    assert ledger.counters() == before
    # The tenant is charged last: what session and user were charged before it refused is taken back.
    manager.set_limits(Limits(), **SESSION)
    manager.set_limits(Limits(tenant_bytes=5), **TENANT)
    with pytest.raises(QuotaExceeded):
        session.write("six by")
    assert ledger.counters() == before
    assert ledger.where() == (0, 0)


@pytest.mark.case(52)
def test_a_tenant_at_its_limit_keeps_nobody_else_from_writing(
    manager: SessionManager, session: Session, open_session: Open, ledger: Ledger
) -> None:
    manager.set_limits(Limits(tenant_bytes=3), **TENANT)
    with pytest.raises(QuotaExceeded):
        session.write("four")
    other = open_session(tenant="globex")
    assert other.read(other.write("four")) == "four"
    assert ledger.where() == ledger.ways(small=1)


@pytest.mark.parametrize("level", ["user", "tenant"])
def test_expired_sessions_are_reclaimed_before_a_write_is_refused(
    manager: SessionManager, session: Session, open_session: Open, ledger: Ledger, level: str
) -> None:
    old = open_session("old", lifetime=Lifetime(idle=timedelta(minutes=1)))
    old.write("x" * 10)
    foreign = open_session(tenant="globex", lifetime=Lifetime(idle=timedelta(minutes=1)))
    foreign.write("not reclaimed for somebody else")
    manager.set_limits(Limits(**{f"{level}_bytes": 12}), **LEVELS[level])
    with pytest.raises(QuotaExceeded):
        session.write("yyy")
    manager.clock.advance(timedelta(minutes=1))
    reference = session.write("yyy")
    assert session.read(reference) == "yyy"
    assert manager.usage(**TENANT).used_bytes == 3
    assert manager.usage(tenant="globex").used_bytes == 31
    assert ledger.where() == ledger.ways(small=2)
    with pytest.raises(QuotaExceeded):
        session.write("z" * 10)
    ledger.require_balanced()


def test_expired_sessions_are_reclaimed_before_a_session_is_refused(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    open_session("old", lifetime=Lifetime(idle=timedelta(minutes=1))).write("x")
    open_session("live")
    manager.set_limits(Limits(user_sessions=2), **USER)
    with pytest.raises(QuotaExceeded):
        open_session("new")
    manager.clock.advance(timedelta(minutes=1))
    open_session("new")
    # Also when the one that expired has the name that is opened.
    manager.clock.advance(timedelta(days=2))
    open_session("new")
    ledger.require_balanced()


def test_expired_results_are_not_in_the_way_of_new_ones(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    session = open_session(lifetime=Lifetime(idle=timedelta(days=1), result=timedelta(hours=1)))
    manager.set_limits(Limits(session_bytes=10), **SESSION)
    session.write("x" * 10)
    with pytest.raises(QuotaExceeded):
        session.write("y")
    manager.clock.advance(timedelta(hours=1))
    assert session.read(session.write("y")) == "y"
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


def write_until_refused(session: Session, content: str) -> int:
    """How many writes went through before the first refusal."""
    for count in range(1000):
        try:
            session.write(content)
        except QuotaExceeded:
            return count
    raise AssertionError("nothing was ever refused")


@pytest.mark.case(125)
@pytest.mark.parametrize("level", LEVELS)
def test_eight_threads_at_one_byte_under_a_limit_never_exceed_it(
    manager: SessionManager, open_session: Open, ledger: Ledger, level: str
) -> None:
    sessions = [open_session("chat" if level == "session" else f"chat{number}") for number in range(8)]
    limit = 71
    manager.set_limits(Limits(**{f"{level}_bytes": limit}), **LEVELS[level])
    ready = threading.Barrier(8)

    def use(session: Session) -> int:
        ready.wait()
        return write_until_refused(session, "1234567")

    with ThreadPoolExecutor(8) as pool:
        written = sum(pool.map(use, sessions))
    assert written == 10
    sessions[0].write("x")
    with pytest.raises(QuotaExceeded):
        sessions[1].write("x")
    assert manager.usage(**LEVELS[level]).used_bytes == limit
    assert ledger.where() == ledger.ways(small=11)
    ledger.require_balanced()


WRITER = """
import sys
from tenancy import QuotaExceeded, SessionManager
from tenancy.settings import Settings
database_url, store_url, keys, inline_bytes, user = sys.argv[1:]
settings = Settings(database_url=database_url, store_url=store_url, keys=keys, inline_bytes=int(inline_bytes),
                    durability="process")
with SessionManager.from_settings(settings) as manager:
    session = manager.session(tenant="acme", user=user)
    print("ready", flush=True)
    sys.stdin.readline()
    refused = written = 0
    while refused < 5:
        try:
            session.write(b"1234567")
            written += 1
        except QuotaExceeded:
            refused += 1
    print(written)
"""


@pytest.mark.case(46, 125)
@pytest.mark.slow
def test_four_processes_at_one_byte_under_a_limit_never_exceed_it_nor_drift(
    make_manager: ManagerFactory, ledger: Ledger
) -> None:
    manager = make_manager(durability="process")
    manager.session(tenant="acme", user="u0")
    manager.set_limits(Limits(tenant_bytes=1000), **TENANT)
    places = (f"file://{make_manager.results}", f"file:{make_manager.key_file}", str(make_manager.inline_bytes))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, make_manager.database_url, *places, f"u{number % 2}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    written = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert sum(written) == 142
    assert manager.usage(**TENANT).used_bytes == 994
    assert ledger.where() == ledger.ways(small=142)
    ledger.require_balanced()
    assert manager.verify().ok


def test_a_write_that_fails_in_the_store_gives_its_charge_back(
    manager: SessionManager, session: Session, store: Store, ledger: Ledger
) -> None:
    manager.set_limits(Limits(session_bytes=10), **SESSION)

    def refuse(operation: str, name: str) -> None:
        if operation == "put":
            raise StoreUnavailable("The store is away.")

    store.before = refuse
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            session.write("x" * 10)
    assert session.usage().used_bytes == 0
    store.before = lambda operation, name: None
    session.write("x" * 10)
    assert ledger.where() == ledger.ways(small=1)
    ledger.require_balanced()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["result", "session"])
def test_room_that_is_freed_just_when_it_was_refused_is_used(
    manager: SessionManager, session: Session, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, level: str, what: str
) -> None:
    if (what == "result" and manager._backend.catalogue.database.is_sqlite) or (what, level) == ("session", "session"):
        # Where one that is refused looks before it lets others write nobody frees anything in between; and a session
        # holds no sessions.
        return
    manager.set_limits(Limits(**{f"{level}_{what}s": 1}), **LEVELS[level])
    reference = session.write("first") if what == "result" else ""
    refusal: Callable[..., object] = charges.refusal
    looks: list[object] = []

    def freed_before_the_look(*asked: object, **named: object) -> object:
        if not looks:
            session.delete(reference) if what == "result" else manager.delete_session(**SESSION)
        looks.append(None)
        return refusal(*asked, **named)

    for place in ("results", "sessions"):
        monkeypatch.setattr(f"tenancy.catalogue.{place}.refusal", freed_before_the_look)
    if what == "result":
        assert session.read(session.write("second")) == "second"
    else:
        assert manager.session(**USER, session="another").scope.session == "another"
    assert looks == [None]
    ledger.require_balanced()
