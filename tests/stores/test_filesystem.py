"""The filesystem store in ordinary weather: the contract, modes, durability, and how much it holds open."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stores.filesystem
from stores.errors import BlobNotFound, StoreDenied, StoreUnavailable
from stores.filesystem import FilesystemStore
from stores.names import mint_name
from stores.testing import BlobStoreContract
from tests.stores.files import INNER, NAME, OUTER, files_below, modes_below, open_descriptors, record_syncs


@pytest.mark.case(34, 80, 110)
class TestFilesystemStore(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FilesystemStore]:
        store = FilesystemStore(tmp_path / "root", durability="process")
        yield store
        store.close()


class TestFilesystemStoreThatSurvivesPowerLoss(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FilesystemStore]:
        # With hardly a directory kept, so that the contract also runs into evictions.
        store = FilesystemStore(tmp_path / "root", durability="power", open_directories=1)
        yield store
        store.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> Iterator[FilesystemStore]:
    store = FilesystemStore(root)
    yield store
    store.close()


def test_a_blob_is_a_file_of_that_name_in_that_room(store: FilesystemStore, root: Path) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert files_below(root) == [f"{OUTER}/{INNER}/{NAME}"]
    assert (root / OUTER / INNER / NAME).read_bytes() == b"bytes"


def test_a_store_opened_again_finds_everything(store: FilesystemStore, root: Path) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    store.close()
    again = FilesystemStore(f"{root}/")
    assert again.namespace(OUTER, INNER).get(NAME, size_bytes=5) == b"bytes"
    assert list(again.namespaces()) == [(OUTER, INNER)]
    again.close()


@pytest.mark.case(22, 92)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o377], ids=oct)
def test_files_are_0600_and_directories_0700_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = FilesystemStore(tmp_path / "root")
        store.namespace(OUTER, INNER).put(NAME, b"bytes")
        store.namespace(OUTER, mint_name()).put(NAME, b"bytes")
        store.namespace(OUTER, INNER).destroy()
        store.close()
    finally:
        os.umask(before)
    assert modes_below(tmp_path / "root") == {"directories": {0o700}, "files": {0o600}}


@pytest.mark.case(22, 92)
@pytest.mark.parametrize("made", ["root", "room"])
def test_a_umask_that_locks_the_owner_out_is_refused_and_leaves_no_locked_directory(tmp_path: Path, made: str) -> None:
    store = FilesystemStore(tmp_path / "there")
    room = store.namespace(OUTER, INNER)
    makers: dict[str, Callable[[], object]] = {
        "root": lambda: FilesystemStore(tmp_path / "root"),
        "room": lambda: room.put(NAME, b"bytes"),
    }
    before = os.umask(0o777)
    try:
        with pytest.raises(StoreDenied, match="umask 077"):
            makers[made]()
    finally:
        os.umask(before)
    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]
    store.close()


def test_what_lies_beside_the_blobs_is_never_listed(store: FilesystemStore, root: Path) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    for folder in (root, root / OUTER, root / OUTER / INNER):
        (folder / ".DS_Store").write_bytes(b"x")
        (folder / "lost+found").mkdir()
        (folder / NAME.upper()).write_bytes(b"x")
        (folder / ("d" * 32)).mkdir()
        (folder / ("l" * 32)).symlink_to(root / OUTER / INNER / NAME)
    os.mkfifo(root / OUTER / INNER / ("f" * 32))
    assert [blob.name for blob in store.namespace(OUTER, INNER).list()] == [NAME]
    assert list(store.namespaces()) == [(OUTER, INNER)]


def test_a_file_removed_behind_our_back_is_not_found(store: FilesystemStore, root: Path) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    (root / OUTER / INNER / NAME).unlink()
    with pytest.raises(BlobNotFound):
        room.get(NAME, size_bytes=5)
    room.delete(NAME)


def test_power_loss_is_survived_by_syncing_file_room_and_whatever_leads_there(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    steps = [root / OUTER / INNER / NAME, root / OUTER / INNER, root / OUTER, root]
    assert synced == [step.stat().st_ino for step in steps]


def test_a_room_known_to_be_on_disk_costs_two_syncs(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    synced = record_syncs(monkeypatch)
    second = mint_name()
    room.put(second, b"bytes")
    assert synced == [(root / OUTER / INNER / second).stat().st_ino, (root / OUTER / INNER).stat().st_ino]


def test_a_room_made_by_a_process_that_died_before_it_synced_is_synced_by_the_next(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / OUTER).mkdir(mode=0o700)
    (root / OUTER / INNER).mkdir(mode=0o700)
    synced = record_syncs(monkeypatch)
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert {root.stat().st_ino, (root / OUTER).stat().st_ino} <= set(synced)


def test_a_delete_is_synced_also_if_somebody_else_unlinked_the_file(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    synced = record_syncs(monkeypatch)
    room.delete(NAME)
    room.delete(NAME)
    assert synced == [(root / OUTER / INNER).stat().st_ino] * 2


def test_a_destroyed_room_is_synced_out_of_its_place(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    store.namespace(OUTER, mint_name()).put(NAME, b"stays")
    synced = record_syncs(monkeypatch)
    store.namespace(OUTER, INNER).destroy()
    assert synced == [(root / OUTER).stat().st_ino, root.stat().st_ino]


def test_a_new_root_is_synced_into_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = record_syncs(monkeypatch)
    FilesystemStore(tmp_path / "root").close()
    assert synced == [tmp_path.stat().st_ino]


def test_nothing_is_ever_synced_if_only_our_own_death_is_to_be_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    store = FilesystemStore(tmp_path / "root", durability="process")
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    room.delete(NAME)
    room.destroy()
    store.sweep()
    store.close()
    assert synced == []


def test_no_more_rooms_stay_open_than_agreed(root: Path) -> None:
    before = open_descriptors()
    store = FilesystemStore(root, durability="process", open_directories=5)
    rooms = [store.namespace(mint_name(), mint_name()) for _ in range(40)]

    def work(number: int) -> None:
        for room in (rooms[number:] + rooms[:number])[:20]:
            room.put(mint_name(), b"x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert open_descriptors() == before + 1 + 5
    store.close()
    assert open_descriptors() == before


@pytest.mark.case(14)
def test_a_room_that_was_just_used_stays_open_and_the_one_unused_longest_goes(root: Path) -> None:
    store = FilesystemStore(root, durability="process", open_directories=2)
    often, other, third = (store.namespace(OUTER, mint_name()) for _ in range(3))
    often.put(NAME, b"x")
    other.put(NAME, b"x")
    often.get(NAME, size_bytes=1)
    third.put(NAME, b"x")
    # The way to all three leads nowhere now; what is kept open is still of use for reading.
    (root / OUTER).rename(root / ("x" * 32))
    assert often.get(NAME, size_bytes=1) == b"x"
    assert third.get(NAME, size_bytes=1) == b"x"
    with pytest.raises(BlobNotFound):
        other.get(NAME, size_bytes=1)
    store.close()


def test_a_store_closed_in_the_middle_of_a_call_lets_it_end(root: Path) -> None:
    before = open_descriptors()
    store = FilesystemStore(root)
    room = store.namespace(OUTER, INNER)
    names = {mint_name() for _ in range(3)}
    for name in names:
        room.put(name, b"x")
    listing = room.list()
    found = {next(listing).name}
    store.close()
    found |= {blob.name for blob in listing}
    assert found == names
    assert open_descriptors() == before
    with pytest.raises(StoreUnavailable):
        next(room.list())


def test_a_fork_while_another_thread_holds_the_lock_does_not_hang_the_child(store: FilesystemStore, root: Path) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"parent")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store._directories._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried
        child = os.fork()
    if child == 0:
        try:
            ok = room.get(NAME, size_bytes=6) == b"parent"
            room.put("c" * 32, b"child")
            store.close()
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # What the child closed was its own.
    assert room.get("c" * 32, size_bytes=5) == b"child"
    assert root.stat().st_nlink > 0


def test_what_is_set_aside_is_kept_under_its_names_and_outlives_its_room(store: FilesystemStore, root: Path) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"first")
    assert room.set_aside(NAME)
    room.put(NAME, b"second")
    assert room.set_aside(NAME)
    room.destroy()
    store.sweep()
    aside = sorted((root / "quarantine" / OUTER / INNER).iterdir(), key=lambda path: path.name != NAME)
    assert [path.read_bytes() for path in aside] == [b"first", b"second"]
    assert aside[0].name == NAME
    assert {path.stat().st_mode & 0o777 for path in (root / "quarantine").rglob("*") if path.is_dir()} == {0o700}


def test_a_blob_set_aside_is_in_its_new_place_on_disk_before_it_has_left_the_old(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    synced = record_syncs(monkeypatch)
    assert room.set_aside(NAME)
    quarantine = root / "quarantine"
    places = (root, quarantine, quarantine / OUTER, quarantine / OUTER / INNER, root / OUTER / INNER)
    assert list(synced) == [path.stat().st_ino for path in places]


def test_a_link_in_place_of_the_quarantine_is_not_followed(store: FilesystemStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    (root / "quarantine").symlink_to(outside)
    with pytest.raises(StoreDenied):
        room.set_aside(NAME)
    assert list(outside.iterdir()) == []
    assert room.get(NAME, size_bytes=5) == b"bytes"


def test_a_link_that_leads_nowhere_is_not_written_over_in_the_quarantine(store: FilesystemStore, root: Path) -> None:
    room = store.namespace(OUTER, INNER)
    for content in (b"first", b"second"):
        room.put(NAME, content)
        assert room.set_aside(NAME)
    place = root / "quarantine" / OUTER / INNER
    (place / NAME).unlink()
    (place / NAME).symlink_to("nowhere")
    room.put(NAME, b"third")
    assert room.set_aside(NAME)
    assert (place / NAME).is_symlink()
    assert sorted(path.read_bytes() for path in place.iterdir() if not path.is_symlink()) == [b"second", b"third"]


def test_a_room_that_goes_just_before_a_blob_is_made_in_it_is_said_to_be_gone(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stores.filesystem.new_file

    def destroyed_first(*arguments: Any, **settings: Any) -> Any:
        store.namespace(OUTER, INNER).destroy()
        return real(*arguments, **settings)

    monkeypatch.setattr(stores.filesystem, "new_file", destroyed_first)
    with pytest.raises(StoreUnavailable, match="destroyed while it was written to"):
        store.namespace(OUTER, INNER).put(NAME, b"bytes")
    monkeypatch.undo()
    store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert store.namespace(OUTER, INNER).get(NAME, size_bytes=5) == b"bytes"
