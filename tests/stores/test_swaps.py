"""
What a call meets is swapped for a link between any two of its steps: nothing is found, made or removed outside.

A racing attacker (`tests.attacks.swapping`) hits a gap between a check and a use by luck; here every gap is hit.
"""

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from stores.errors import StoreError
from stores.filesystem import FilesystemNamespace, FilesystemStore
from stores.names import mint_name
from tests.attacks.outside import Outside, differences
from tests.stores.files import CALLS, INNER, NAME, OUTER, exchange

NEW: Final = "p" * 32
OURS: Final = b"of our own" * 10
#: What a room is called in the trash when chance gives nothing but zeros.
MOVED: Final = mint_name(bytes)
TARGETS: Final = {
    "outer": OUTER,
    "inner": f"{OUTER}/{INNER}",
    "file": f"{OUTER}/{INNER}/{NAME}",
    "new file": f"{OUTER}/{INNER}/{NEW}",
    "trash": "trash",
    "moved": f"trash/{MOVED}",
    "left over": "trash/left",
    "deeper": "trash/left/deeper",
}


class World:
    """
    A store with a room, a file in it and leftovers in its trash, and an attacker who waits for a step of a call.

    :param folder: Is made.
    :param target: What is swapped.
    :param plant: Makes what it is swapped for.
    """

    def __init__(self, folder: Path, *, target: str, plant: Callable[[str, Path], object]) -> None:
        folder.mkdir()
        root, self._attic = folder / "root", folder / "attic"
        self._outside = Outside(folder / "outside")
        self._outside.fill({(OUTER, INNER, NAME): len(OURS)})
        self.store = FilesystemStore(root, durability="process", random_bytes=bytes)
        self.room.put(NAME, OURS)
        (root / "trash").mkdir(mode=0o700)
        (root / "trash" / "left" / "deeper").mkdir(parents=True)
        (root / "trash" / "left" / "deeper" / NAME).touch()
        self._target = root / TARGETS[target]
        outside = {"outer": self._outside.outer, "trash": self._outside.outer}.get(target, self._outside.room)
        plant(self._outside.file(NAME) if "file" in target else outside, self._attic)
        self._before = self._outside.snapshot()
        self._swapped = False

    @property
    def room(self) -> FilesystemNamespace:
        return self.store.namespace(OUTER, INNER)

    def swap(self) -> None:
        """Let target and link change places; where there is no target yet, the link stands in its way."""
        with suppress(FileNotFoundError):
            if os.path.lexists(self._target):
                exchange(self._target, self._attic)
            else:
                os.rename(self._attic, self._target)
            self._swapped = not self._swapped

    def put_back(self) -> None:
        """Have everything as it was, but for what the store did."""
        if self._swapped and os.path.lexists(self._target):
            self.swap()
        elif self._swapped:
            with suppress(FileNotFoundError):
                os.rename(self._attic, self._target)
            self._swapped = False

    def changes(self) -> list[str]:
        """What is not outside as it was."""
        return differences(self._before, self._outside.snapshot())


def call_before(patch: pytest.MonkeyPatch, steps: dict[int, Callable[[], None]]) -> list[None]:
    """Call what is given in front of the step of that number. Returns a list that is as long as there were steps."""
    made: list[None] = []

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            made.append(None)
            steps.get(len(made), lambda: None)()
            return real(*arguments, **options)

        return call

    for name in CALLS:
        patch.setattr(os, name, wrap(getattr(os, name)))
    return made


def fail_to_put(room: FilesystemNamespace) -> None:
    with pytest.MonkeyPatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: 0)
        room.put(NEW, OURS)


#: Each gives what must not be anything else than `ANSWERS` says.
OPERATIONS: Final[dict[str, Callable[[FilesystemNamespace], object]]] = {
    "get": lambda room: room.get(NAME, size_bytes=len(OURS)),
    "get a range": lambda room: room.get_range(NAME, start=0, length=len(OURS), size_bytes=len(OURS)),
    "list": lambda room: [blob for blob in room.list() if blob.name != NAME],
    "rooms": lambda room: [found for found in room._store.namespaces() if found != (OUTER, INNER)],
    "put": lambda room: room.put(NEW, OURS),
    "fail to put": fail_to_put,
    "delete": lambda room: room.delete(NAME),
    "destroy": lambda room: room.destroy(),
    "sweep": lambda room: room._store.sweep(),
}
ANSWERS: Final = {"get": OURS, "get a range": OURS, "list": [], "rooms": []}
#: Those that use a room, which may be open already, and those that begin at the root whatever is open.
IN_A_ROOM: Final = ("get", "get a range", "list", "put", "fail to put", "delete")
CASES: Final = [
    *itertools.product(("outer", "inner"), OPERATIONS),
    *itertools.product(("file",), ("get", "get a range", "list", "rooms", "delete", "destroy")),
    *itertools.product(("new file",), ("put", "fail to put")),
    *itertools.product(("trash", "moved", "left over", "deeper"), ("destroy", "sweep")),
]


@pytest.mark.case(15, 16, 17, 23, 89, 91)
@pytest.mark.parametrize(
    ("target", "operation", "keeps"),
    [(*case, keeps) for case in CASES for keeps in (True, False) if keeps or case[1] in IN_A_ROOM],
)
def test_a_swap_in_front_of_any_step_of_a_call_lets_nothing_in_or_out(
    tmp_path: Path, target: str, operation: str, keeps: bool
) -> None:
    plants: list[Callable[[str, Path], object]] = [lambda to, at: at.symlink_to(to)]
    plants += [os.link] * ("file" in target)
    for plant, stays in itertools.product(plants, (True, False)):
        for number in itertools.count(1):
            world = World(tmp_path / f"{plant.__name__}-{stays}-{number}", target=target, plant=plant)
            if not keeps:
                world.store._directories.forget((OUTER, INNER))
            steps = {number: world.swap} if stays else {number: world.swap, number + 1: world.put_back}
            acknowledged = False
            with pytest.MonkeyPatch.context() as patch:
                made = call_before(patch, steps)
                with suppress(StoreError):
                    answer = OPERATIONS[operation](world.room)
                    assert answer == ANSWERS.get(operation)
                    acknowledged = True
            world.put_back()
            require_kept(world.room, operation, acknowledged=acknowledged)
            assert world.changes() == []
            world.store.close()
            if len(made) < number:
                break
        assert number > 3


def require_kept(room: FilesystemNamespace, operation: str, *, acknowledged: bool) -> None:
    """What nobody deleted, and what a store said it has, is there once everything is in its place again."""
    if operation not in ("delete", "destroy"):
        assert room.get(NAME, size_bytes=len(OURS)) == OURS
    if operation == "put" and acknowledged:
        assert room.get(NEW, size_bytes=len(OURS)) == OURS
