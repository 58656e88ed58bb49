"""What a store can answer instead of bytes. No message holds a name, a path or content."""


class StoreError(Exception):
    """
    A store could not do what it was asked.

    :param message: A sentence without names, paths or content.
    """

    #: Whether the same call may succeed later without anybody changing anything.
    retryable: bool = False


class BlobNotFound(StoreError):
    """There is no blob of this name in this namespace."""


class BlobExists(StoreError):
    """A blob of this name is there already; nothing was written."""


class BlobCorrupt(StoreError):
    """What stands under this name is not what was put there: wrong size, kind, owner or link count."""


class StoreFull(StoreError):
    """No space or no inodes left. What was half-written has been taken back."""


class StoreDenied(StoreError):
    """The operating system or the database refuses this process: permissions, read-only, unsafe root."""


class StoreUnavailable(StoreError):
    """The store did not answer, or not in time."""

    retryable = True


class Conflict(StoreError):
    """A unique or foreign key refused the statement. The transaction must be given up."""
