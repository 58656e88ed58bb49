"""From a store's errors to ours, at the border between the two packages."""

import sys
from types import TracebackType

from stores.errors import BlobCorrupt, BlobNotFound, StoreError, StoreFull
from tenancy.errors import ResultCorrupt, StorageFull, StorageUnavailable, TenancyError


class translated:  # noqa: N801 - reads as the block it is
    """
    Let no `StoreError` out, and nothing along with an error that caused it: neither a driver's or the system's own
    error, whose text may hold a row or a path, nor the variables of its frames.

    :raises StorageFull: For a full disk or database.
    :raises ResultCorrupt: For bytes that are gone or not what they were.
    :raises StorageUnavailable: For everything else a store or the database can answer.
    """

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        # What the caller is handling already is the caller's, and stays.
        self._outer = sys.exception()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreError):
            ours = as_tenancy_error(error)
            try:
                raise ours from None
            finally:
                # `from None` hides a context from a printed traceback, but not from those who follow `__context__` all
                # the same, as some trackers of errors do.
                ours.__context__ = self._outer
        if isinstance(error, TenancyError):
            error.__context__ = self._outer


def as_tenancy_error(error: StoreError) -> TenancyError:
    """Return the error of ours that stands for a store's, and cut the store's off from what caused it."""
    error.__context__ = None
    if isinstance(error, StoreFull):
        return StorageFull(str(error))
    if isinstance(error, BlobCorrupt | BlobNotFound):
        return ResultCorrupt()
    return StorageUnavailable(str(error))
