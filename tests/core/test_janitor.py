"""Cleanup in the background: as a thread and as a coroutine, until the manager closes, whatever goes wrong."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tenancy import ConfigurationError, Lifetime, Session, SessionManager, StorageUnavailable, cleanup
from tenancy.cleanup import CleanupReport
from tenancy.janitor import Janitor, Rounds
from tests.conftest import INLINE_BYTES, ManagerFactory
from tests.core.ledger import Ledger
from tests.forked import in_a_child

Open = Callable[..., Session]
SOON = 0.001
#: Nobody waits for as long as this.
NEVER = 3600.0
PATIENCE = 30.0
DONE = CleanupReport(sessions=0, results=0, reclaimed_bytes=0, dry_run=False, complete=True)
CUT_SHORT = CleanupReport(sessions=1, results=0, reclaimed_bytes=0, dry_run=False, complete=False)


class Runs:
    """Counts the runs of all janitors, and lets a test wait for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pauses: list[float] = []
        self._changed = threading.Condition()
        real = Rounds.run

        def run(rounds: Rounds, is_stopping: Callable[[], bool]) -> float:
            pause = real(rounds, is_stopping)
            with self._changed:
                self.pauses.append(pause)
                self._changed.notify_all()
            return pause

        monkeypatch.setattr(Rounds, "run", run)

    def wait_for(self, more: int) -> None:
        with self._changed:
            wanted = len(self.pauses) + more
            assert self._changed.wait_for(lambda: len(self.pauses) >= wanted, PATIENCE)


@pytest.fixture
def inline_bytes() -> int:
    """Where results are is nothing to a janitor."""
    return INLINE_BYTES["inline"]


class HeldStep:
    """A step of a cleanup that does not end before its manager is being closed."""

    def __init__(self, manager: SessionManager, monkeypatch: pytest.MonkeyPatch) -> None:
        # A step for each session.
        monkeypatch.setattr(cleanup, "STEP_SECONDS", 0)
        self._manager = manager
        self._under_way, self._go_on = threading.Event(), threading.Event()
        self.removed: list[int] = []
        table = type(manager._backend.across.reclaim)
        real = table.remove_sessions

        def remove(reclaim: Any, *arguments: Any, **settings: Any) -> Any:
            self._under_way.set()
            assert self._go_on.wait(PATIENCE)
            done = real(reclaim, *arguments, **settings)
            self.removed.append(sum(removed.sessions for removed in done))
            return done

        monkeypatch.setattr(table, "remove_sessions", remove)

    def wait(self) -> None:
        assert self._under_way.wait(PATIENCE)

    def close_meanwhile(self) -> None:
        closing = threading.Thread(target=self._manager.close)
        closing.start()
        (stop,) = self._manager._backend.on_close
        assert stop.__self__._stopping.wait(PATIENCE)  # type: ignore[attr-defined]
        self._go_on.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()

    def go_on(self) -> None:
        self._go_on.set()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def expire(manager: SessionManager, open_session: Open, *, sessions: int) -> None:
    for number in range(sessions):
        open_session(f"s{number}", lifetime=Lifetime(idle=timedelta(hours=1))).write(b"x" * 40_000)
    manager.clock.advance(timedelta(hours=1))


def janitors() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "tenancy-janitor"]


def test_a_thread_reclaims_what_expires_until_its_manager_closes(
    manager: SessionManager, open_session: Open, ledger: Ledger, runs: Runs
) -> None:
    expire(manager, open_session, sessions=3)
    janitor = manager.run_janitor(interval_seconds=SOON)
    runs.wait_for(2)
    ledger.require_empty()
    assert manager.cleaned_at() is not None
    # It goes on, with what expires later too.
    expire(manager, open_session, sessions=2)
    runs.wait_for(3)
    ledger.require_empty()
    assert janitor.is_running
    manager.close()
    assert not janitor.is_running
    assert janitors() == []


def test_a_thread_is_stopped_by_leaving_its_block_and_the_manager_goes_on(
    manager: SessionManager, session: Session, runs: Runs
) -> None:
    with manager.run_janitor(interval_seconds=SOON) as janitor:
        runs.wait_for(1)
    assert not janitor.is_running
    janitor.stop()
    session.write("still open")
    # One that has not even begun ends as quickly.
    with manager.run_janitor(interval_seconds=NEVER):
        pass
    assert janitors() == []


def test_a_coroutine_reclaims_what_expires_until_its_manager_closes(
    manager: SessionManager, open_session: Open, ledger: Ledger, runs: Runs
) -> None:
    expire(manager, open_session, sessions=3)

    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=SOON))
        await asyncio.to_thread(runs.wait_for, 2)
        ledger.require_empty()
        assert not task.done()
        # From a thread of its own, as a server's last line may be.
        await asyncio.to_thread(manager.close)
        await asyncio.wait_for(task, PATIENCE)

    asyncio.run(serve())


def test_a_coroutine_that_waits_for_its_next_run_ends_at_once(manager: SessionManager) -> None:
    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=NEVER))
        await asyncio.sleep(0)
        await asyncio.to_thread(manager.close)
        await asyncio.wait_for(task, PATIENCE)

    asyncio.run(serve())


def test_a_coroutine_ends_when_it_is_cancelled_and_takes_its_work_along(
    manager: SessionManager, session: Session, runs: Runs
) -> None:
    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=SOON))
        await asyncio.to_thread(runs.wait_for, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(serve())
    session.write("still open")
    manager.close()


def test_closing_waits_for_what_a_cancelled_coroutine_has_left_at_work(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(manager, open_session, sessions=5)
    step = HeldStep(manager, monkeypatch)

    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=SOON))
        await asyncio.to_thread(step.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        step.close_meanwhile()

    asyncio.run(serve())
    assert step.removed == [1]
    assert ledger.count("tenancy_sessions") == 4
    ledger.require_balanced()


def test_closing_waits_for_the_step_under_way_and_leaves_the_rest(
    manager: SessionManager, open_session: Open, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(manager, open_session, sessions=5)
    step = HeldStep(manager, monkeypatch)
    manager.run_janitor(interval_seconds=SOON)
    step.wait()
    step.close_meanwhile()
    assert step.removed == [1]
    assert ledger.count("tenancy_sessions") == 4
    ledger.require_balanced()


def test_a_child_forked_in_the_middle_of_a_step_closes_without_waiting_for_it(
    manager: SessionManager, open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(manager, open_session, sessions=1)
    step = HeldStep(manager, monkeypatch)

    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=SOON))
        await asyncio.to_thread(step.wait)
        # The thread that is at the step does not exist there.
        assert in_a_child(manager.close) is None
        step.go_on()
        task.cancel()

    asyncio.run(serve())


def test_a_step_that_closes_its_manager_does_not_wait_for_itself(
    manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(*_: Any, **__: Any) -> bool:
        # As a handler of logging may, when it is told that something could not be removed.
        manager.close()
        raise StorageUnavailable("away")

    async def serve() -> None:
        monkeypatch.setattr(type(manager._backend.across.reclaim), "end_expired", close)
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=SOON))
        await asyncio.wait_for(task, PATIENCE)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_run_that_fails_is_an_event_and_the_next_one_tries_again(
    caplog: pytest.LogCaptureFixture, runs: Runs
) -> None:
    errors: list[Exception] = [StorageUnavailable("away"), ValueError("canary"), MemoryError()]

    def clean(is_stopping: Callable[[], bool]) -> CleanupReport:
        if errors:
            raise errors.pop(0)
        return DONE

    with Janitor(Rounds(clean, SOON), on_end=id).start():
        runs.wait_for(4)
    records = [record for record in caplog.records if getattr(record, "event", "") == "janitor_failed"]
    assert [record.__dict__["error"] for record in records] == ["StorageUnavailable", "ValueError", "MemoryError"]
    assert "canary" not in caplog.text
    assert all(record.exc_info is None for record in records)


def test_what_fails_because_it_was_stopped_is_no_event(caplog: pytest.LogCaptureFixture) -> None:
    def clean(is_stopping: Callable[[], bool]) -> CleanupReport:
        raise StorageUnavailable("The database was closed.")

    assert Rounds(clean, 5.0).run(lambda: True) == 5.0
    assert caplog.records == []


@pytest.mark.parametrize(
    ("report", "interval", "pause"), [(DONE, 300.0, 300.0), (CUT_SHORT, 300.0, 1.0), (CUT_SHORT, 0.5, 0.5)]
)
def test_a_run_cut_short_is_carried_on_soon(report: CleanupReport, interval: float, pause: float) -> None:
    assert Rounds(lambda is_stopping: report, interval).run(lambda: False) == pause


def test_processes_that_start_together_do_not_clean_up_together() -> None:
    pauses = {Rounds(lambda is_stopping: DONE, 300.0).first_pause() for _ in range(20)}
    assert len(pauses) == 20
    assert all(0 <= pause <= 300 for pause in pauses)
    assert Rounds(lambda is_stopping: DONE, 300.0, chance=lambda: 0.25).first_pause() == 75


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "300", None])
def test_an_interval_that_is_none_is_refused(seconds: Any, manager: SessionManager) -> None:
    with pytest.raises(ConfigurationError):
        manager.run_janitor(interval_seconds=seconds)
    with pytest.raises(ConfigurationError):
        asyncio.run(manager.run_janitor_async(interval_seconds=seconds))
    assert janitors() == []


@pytest.mark.parametrize("batch_size", [0, 1.5, 100_001])
def test_a_batch_that_is_none_is_refused_at_once(batch_size: Any, manager: SessionManager) -> None:
    with pytest.raises(ConfigurationError):
        manager.run_janitor(batch_size=batch_size)
    assert janitors() == []


def test_a_closed_manager_has_no_janitor(manager: SessionManager) -> None:
    manager.close()
    with pytest.raises(ConfigurationError):
        manager.run_janitor()
    with pytest.raises(ConfigurationError):
        asyncio.run(manager.run_janitor_async())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_manager_that_closes_while_a_janitor_begins_has_none(
    manager: SessionManager, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    real = type(manager)._rounds

    def close_meanwhile(self: SessionManager, *bounds: Any) -> Rounds:
        rounds = real(self, *bounds)
        self.close()
        return rounds

    async def serve() -> None:
        await asyncio.wait_for(manager.run_janitor_async(interval_seconds=SOON), PATIENCE)

    def begin() -> None:
        if is_async:
            asyncio.run(serve())
        else:
            manager.run_janitor()

    monkeypatch.setattr(type(manager), "_rounds", close_meanwhile)
    with pytest.raises(ConfigurationError):
        begin()
    assert janitors() == []


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_who_may_not_work_on_all_tenants_is_told_so_at_once(make_manager: ManagerFactory) -> None:
    manager = make_manager(maintenance_url=None)
    with pytest.raises(ConfigurationError, match="maintenance_url"):
        manager.run_janitor()
    with pytest.raises(ConfigurationError, match="maintenance_url"):
        asyncio.run(manager.run_janitor_async())
