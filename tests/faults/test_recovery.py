"""The checker of the sweep can fail: with one thing taken away from the library, it says what is broken."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from stores import filesystem
from stores.errors import BlobCorrupt, StoreError
from stores.filesystem import FilesystemNamespace, FilesystemStore
from stores.trash import Trash
from tenancy.catalogue import results as result_table
from tenancy.catalogue.reclaim import ReclaimTable
from tenancy.catalogue.results import ResultTable
from tenancy.reading import Reader
from tenancy.session import Session
from tests.faults.operations import OPERATIONS
from tests.faults.plans import Shot
from tests.faults.sweep import Bench
from tests.forked import in_a_child

#: Beyond the last call: nothing strikes.
NO_FAULT = Shot("EIO", 1_000_000)


class Benches:
    """Makes each bench once."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[tuple[str, str], Bench] = {}

    def __call__(self, name: str, way: str = "files") -> Bench:
        """Return where an operation is tried."""
        if (name, way) not in self._made:
            operation = next(operation for operation in OPERATIONS if operation.name == name)
            self._made[name, way] = Bench(operation, way, folder=self._factory.mktemp("bench"))
        return self._made[name, way]


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Benches:
    """Where operations are tried."""
    return Benches(tmp_path_factory)


def broken(bench: Bench, *shots: Shot) -> set[str]:
    """Say what is broken after any of some faults."""
    return set(in_a_child(lambda: [sentence for shot in shots for sentence in bench.strike(shot).broken]))


def at(bench: Bench, call: str, *, mode: str) -> Shot:
    """Strike the call that is described so: the first one by its name and the beginning of its target, or the last."""
    call, _, is_last = call.partition(", ")
    hit = in_a_child(lambda: [str(seen) for seen in bench.calls() if seen.is_hit_by(mode)])
    numbers = [number for number, seen in enumerate(hit, start=1) if seen.startswith(call)]
    return Shot(mode, numbers[-1 if is_last else 0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), [(operation.name, way) for operation in OPERATIONS for way in operation.ways])
def test_without_a_fault_nothing_is_broken(benches: Benches, name: str, way: str) -> None:
    assert broken(benches(name, way), NO_FAULT) == set()


def without_unlink(patch: pytest.MonkeyPatch) -> None:
    """A delete that forgets the file."""
    patch.setattr(filesystem, "unlink", lambda directory, name: True)


def without_refund(patch: pytest.MonkeyPatch) -> None:
    """A delete that keeps the charge."""
    patch.setattr(result_table, "refund", lambda *_, **__: None)


def with_nothing_deleted(patch: pytest.MonkeyPatch) -> None:
    """A delete that acknowledges and does nothing."""
    patch.setattr(Session, "delete", lambda session, reference: None)


def with_half_a_read(patch: pytest.MonkeyPatch) -> None:
    """A read that loses the last character, here and nowhere else."""
    patch.setattr(Reader, "read", lambda reader, reference: "half")


def with_trash_left(patch: pytest.MonkeyPatch) -> None:
    """Rooms that are moved aside and stay there."""
    patch.setattr(Trash, "empty", lambda *_, **__: None)
    patch.setattr(FilesystemStore, "sweep", lambda store: None)


def without_rows_of_sessions_removed(patch: pytest.MonkeyPatch) -> None:
    """Sessions that end and stay."""
    patch.setattr(ReclaimTable, "claim_ended", lambda *_, **__: [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "name", "said"),
    [
        (without_unlink, "delete", "rows, counters and files do not agree"),
        (without_refund, "delete", "verify finds"),
        (with_nothing_deleted, "delete", "what was removed and acknowledged is there again"),
        (with_half_a_read, "read", "it read something else than was written"),
        (with_trash_left, "delete session", "something is left in the trash"),
        (without_rows_of_sessions_removed, "cleanup", "a session is left half removed"),
    ],
)
def test_a_library_that_forgets_a_step_is_caught_without_any_fault(
    benches: Benches, monkeypatch: pytest.MonkeyPatch, sabotage: Callable[..., None], name: str, said: str
) -> None:
    bench = benches(name)
    sabotage(monkeypatch)
    assert any(said in sentence for sentence in broken(bench, NO_FAULT))


def row_before_file(patch: pytest.MonkeyPatch) -> None:
    """The row is committed when the file is still to come."""
    insert, commit = ResultTable.insert, ResultTable.commit

    def early(table: ResultTable, new: Any, *, put: Any = None) -> Any:
        inserted = insert(table, new, put=put)
        commit(table, new, inserted.reference.number)
        return inserted

    patch.setattr(ResultTable, "insert", early)
    patch.setattr(ResultTable, "commit", lambda *_: None)


def system_errors_leak(patch: pytest.MonkeyPatch) -> None:
    """Whatever the system says goes on to whoever called."""
    patch.setattr(filesystem, "translated", lambda **_: nullcontext())


def every_error_is_damage(patch: pytest.MonkeyPatch) -> None:
    """A store that takes each trouble with the disk for a damaged result."""
    get = FilesystemNamespace.get

    def corrupt(namespace: FilesystemNamespace, name: str, *, size_bytes: int) -> bytes:
        try:
            return get(namespace, name, size_bytes=size_bytes)
        except StoreError:
            raise BlobCorrupt("damaged") from None

    patch.setattr(FilesystemNamespace, "get", corrupt)


def commit_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A write that does not care whether its commit went through."""
    commit = ResultTable.commit

    def careless(*arguments: Any) -> None:
        with suppress(StoreError):
            commit(*arguments)

    patch.setattr(ResultTable, "commit", careless)


def failed_syncs_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    """A store that syncs and does not look at the answer."""
    patch.setattr(filesystem, "os", Careless(filesystem.os, again=False))


def failed_syncs_are_tried_again(patch: pytest.MonkeyPatch) -> None:
    """A store that syncs until the kernel has forgotten the error."""
    patch.setattr(filesystem, "os", Careless(filesystem.os, again=True))


class Careless:
    """The module `os` with another `fsync`."""

    def __init__(self, real: Any, *, again: bool) -> None:
        self._real = real
        self._again = again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def fsync(self, descriptor: int) -> None:
        """Sync, and go on whatever comes of it."""
        try:
            self._real.fsync(descriptor)
        except OSError:
            if self._again:
                self._real.fsync(descriptor)


def trash_is_not_emptied_again(patch: pytest.MonkeyPatch) -> None:
    """What an interruption leaves in the trash stays there."""
    empty = Trash.empty

    def only_this(own: Trash, root: int, *, name: str | None = None, and_others: bool = False) -> None:
        if name is not None:
            empty(own, root, name=name)

    patch.setattr(Trash, "empty", only_this)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "name", "call", "mode", "said"),
    [
        (row_before_file, "write", "openat results", "EIO", "a result that is listed cannot be read"),
        (system_errors_leak, "write", "write results", "ENOSPC", "which is no error of ours"),
        (system_errors_leak, "delete", "unlinkat results", "EACCES", "which is no error of ours"),
        (every_error_is_damage, "read", "pread64 results", "EIO", "ResultCorrupt, which says something that is not"),
        (commit_is_not_waited_for, "write", "fdatasync catalogue, last", "EIO", "a write was acknowledged and is lost"),
        (failed_syncs_do_not_matter, "write", "fsync results", "EIO", "could not be synced, and it was acknowledged"),
        (failed_syncs_are_tried_again, "write", "fsync results", "EIO", "could not be synced was synced again"),
        (
            trash_is_not_emptied_again,
            "delete session",
            "unlinkat results/trash",
            "EIO",
            "something is left in the trash",
        ),
    ],
)
def test_a_library_that_does_not_expect_a_fault_is_caught_by_it(
    benches: Benches,
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[..., None],
    name: str,
    call: str,
    mode: str,
    said: str,
) -> None:
    bench = benches(name)
    assert broken(bench, at(bench, call, mode=mode)) == set(), "the library as it is"
    sabotage(monkeypatch)
    assert any(said in sentence for sentence in broken(bench, at(bench, call, mode=mode)))
