"""Errors of the system, at every single step of every call."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stores.errors import BlobNotFound, StoreDenied, StoreError, StoreFull, StoreUnavailable
from stores.filesystem import FilesystemStore
from stores.names import mint_name
from tests.stores.files import INNER, NAME, OUTER, fail_on_call, files_below, open_descriptors, record_syncs

MEANINGS = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EACCES: StoreDenied,
    errno.EPERM: StoreDenied,
    errno.EROFS: StoreDenied,
    errno.EMFILE: StoreUnavailable,
    errno.ENFILE: StoreUnavailable,
    errno.EIO: StoreUnavailable,
    errno.EINTR: StoreUnavailable,
    errno.ESTALE: StoreUnavailable,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> Iterator[FilesystemStore]:
    store = FilesystemStore(root)
    yield store
    store.close()


@pytest.mark.parametrize("call", ["open", "write", "fsync", "mkdir"])
@pytest.mark.parametrize(("code", "meaning"), MEANINGS.items(), ids=[errno.errorcode[code] for code in MEANINGS])
def test_each_error_of_the_system_has_one_meaning_and_nothing_is_left(
    store: FilesystemStore,
    root: Path,
    call: str,
    code: int,
    meaning: type[StoreError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), "/a/path/that/nobody/must/see")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(meaning) as refused:
            store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert type(refused.value) is meaning
    assert "/" not in str(refused.value)
    assert refused.value.__suppress_context__
    assert files_below(root) == []
    store.namespace(OUTER, INNER).put(NAME, b"bytes")


@pytest.mark.case(56)
def test_a_sync_that_failed_is_not_tried_again_on_that_file(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fsync(descriptor: int) -> None:
        tried.append(os.fstat(descriptor).st_ino)
        raise OSError(errno.EIO, "lost")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fsync)
        with pytest.raises(StoreUnavailable):
            store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert len(tried) == 1
    assert files_below(root) == []


@pytest.mark.case(57)
def test_a_directory_whose_sync_failed_is_found_and_synced_anew_from_the_root(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = store.namespace(OUTER, INNER)
    room.put(NAME, b"bytes")
    directory = (root / OUTER / INNER).stat().st_ino
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == directory:
            raise OSError(errno.EIO, "lost")
        real(descriptor)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fsync)
        with pytest.raises(StoreUnavailable):
            room.put("p" * 32, b"bytes")
    assert files_below(root) == [f"{OUTER}/{INNER}/{NAME}"]
    synced = record_syncs(monkeypatch)
    room.put("p" * 32, b"bytes")
    assert {directory, (root / OUTER).stat().st_ino, root.stat().st_ino} < set(synced)


def test_a_system_that_takes_few_bytes_at_a_time_gets_them_all(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: pread(descriptor, min(length, 5), offset))
    data = bytes(range(256))
    room = store.namespace(OUTER, INNER)
    room.put(NAME, data)
    assert room.get(NAME, size_bytes=256) == data
    assert room.get_range(NAME, start=100, length=37, size_bytes=256) == data[100:137]


def test_a_system_that_takes_nothing_is_given_up(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(StoreUnavailable):
        store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert files_below(root) == []


def test_a_write_given_up_by_ctrl_c_leaves_nothing(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(KeyboardInterrupt):
        store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert files_below(root) == []


def test_a_file_that_took_the_place_of_ours_is_not_taken_back(
    store: FilesystemStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / OUTER / INNER / NAME

    def write(descriptor: int, data: bytes) -> int:
        path.unlink()
        path.write_bytes(b"somebody else's")
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StoreUnavailable):
        store.namespace(OUTER, INNER).put(NAME, b"bytes")
    assert path.read_bytes() == b"somebody else's"


def each_step(
    monkeypatch: pytest.MonkeyPatch, root: Path, code: int, call: Callable[[FilesystemStore], object]
) -> Iterator[FilesystemStore]:
    """
    Make `call` fail at its first step, its second, and so on, each time in a store of its own.

    Gives each store after its failure, and ends with the first call that is over before its turn to fail comes.
    """
    number, failed = 1, True
    while failed:
        before = open_descriptors()
        store = FilesystemStore(root / str(number))
        store.namespace(OUTER, INNER).put(NAME, b"bytes")
        with monkeypatch.context() as broken:
            reached = fail_on_call(broken, number, code)
            try:
                call(store)
            except StoreError as error:
                assert not isinstance(error, BlobNotFound)  # noqa: PT017 - any other answer is right
            failed = reached()
        yield store
        store.close()
        # Nothing stays open, whichever step failed.
        assert open_descriptors() == before
        number += 1
    assert number > 5


CODES = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES]


@pytest.mark.case(55)
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_put_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    acknowledged: list[bool] = []

    def put(store: FilesystemStore) -> None:
        acknowledged.append(False)
        store.namespace(OUTER, "p" * 32).put("p" * 32, b"bytes")
        acknowledged[-1] = True

    for store in each_step(monkeypatch, tmp_path, code, put):
        room = store.namespace(OUTER, "p" * 32)
        assert [blob.size_bytes for blob in room.list()] == [5] * acknowledged[-1]
        room.put(mint_name(), b"another")


@pytest.mark.case(55)
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_delete_that_fails_at_any_step_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    for store in each_step(monkeypatch, tmp_path, code, lambda store: store.namespace(OUTER, INNER).delete(NAME)):
        store.namespace(OUTER, INNER).delete(NAME)
        assert list(store.namespace(OUTER, INNER).list()) == []


@pytest.mark.case(55)
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_read_that_fails_at_any_step_says_so_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def read(store: FilesystemStore) -> None:
        # Without anything kept open, so that the way from the root fails too.
        store._directories.forget((OUTER, INNER))
        assert store.namespace(OUTER, INNER).get(NAME, size_bytes=5) == b"bytes"

    for store in each_step(monkeypatch, tmp_path, code, read):
        assert store.namespace(OUTER, INNER).get(NAME, size_bytes=5) == b"bytes"


@pytest.mark.case(55)
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_destruction_that_fails_at_any_step_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def destroy(store: FilesystemStore) -> None:
        store.namespace(OUTER, INNER).put(mint_name(), b"second")
        store.namespace(OUTER, INNER).destroy()

    for number, store in enumerate(each_step(monkeypatch, tmp_path, code, destroy), start=1):
        store.namespace(OUTER, INNER).destroy()
        store.sweep()
        assert list(store.namespaces()) == []
        assert files_below(tmp_path / str(number)) == []


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_listing_that_fails_at_any_step_says_so_and_is_never_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    listings: list[list[str]] = []

    def go_through(store: FilesystemStore) -> None:
        listings.append([blob.name for blob in store.namespace(OUTER, INNER).list()])

    stores = sum(1 for _ in each_step(monkeypatch, tmp_path, code, go_through))
    assert len(listings) < stores
    assert listings == [[NAME]] * len(listings)
