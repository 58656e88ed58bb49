"""From a store's errors to ours, at the border between the two packages."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stores.errors import BlobCorrupt, BlobNotFound, StoreError, StoreFull
from tenancy.errors import ResultCorrupt, StorageFull, StorageUnavailable, TenancyError


@contextmanager
def translated() -> Iterator[None]:
    """
    Let no `StoreError` out, and nothing along with an error that caused it: neither a driver's or the system's own
    error, whose text may hold a row or a path, nor the variables of its frames.

    :raises StorageFull: For a full disk or database.
    :raises ResultCorrupt: For bytes that are gone or not what they were.
    :raises StorageUnavailable: For everything else a store or the database can answer.
    """
    # What the caller is handling already is the caller's, and stays.
    outer = sys.exception()
    try:
        yield
    except StoreError as error:
        ours = as_tenancy_error(error)
        try:
            raise ours from None
        finally:
            # `from None` hides a context from a printed traceback, but not from those who follow `__context__` all the
            # same, as some trackers of errors do.
            ours.__context__ = outer
    except TenancyError as error:
        error.__context__ = outer
        raise


def as_tenancy_error(error: StoreError) -> TenancyError:
    """Return the error of ours that stands for a store's, and cut the store's off from what caused it."""
    error.__context__ = None
    if isinstance(error, StoreFull):
        return StorageFull(str(error))
    if isinstance(error, BlobCorrupt | BlobNotFound):
        return ResultCorrupt()
    return StorageUnavailable(str(error))
