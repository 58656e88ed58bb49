"""Eight processes of eight threads one byte, result or session below each limit: exact, refused in one way only."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from dataclasses import replace

import pytest

from tenancy import Limits, SessionManager
from tenancy.quotas import FIELDS
from tests.conftest import ManagerFactory
from tests.core.fleet import PROCESSES, THREADS, Fleet, Order
from tests.core.ledger import Ledger

EVERYBODY = PROCESSES * THREADS
#: How often somebody looks whether a limit is exceeded while all are at work.
LOOK_SECONDS = 0.02


@pytest.fixture
def fleet(make_manager: ManagerFactory) -> Iterator[Fleet]:
    """The processes; whatever happened to them, they end well."""
    started = Fleet(make_manager)
    yield started
    started.close()


class Brink:
    """A tenant with a limit that one more byte, result or session just reaches."""

    def __init__(self, manager: SessionManager, field: str) -> None:
        self.level, self.unit = field.split("_")
        self._manager = manager
        self._order = Order(do="write", tenant=f"at the {field}", shared=self.level, content="x")
        names = self._order.all_names()
        for each in names:
            manager.session(**each)
        self.limit = {"bytes": 100, "results": 10, "sessions": self._sessions_counted(names) + 1}[self.unit]
        first = manager.session(**names[0])
        for content in {"bytes": ["x" * 99], "results": ["x"] * 9, "sessions": ["x"]}[self.unit]:
            first.write(content)
        manager.set_limits(Limits(**{field: self.limit}), tenant=self._order.tenant)

    def _sessions_counted(self, names: list[dict[str, str]]) -> int:
        return sum(self.level == "tenant" or each["user"] == "u0" for each in names)

    def order(self, *, gives_back: bool, times: int) -> Order:
        """Take the last piece, and give it back or keep it."""
        do = "open" if self.unit == "sessions" else "write"
        return Order(
            do=f"{do} and delete" if gives_back else do,
            tenant=self._order.tenant,
            shared=self.level,
            content="x",
            times=times,
        )

    def used(self) -> int:
        """What is in use, in the limit's unit."""
        names = {"user": "u0", "session": "s0"}
        deep = {"tenant": 0, "user": 1, "session": 2}[self.level]
        usage = self._manager.usage(tenant=self._order.tenant, **dict(list(names.items())[:deep]))
        return {"bytes": usage.used_bytes, "results": usage.results, "sessions": usage.sessions}[self.unit]


def watched(fleet: Fleet, brink: Brink, order: Order) -> "Counter[str]":
    """Carry an order out, and look all the while whether the limit holds."""
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(fleet.carry_out, order)
        while True:
            assert brink.used() <= brink.limit
            try:
                return under_way.result(LOOK_SECONDS)
            except NotDone:
                continue


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.case(46, 125)
def test_sixty_four_threads_of_eight_processes_want_the_last_piece_of_each_limit_and_one_gets_it(
    make_manager: ManagerFactory, fleet: Fleet, ledger: Ledger
) -> None:
    manager = make_manager(durability="process")
    require_bound_on_each(manager, fleet)
    for field in FIELDS:
        if field == "max_result_bytes":
            continue
        brink = Brink(manager, field)
        passed = watched(fleet, brink, brink.order(gives_back=True, times=3))
        assert set(passed) == {"done", "QuotaExceeded"}, field
        assert passed.total() == 3 * EVERYBODY
        assert brink.used() == brink.limit - 1, field
        ledger.require_balanced()
        taken = watched(fleet, brink, brink.order(gives_back=False, times=1))
        assert taken == {"done": 1, "QuotaExceeded": EVERYBODY - 1}, field
        assert brink.used() == brink.limit, field
    ledger.require_balanced()
    assert manager.verify().ok


def require_bound_on_each(manager: SessionManager, fleet: Fleet) -> None:
    """A bound on one result is nobody's sum: all may write that much at once, and none more."""
    fits = Order(do="write", tenant="at the max_result_bytes", shared="user", content="x" * 10)
    for names in fits.all_names():
        manager.session(**names)
    manager.set_limits(Limits(max_result_bytes=10), tenant=fits.tenant)
    assert fleet.carry_out(fits) == {"done": EVERYBODY}
    assert fleet.carry_out(replace(fits, content="x" * 11)) == {"ResultTooLarge": EVERYBODY}
    usage = manager.usage(tenant=fits.tenant)
    assert (usage.used_bytes, usage.results) == (10 * EVERYBODY, EVERYBODY)


#: What a writer hears whose session ends, or is at its limit, while it writes. No lock is among the reasons.
EXPECTED = {"done", "SessionNotFound", "ResultNotFound", "QuotaExceeded"}
ROOM_GONE = "StorageUnavailable: The room was destroyed"


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.case(46, 53, 136)
def test_writers_deleters_cleanups_and_erasures_together_never_lock_each_other_out(
    make_manager: ManagerFactory, fleet: Fleet, ledger: Ledger
) -> None:
    counted = fleet.carry_out(Order(do="mix", tenant="", shared="tenant", times=40))
    assert counted.total() == 40 * EVERYBODY
    assert counted["done"] > 20 * EVERYBODY
    assert {said for said in counted if not said.startswith(ROOM_GONE)} <= EXPECTED
    if not ledger._database.is_sqlite:
        assert ledger.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    manager = make_manager(durability="process")
    assert manager.cleanup().complete
    ledger.require_balanced()
    assert manager.verify().ok
    for tenant in {info.tenant for info in manager.sessions()}:
        manager.erase_tenant(tenant=tenant)
    ledger.require_empty()
