"""Once an erasure has returned, no power loss brings a wrapped key back that it has destroyed."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tenancy import SessionManager
from tests.power_loss.operations import Mark, Recording
from tests.power_loss.recorder import Tell, record
from tests.power_loss.states import Ground, ways, whole
from tests.power_loss.volume import Volume

DATA = "data"
ANN = {"tenant": "acme", "user": "ann"}
ERASURES: dict[str, Callable[[SessionManager], object]] = {
    "delete_session": lambda manager: manager.delete_session(**ANN, session="chat"),
    "erase_user": lambda manager: manager.erase_user(**ANN),
    "erase_tenant": lambda manager: manager.erase_tenant(tenant="acme"),
}


def wrapped_keys(manager: SessionManager) -> list[str]:
    with manager._backend.catalogue.database.reading() as transaction:
        rows = transaction.connection.execute("SELECT wrapped FROM tenancy_session_keys").fetchall()
    return [wrapped.hex() for (wrapped,) in rows]


def erasing(folder: Path, erase: Callable[[SessionManager], object]) -> Recording:
    """A session is opened, so that its key is in SQLite's log, and erased while that log is in use."""
    SessionManager.local(folder / DATA, durability="process").close()

    def work(tell: Tell) -> None:
        with SessionManager.local(folder / DATA) as manager:
            manager.session(**ANN, session="chat").write("a small result")
            tell({"mark": "keys", "keys": wrapped_keys(manager)})
            erase(manager)
            tell({"mark": "erased", "keys": wrapped_keys(manager)})

    return record(folder, work)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("erasure", ERASURES)
def test_what_an_erasure_has_destroyed_is_in_no_file_whatever_power_loss_leaves(erasure: str, tmp_path: Path) -> None:
    recording = erasing(tmp_path, ERASURES[erasure])
    before, after = (
        {bytes.fromhex(key) for key in operation.said["keys"]}
        for operation in recording.operations
        if isinstance(operation, Mark)
    )
    (destroyed,) = before - after
    ground, was_there, has_returned, looked = Ground(Volume.of(recording)), False, False, 0
    for place, operation in enumerate(recording.operations):
        has_returned |= isinstance(operation, Mark) and operation.said["mark"] == "erased"
        ground.advance(place, operation)
        everything = whole(ground)
        for way in {everything, *ways(ground, chance=random.Random(place))} if has_returned else {everything}:
            files = [standing.content or b"" for standing in ground.state(way).tree().values()]
            is_there = any(destroyed in content for content in files)
            was_there |= is_there
            assert not (has_returned and is_there)
            looked += has_returned
    assert was_there
    assert looked > 1
