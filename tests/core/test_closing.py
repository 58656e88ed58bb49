"""Closing goes through all its steps, and what has ended before is kept by nobody."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from stores.errors import StoreUnavailable
from tenancy import ConfigurationError, Session, SessionManager
from tenancy.backend import Backend
from tenancy.janitor import AsyncJanitor, Janitor
from tests.conftest import INLINE_BYTES

PATIENCE = 30.0
NEVER = 3600.0
STEPS = ("janitor", "store", "keyring", "catalogue", "across")


@pytest.fixture
def inline_bytes() -> int:
    """Where results are is nothing to a janitor."""
    return INLINE_BYTES["inline"]


def test_a_server_that_starts_and_stops_janitors_keeps_none(manager: SessionManager) -> None:
    made = [weakref.ref(manager.run_janitor(interval_seconds=NEVER)) for _ in range(3)]
    assert len(manager._backend.on_close) == 3
    for each in made:
        janitor = each()
        assert isinstance(janitor, Janitor)
        janitor.stop()
        del janitor
    gc.collect()
    assert manager._backend.on_close == set()
    assert [each() for each in made] == [None] * 3


@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_a_coroutine_that_has_ended_is_kept_by_nobody(how: str, manager: SessionManager) -> None:
    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=NEVER))
        await asyncio.sleep(0)
        (stop,) = manager._backend.on_close
        if how == "cancelled":
            task.cancel()
        else:
            stop()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.done()

    asyncio.run(serve())
    assert manager._backend.on_close == set()


def test_a_step_that_outlives_its_coroutine_is_kept_until_it_is_done(
    manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def wait(*_: Any, **__: Any) -> bool:
        under_way.set()
        assert go_on.wait(PATIENCE)
        return False

    real = AsyncJanitor._run_once

    def run_once(janitor: AsyncJanitor) -> float:
        try:
            return real(janitor)
        finally:
            ended.set()

    monkeypatch.setattr(type(manager._backend.across.reclaim), "end_expired", wait)
    monkeypatch.setattr(AsyncJanitor, "_run_once", run_once)

    async def serve() -> None:
        task = asyncio.create_task(manager.run_janitor_async(interval_seconds=0.001))
        await asyncio.to_thread(under_way.wait, PATIENCE)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        assert len(manager._backend.on_close) == 1
        go_on.set()
        await asyncio.to_thread(ended.wait, PATIENCE)
        assert manager._backend.on_close == set()

    asyncio.run(serve())


class Closed:
    """Notes which parts of a backend were closed, and interrupts one of them."""

    def __init__(self, backend: Backend, interrupted: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self._interrupted = interrupted
        backend.on_close.add(self._noticed("janitor", lambda: None))
        monkeypatch.setattr(backend.store, "close", self._noticed("store", backend.store.close))
        monkeypatch.setattr(backend.keyring, "close", self._noticed("keyring", backend.keyring.close))
        for name in ("catalogue", "across"):
            database = getattr(backend, name).database
            monkeypatch.setattr(database, "close", self._noticed(name, database.close))

    def _noticed(self, name: str, real: Callable[[], None]) -> Callable[[], None]:
        def close() -> None:
            self.steps.append(name)
            real()
            if name == self._interrupted:
                raise KeyboardInterrupt

        return close


@pytest.mark.parametrize("interrupted", STEPS)
def test_ctrl_c_in_one_step_of_closing_leaves_out_none_of_the_others(
    interrupted: str, manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.write("kept")
    closed = Closed(manager._backend, interrupted, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        manager.close()
    assert closed.steps[:3] == list(STEPS[:3])
    # On SQLite both catalogues have one database.
    assert set(closed.steps) == set(STEPS)
    with pytest.raises(ConfigurationError):
        manager.usage(tenant="acme")
    manager.close()


def test_a_database_whose_closing_is_interrupted_has_its_reserve_again(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.write("kept")
    database = manager._backend.catalogue.database
    restored: list[None] = []

    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(database.engine, "dispose", interrupt)
        patch.setattr(database, "restore_reserve", lambda: restored.append(None))
        with pytest.raises(KeyboardInterrupt):
            database.close()
    assert restored == [None]
    with pytest.raises(StoreUnavailable), database.reading():
        pass
    database.engine.dispose()
