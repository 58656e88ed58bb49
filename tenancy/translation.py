"""From a store's errors to ours, at the border between the two packages."""

from collections.abc import Iterator
from contextlib import contextmanager

from stores.errors import BlobCorrupt, BlobNotFound, StoreError, StoreFull
from tenancy.errors import ResultCorrupt, StorageFull, StorageUnavailable, TenancyError


@contextmanager
def translated() -> Iterator[None]:
    """
    Let no `StoreError` out.

    :raises StorageFull: For a full disk or database.
    :raises ResultCorrupt: For bytes that are gone or not what they were.
    :raises StorageUnavailable: For everything else a store or the database can answer.
    """
    try:
        yield
    except StoreError as error:
        raise as_tenancy_error(error) from None


def as_tenancy_error(error: StoreError) -> TenancyError:
    """Return the error of ours that stands for a store's."""
    if isinstance(error, StoreFull):
        return StorageFull(str(error))
    if isinstance(error, BlobCorrupt | BlobNotFound):
        return ResultCorrupt()
    return StorageUnavailable(str(error))
