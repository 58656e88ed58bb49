"""Which directories stay open, for how long, and that none is closed under somebody's hands."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stores.descriptors import Directories, Directory
from stores.errors import StoreUnavailable
from stores.filesystem import FilesystemStore
from tests.stores.files import INNER, NAME, OUTER, open_descriptors

KEY = (OUTER, INNER)


class GivenUp(Exception):
    """Ends the use of a directory."""


@pytest.fixture
def open_folder(tmp_path: Path) -> Callable[[], int]:
    return lambda: os.open(tmp_path, os.O_RDONLY)


@pytest.fixture
def directories(open_folder: Callable[[], int]) -> Iterator[Directories]:
    before = open_descriptors()
    directories = Directories(open_folder(), limit=2)
    yield directories
    directories.close()
    assert open_descriptors() == before


def always(_: Directory) -> bool:
    return True


def test_a_directory_evicted_in_use_is_open_until_its_last_user_leaves(
    directories: Directories, open_folder: Callable[[], int]
) -> None:
    with directories.hold(KEY, open_folder, is_current=always) as held:
        with directories.hold(KEY, open_folder, is_current=always) as again:
            assert again is held
            for inner in "abc":
                with directories.hold((OUTER, inner * 32), open_folder, is_current=always):
                    pass
        os.fstat(held.descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held.descriptor)


def test_a_failure_closes_no_directory_that_took_the_place_meanwhile(
    directories: Directories, open_folder: Callable[[], int]
) -> None:
    def fail_late() -> None:
        with directories.hold(KEY, open_folder, is_current=always):
            # Another thread finds this one stale and opens its successor.
            with directories.hold(KEY, open_folder, is_current=lambda _: False):
                pass
            raise GivenUp

    with pytest.raises(GivenUp):
        fail_late()

    def refuse() -> int:
        raise AssertionError("the successor is not kept any more")

    with directories.hold(KEY, refuse, is_current=always) as successor:
        os.fstat(successor.descriptor)


def test_a_directory_whose_check_fails_is_not_kept(directories: Directories, open_folder: Callable[[], int]) -> None:
    with directories.hold(KEY, open_folder, is_current=always):
        pass

    def fail(_: Directory) -> bool:
        raise GivenUp

    before = open_descriptors()
    with pytest.raises(GivenUp), directories.hold(KEY, open_folder, is_current=fail):
        pass
    assert open_descriptors() == before - 1


def test_a_directory_opened_while_everything_is_closed_does_not_stay_open(
    directories: Directories, open_folder: Callable[[], int]
) -> None:
    before = open_descriptors()

    def open_too_late() -> int:
        directories.close()
        return open_folder()

    with directories.root(), directories.hold(KEY, open_too_late, is_current=always) as late:
        os.fstat(late.descriptor)
    assert open_descriptors() == before - 1
    with pytest.raises(StoreUnavailable), directories.root():
        pass


def test_a_destroyed_room_does_not_stay_open(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path / "root", durability="process")
    before = open_descriptors()
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"x")
    assert open_descriptors() == before + 1
    room.destroy()
    assert open_descriptors() == before
    store.close()
