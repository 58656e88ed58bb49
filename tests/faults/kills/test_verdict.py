"""The verdict on processes that were killed can be a bad one: each thing that may not be is found."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenancy.startup import CATALOGUE_FILE
from tests.core.ledger import Ledger
from tests.faults.house import WAYS, House
from tests.faults.kills.journal import Story
from tests.faults.kills.lives import STAYING, content_of, opened
from tests.faults.kills.verdict import verdict

ROOM = STAYING[0]
#: One of each size.
KEYS = ("a", "b", "c", "d")


@dataclass
class Scene:
    """A data directory and what its journals say."""

    house: House
    story: Story

    def reference(self, key: str) -> str:
        """Where a key went."""
        return self.story.written[key][1]

    def written(self, key: str, content: str | None = None) -> str:
        """Write without anybody's noting it down."""
        with closing(self.house.open()) as manager:
            return opened(manager, ROOM).write(content or content_of(key), name=key)

    def delete(self, key: str) -> None:
        """Delete without anybody's noting it down."""
        with closing(self.house.open()) as manager:
            opened(manager, ROOM).delete(self.reference(key))

    def judge(self) -> list[str]:
        """Say what is wrong."""
        return verdict(self.house, self.story, offset_us=0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Four results that were acknowledged; one of them was deleted."""
    made = Scene(House(tmp_path, WAYS["inline"]), Story())
    for key in KEYS:
        made.story.begun[key] = ROOM
        made.story.written[key] = (ROOM, made.written(key))
    made.delete("d")
    gone = (ROOM, made.reference("d"))
    made.story.deleting.add(gone)
    made.story.deleted.add(gone)
    return made


def test_what_went_well_is_found_so(scene: Scene) -> None:
    with closing(Ledger(scene.house)) as ledger:
        assert min(ledger.where()) > 0, "inline and in files"
    assert scene.judge() == []


def lose(scene: Scene) -> None:
    scene.delete("a")


def resurrect(scene: Scene) -> None:
    scene.story.deleting.add((ROOM, scene.reference("a")))
    scene.story.deleted.add((ROOM, scene.reference("a")))


def alter(scene: Scene) -> None:
    scene.story.begun["e"] = ROOM
    scene.written("e", "something else")


def invent(scene: Scene) -> None:
    scene.written("nobody's")


def double(scene: Scene) -> None:
    scene.written("a")


def refuse(scene: Scene) -> None:
    scene.story.refused["a"] = "StorageUnavailable"


def rename(scene: Scene) -> None:
    scene.story.written["a"] = (ROOM, "result-7-aaaaaaaaaa")


def drift(scene: Scene) -> None:
    execute(scene, "UPDATE tenancy_usage SET used_bytes = used_bytes + 1")


def damage(scene: Scene) -> None:
    for path in (path for path in scene.house.results.rglob("*") if path.is_file()):
        path.write_bytes(bytes(path.stat().st_size))
    execute(scene, "UPDATE tenancy_blobs SET data = zeroblob(length(data))")


def leave_a_file(scene: Scene) -> None:
    room = next(path for path in scene.house.results.rglob("*") if path.is_file()).parent
    (room / ("a" * 32)).write_bytes(b"of nobody")


def leave_a_row(scene: Scene) -> None:
    execute(scene, "UPDATE tenancy_results SET state = 'deleting', lease_until_us = 9e15")


def say_so(scene: Scene) -> None:
    scene.story.wrongs.append("a reader saw something")


def execute(scene: Scene, statement: str) -> None:
    with closing(sqlite3.connect(scene.house.data / CATALOGUE_FILE)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lose, "a was acknowledged and is lost"),
        (resurrect, "was deleted and can be read"),
        (alter, "e is altered or damaged"),
        (invent, "nobody's is in a room where nobody wrote it"),
        (double, "a result is there twice"),
        (refuse, "a was refused (StorageUnavailable) and is there"),
        (rename, "a has another reference than was acknowledged"),
        (drift, "verify finds"),
        (damage, "a is altered or damaged"),
        (leave_a_file, "verify finds 1 unknown_bytes"),
        (leave_a_row, "a result is left half done"),
        (say_so, "a reader saw something"),
    ],
)
def test_what_may_not_be_is_found(scene: Scene, deed: Callable[[Scene], None], said: str) -> None:
    deed(scene)
    assert any(said in sentence for sentence in scene.judge())
