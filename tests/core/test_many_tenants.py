"""Twenty tenants at once on each kind of store: nobody sees anything of anybody else's, anywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenancy import SessionManager
from tests.conftest import ManagerFactory
from tests.core.many_tenants import Crowd

#: Which database, and what differs from results in files.
BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "filesystem": ("sqlite_url", {}),
    "sqlite": ("sqlite_url", {"store_url": "database:"}),
    "postgresql": ("postgres_url", {"store_url": "database:"}),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def manager(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionManager]:
    url, settings = BACKENDS[backend]
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    factory = ManagerFactory(database_url=request.getfixturevalue(url), inline_bytes=0, folder=folder)
    yield factory(durability="process", **settings)
    factory.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case(99)
def test_ten_thousand_operations_of_twenty_tenants_at_once_never_meet(
    manager: SessionManager, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    operations = 10_000
    crowd = Crowd(manager, seed=2)
    figures = crowd.work(operations)
    assert figures.foreign == []
    assert figures.failures == []
    assert sum(figures.operations.values()) == operations
    crowd.require_exact()
    with capsys.disabled():
        print(f"\n{backend}: {figures}")
