"""Blobs in memory, for tests and for trying things out. They end with the process."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from stores.blob import BlobInfo
from stores.errors import BlobCorrupt, BlobExists, BlobNotFound, StoreDenied, StoreUnavailable
from stores.locks import ProcessLock
from stores.names import require_name
from stores.ranges import require_ranges

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryStore:
    """
    A store in this process's memory. A forked child goes on with a copy of its own.

    :param time_ns: Nanoseconds since 1970, for the times in listings.
    """

    joins_transactions = False
    sets_aside = False

    def __init__(self, *, time_ns: Callable[[], int] = time.time_ns) -> None:
        self._time_ns = time_ns
        self._lock = ProcessLock()
        self._rooms: dict[tuple[str, str], dict[str, _Blob]] = {}
        self._closed = False

    def namespace(self, outer: str, inner: str) -> "MemoryNamespace":
        """Return the handle of one room."""
        return MemoryNamespace(self, require_name(outer), require_name(inner))

    def namespaces(self) -> Iterator[tuple[str, str]]:
        """Go through the rooms that held anything when this was called."""
        self._require_open()
        with self._lock:
            return iter(list(self._rooms))

    def sweep(self) -> None:
        """Do nothing: an interrupted `destroy` leaves nothing half removed here."""

    def close(self) -> None:
        """Forget everything. Later calls raise `StoreUnavailable`."""
        with self._lock:
            self._closed = True
            self._rooms.clear()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store was closed.")


@dataclass(frozen=True, slots=True)
class _Blob:
    data: bytes
    created_at: datetime


class MemoryNamespace:
    """One room of a `MemoryStore`."""

    __slots__ = ("_key", "_store")

    def __init__(self, store: MemoryStore, outer: str, inner: str) -> None:
        self._store = store
        self._key = (outer, inner)

    def put(self, name: str, data: bytes) -> None:
        """Create a blob."""
        require_name(name)
        created_at = _EPOCH + timedelta(microseconds=self._store._time_ns() // 1000)
        with self._store._lock:
            self._store._require_open()
            room = self._store._rooms.setdefault(self._key, {})
            if name in room:
                raise BlobExists("A blob of this name is there already.")
            room[name] = _Blob(data, created_at)

    def get(self, name: str, *, size_bytes: int) -> bytes:
        """Return a whole blob."""
        require_name(name)
        with self._store._lock:
            self._store._require_open()
            blob = self._store._rooms.get(self._key, {}).get(name)
        if blob is None:
            raise BlobNotFound("There is no such blob.")
        if len(blob.data) != size_bytes:
            raise BlobCorrupt("The blob has another size than it was written with.")
        return blob.data

    def get_range(self, name: str, *, start: int, length: int, size_bytes: int) -> bytes:
        """Return a part of a blob."""
        return self.get_ranges(name, ((start, length),), size_bytes=size_bytes)[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]], *, size_bytes: int) -> Sequence[bytes]:
        """Return parts of a blob."""
        require_ranges(ranges, size_bytes=size_bytes)
        data = self.get(name, size_bytes=size_bytes)
        return [data[start : start + length] for start, length in ranges]

    def delete(self, name: str) -> None:
        """Make sure there is no blob of this name."""
        require_name(name)
        with self._store._lock:
            self._store._require_open()
            room = self._store._rooms.get(self._key, {})
            room.pop(name, None)
            if not room:
                self._store._rooms.pop(self._key, None)

    def list(self) -> Iterator[BlobInfo]:
        """Go through the blobs that were there when this was called."""
        with self._store._lock:
            self._store._require_open()
            blobs = list(self._store._rooms.get(self._key, {}).items())
        return (BlobInfo(name, len(blob.data), blob.created_at) for name, blob in blobs)

    def set_aside(self, name: str) -> bool:
        """Refuse: this store has no quarantine."""
        require_name(name)
        raise StoreDenied("This store has no quarantine.")

    def destroy(self) -> None:
        """Remove the room and all in it."""
        with self._store._lock:
            self._store._require_open()
            self._store._rooms.pop(self._key, None)
