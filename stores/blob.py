"""
The contract of a store: opaque names and bytes.

A store knows nothing of tenants, sessions, quotas or expiry. It keeps blobs in namespaces; a namespace has an outer
and an inner name. All names follow `stores.names`. Everything here is safe to call from many threads at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stores.transactions import Transaction


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One blob as a listing shows it."""

    name: str
    size_bytes: int
    #: When it was written, aware UTC; `None` where the store does not know.
    modified_at: datetime | None = None


class Namespace(Protocol):
    """
    A handle to one room of a store. It has no parameter by which a caller could name another room.

    Implementers may rely on this: `data` is `bytes`, sizes are not negative, and `start + length <= size_bytes`.
    They must check names themselves, in their lowest layer, before anything else.
    """

    def put(self, name: str, data: bytes) -> None:
        """
        Create a blob. When this returns, the blob is as durable as the store was opened to be.

        :raises ValueError: If `name` is not a stored name.
        :raises BlobExists: If there is a blob of this name. It is untouched.
        :raises StoreFull: If there is no room. Nothing is left behind.
        :raises StoreError: If the store refuses or fails. At most an incomplete blob of this name is left, which no
            reader who checks the size can take for a whole one; `delete` removes it.
        """
        ...

    def get(self, name: str, *, size_bytes: int) -> bytes:
        """
        Return a whole blob.

        :param size_bytes: The size it must have.
        :raises BlobNotFound: If there is none.
        :raises BlobCorrupt: If what is there has another size or is not a plain blob. Nothing is returned.
        """
        ...

    def get_range(self, name: str, *, start: int, length: int, size_bytes: int) -> bytes:
        """
        Return exactly `length` bytes from `start`. The same checks and errors as `get`.

        :param size_bytes: The size the whole blob must have.
        :raises ValueError: If the range does not lie within `size_bytes`.
        """
        ...

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]], *, size_bytes: int) -> Sequence[bytes]:
        """
        Return several parts of one blob, which the store is asked for once. See `get_range`.

        :param ranges: Each a start and a length; at least one.
        :returns: The parts, in this order.
        :raises ValueError: If a range does not lie within `size_bytes`, or there is none.
        """
        ...

    def delete(self, name: str) -> None:
        """Make sure there is no blob of this name; its absence is success. Durable when this returns."""
        ...

    def list(self) -> Iterator[BlobInfo]:
        """Go through the blobs of this namespace, in no promised order. What is not a blob of ours is left out."""
        ...

    def set_aside(self, name: str) -> bool:
        """
        Move a blob out of this room into the store's quarantine, where no room reaches it and no call removes it.

        Only where the store `sets_aside`. Durable when this returns.

        :returns: Whether there was one.
        """
        ...

    def destroy(self) -> None:
        """Remove every blob of this namespace and the room itself. May be repeated; an absent room is success."""
        ...


class BlobStore(Protocol):
    """A place that holds namespaces."""

    #: Whether `Namespace.joined(transaction)` exists, so that a blob can share a database transaction with its row.
    joins_transactions: bool
    #: Whether it has a quarantine, and `Namespace.set_aside` works.
    sets_aside: bool

    def namespace(self, outer: str, inner: str) -> Namespace:
        """
        Return the handle of one room. Nothing is created before the first `put`.

        :raises ValueError: If a name is not a stored name.
        """
        ...

    def namespaces(self) -> Iterator[tuple[str, str]]:
        """
        Go through the (outer, inner) names of all rooms that hold anything. For consistency checks only.

        A room that cannot be listed is among them: its own `list` says why.

        :raises StoreError: When all others were named, if there are rooms that cannot even be named.
        """
        ...

    def sweep(self) -> None:
        """
        Finish what an interrupted `destroy` left. Nothing of it can be read any more; it only takes room.

        :raises StoreError: If something cannot be removed. The next call tries again.
        """
        ...

    def close(self) -> None:
        """Release what the store holds. May be repeated. Later calls raise `StoreUnavailable`."""
        ...


class JoinableNamespace(Namespace, Protocol):
    """A namespace whose blobs can be written inside a transaction of the caller's."""

    def joined(self, transaction: "Transaction") -> Namespace:
        """
        Return this room inside a transaction that the caller has begun and will end.

        :param transaction: Of the database that the rooms are in. On PostgreSQL it sends what a `put` says along with
            what comes next, and an error of it, a `Conflict` among them, comes as late as that.
        """
        ...
