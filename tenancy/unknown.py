"""
Files that no row speaks of: power loss between the two transactions of a write leaves one, a restored backup many.

They are moved to a quarantine, where nothing reads them and nobody but a person deletes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from stores.blob import BlobInfo, Namespace
from tenancy.backend import Backend
from tenancy.clock import Clock, to_datetime

#: How long an unknown file is left alone: longer than any write takes and than clocks of machines differ.
GRACE: Final = timedelta(hours=24)
#: One in so many files may be unknown. More are no accident of a few writes: the catalogue is an old one.
ONE_IN: Final = 100


@dataclass(frozen=True, slots=True)
class UnknownFiles:
    """
    What was found in the store.

    :param files: How many files there are.
    :param unknown: How many of them no row speaks of.
    :param rooms: Where those are.
    """

    files: int
    unknown: int
    rooms: tuple[tuple[str, str], ...]

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
        files, unknown, rooms = 0, 0, []
        # Where results and rows are in one transaction, none is ever without the other.
        everywhere = () if self._backend.store is self._backend.inline else self._backend.store.namespaces()
        for outer, inner in everywhere:
            found, strangers = self._look(self._backend.store.namespace(outer, inner), outer, inner)
            files += found
            unknown += len(strangers)
            if strangers:
                rooms.append((outer, inner))
        return UnknownFiles(files, unknown, tuple(rooms))

    def set_aside(self, found: UnknownFiles) -> int:
        """
        Move those that are old enough.

        :returns: How many were moved.
        """
        if not self._backend.store.sets_aside:
            return 0
        return sum(self._set_aside(outer, inner) for outer, inner in found.rooms)

    def _set_aside(self, outer: str, inner: str) -> int:
        room = self._backend.store.namespace(outer, inner)
        _, strangers = self._look(room, outer, inner)
        return sum(room.set_aside(name) for name in self._old(strangers))

    def _old(self, strangers: list[BlobInfo]) -> Iterator[str]:
        before = to_datetime(self._clock.now_us()) - GRACE
        for blob in strangers:
            if blob.modified_at is not None and blob.modified_at <= before:
                yield blob.name

    def _look(self, room: Namespace, outer: str, inner: str) -> tuple[int, list[BlobInfo]]:
        """Count the files of a room, and find those that no row speaks of."""
        # Files first, rows second: a write that is under way has its row before its file.
        blobs = list(room.list())
        names = self._audit.names(outer, inner)
        strangers = [blob for blob in blobs if blob.name not in names]
        if strangers:
            # A delete between the two looks took file and row. Only what is still there has no row for sure.
            still = {blob.name for blob in room.list()}
            strangers = [blob for blob in strangers if blob.name in still]
        return len(blobs), strangers
