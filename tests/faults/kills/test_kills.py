"""Processes that are killed at random lose nothing that was acknowledged, and leave nothing behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kills.journal import Journal, story

CHECKOUT = Path(__file__).parents[3]
ROOM = ("acme", "ann", "chat")


def killed(database: str, *, kills: int, seed: int = 1) -> dict[str, Any]:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.faults", "kills", "--json"),
            *("--databases", database, "--kills", str(kills), "--seed", str(seed)),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    (told,) = json.loads(done.stdout)
    assert told["broken"] == []
    assert done.returncode == 0
    return dict(told)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("database_kind", "kills"), [("sqlite", 200), ("postgresql", 80)])
def test_no_acknowledged_write_is_lost_and_nothing_is_left_whoever_is_killed(database_kind: str, kills: int) -> None:
    told = killed(database_kind, kills=kills)
    assert sum(told["kills"].values()) == kills
    assert min(told["kills"].values()) > 0
    # They were at work, and did not die before they could begin.
    assert told["in_the_middle"] > kills / 2
    assert set(told["done"]) == {"write", "read", "delete", "end", "cleanup"}
    assert told["done"]["write"] > kills
    assert told["done"]["delete"] > kills / 10


def test_a_journal_holds_what_was_begun_and_what_was_acknowledged_also_of_those_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "writer-1.jsonl")
    for key, reference in (("one", "r-1"), ("two", "r-2")):
        journal.begun("write", key=key, room=ROOM)
        journal.done("write", key=key, room=ROOM, reference=reference)
    journal.begun("write", key="three", room=ROOM)
    journal.refused("write", key="three", room=ROOM, error="SessionNotFound")
    journal.begun("delete", room=ROOM, reference="r-1")
    journal.done("delete", room=ROOM, reference="r-1")
    journal.begun("delete", room=ROOM, reference="r-2")
    journal.wrong("something is wrong")
    journal.begun("write", key="four", room=ROOM)
    path = tmp_path / "writer-1.jsonl"
    with path.open("a") as lines:
        lines.write('["done", "write", {"key": "fo')
    told = story([path])
    assert told.written == {"one": (ROOM, "r-1"), "two": (ROOM, "r-2")}
    assert told.begun == dict.fromkeys(("one", "two", "three", "four"), ROOM)
    assert told.refused == {"three": "SessionNotFound"}
    assert (told.deleting, told.deleted) == ({(ROOM, "r-1"), (ROOM, "r-2")}, {(ROOM, "r-1")})
    assert told.wrongs == ["something is wrong"]
    assert told.cut_off == 1
    assert told.done == {"write": 2, "delete": 1}
