"""
Files that no row speaks of: power loss between the two transactions of a write leaves one, a restored backup many.

They are moved to a quarantine, where nothing reads them and nobody but a person deletes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from stores.blob import BlobInfo, BlobStore, Namespace
from stores.errors import StoreDenied, StoreError, StoreFull
from tenancy.backend import Backend, names_of_rows
from tenancy.catalogue.audit import AuditTable
from tenancy.catalogue.sessions import Ids
from tenancy.clock import Clock, to_datetime

#: How long an unknown file is left alone: longer than any write takes and than clocks of machines differ.
GRACE: Final = timedelta(hours=24)
#: For how long a file may have a writer who knows of it, although no row does.
BEING_WRITTEN: Final = timedelta(hours=1)
#: One in so many files may be unknown. More are no accident of a few writes: the catalogue is an old one.
ONE_IN: Final = 100


@dataclass(frozen=True, slots=True)
class UnknownFiles:
    """
    What was found in the store.

    :param files: How many files there are.
    :param unknown: How many of them no row speaks of.
    :param rooms: Where those are.
    :param unreadable: How many places could not be looked into. What is in them is not counted.
    """

    files: int
    unknown: int
    rooms: tuple[tuple[str, str], ...]
    unreadable: int = 0

    @property
    def too_many(self) -> bool:
        """Whether this is no leftover of a few writes."""
        return self.unknown * ONE_IN > self.files


class Quarantine:
    """
    Finds unknown files and sets them aside.

    :param clock: What their age is measured by.
    """

    def __init__(self, backend: Backend, *, clock: Clock) -> None:
        self._backend = backend
        self._audit = backend.across.audit
        self._clock = clock

    def find(self) -> UnknownFiles:
        """Go through all files. Results in the catalogue's own database are not among them."""
        files, unknown, rooms, unreadable = 0, 0, [], 0
        for names in self._everywhere():
            if names is None:
                unreadable += 1
                continue
            try:
                count, strangers = _look(self._backend.store.namespace(*names), self._audit, *names)
            except _NotListed:
                unreadable += 1
                continue
            files += count
            unknown += len(strangers)
            if strangers:
                rooms.append(names)
        return UnknownFiles(files, unknown, tuple(rooms), unreadable)

    def set_aside(self, found: UnknownFiles) -> tuple[int, int]:
        """
        Move those that are old enough.

        :returns: How many were moved, and in how many rooms the store refused to.
        :raises StoreFull: If there is no room for the quarantine. What was moved before is there.
        """
        if not self._backend.store.sets_aside:
            return 0, 0
        done = [self._set_aside(outer, inner) for outer, inner in found.rooms]
        return sum(moved for moved, _ in done), sum(refused for _, refused in done)

    def _everywhere(self) -> Iterator[tuple[str, str] | None]:
        """Go through all rooms. `None` stands for those that the store could not name."""
        # Where results and rows are in one transaction, none is ever without the other.
        if self._backend.store is self._backend.inline:
            return
        try:
            yield from self._backend.store.namespaces()
        except StoreError:
            yield None

    def _set_aside(self, outer: str, inner: str) -> tuple[int, bool]:
        room, moved = self._backend.store.namespace(outer, inner), 0
        try:
            _, strangers = _look(room, self._audit, outer, inner)
        except _NotListed:
            return 0, True
        try:
            for name in self._old(strangers):
                moved += room.set_aside(name)
        except StoreFull:
            raise
        except StoreError:
            # Something that is not ours is in the place of the quarantine. The other rooms are looked at all the same.
            return moved, True
        return moved, False

    def _old(self, strangers: list[BlobInfo]) -> Iterator[str]:
        before = to_datetime(self._clock.now_us()) - GRACE
        for blob in strangers:
            if blob.modified_at is not None and blob.modified_at <= before:
                yield blob.name


class MaybeBeingWritten(StoreError):
    """A file that no row knows is too young to tell whether its writer is about to remove it. Try again later."""

    retryable = True


def rescue(store: BlobStore, audit: AuditTable, ids: Ids) -> int:
    """
    Set aside what no row of a session speaks of: the session's room is about to be removed.

    Beside a catalogue that was restored from a backup these are the results that were written after it.

    :returns: How many were moved.
    :raises MaybeBeingWritten: If something is so young that its writer, who was slower than its lease, may be about to
        remove it. The room is for a later cleanup.
    :raises StoreError: If the store fails. The room is better left as it is.
    """
    if not store.sets_aside:
        return 0
    with names_of_rows():
        room = store.namespace(ids.tenant_id, ids.session_id)
    try:
        _, strangers = _look(room, audit, ids.tenant_id, ids.session_id)
        # Another worker may have removed the session with its rows: then these are what a last writer was just leaving.
        if not strangers or not audit.is_session(ids):
            return 0
        if any(_is_young(blob) for blob in strangers):
            raise MaybeBeingWritten("The room of a session holds what somebody may still be writing.")
        return sum(room.set_aside(blob.name) for blob in strangers)
    except _NotListed as error:
        if isinstance(error.reason, StoreDenied):
            # Something else is in the room's place, a link perhaps: then nothing in it is ours.
            return 0
        raise error.reason from None


def _is_young(blob: BlobInfo) -> bool:
    # By the system's clock, which the store's times come from.
    return blob.modified_at is None or blob.modified_at > datetime.now(UTC) - BEING_WRITTEN


class _NotListed(Exception):
    """The store did not list a room: never the catalogue, which would be no finding of one room's."""

    def __init__(self, reason: StoreError) -> None:
        super().__init__()
        self.reason = reason


def _look(room: Namespace, audit: AuditTable, outer: str, inner: str) -> tuple[int, list[BlobInfo]]:
    """Count the files of a room, and find those that no row speaks of."""
    # Files first, rows second: a write that is under way has its row before its file.
    blobs = _listed(room)
    if not blobs:
        return 0, []
    names = audit.names(outer, inner)
    strangers = [blob for blob in blobs if blob.name not in names]
    if strangers:
        # A delete between the two looks took file and row. Only what is still there has no row for sure.
        still = {blob.name for blob in _listed(room)}
        strangers = [blob for blob in strangers if blob.name in still]
    return len(blobs), strangers


def _listed(room: Namespace) -> list[BlobInfo]:
    try:
        return list(room.list())
    except StoreError as error:
        raise _NotListed(error) from error
