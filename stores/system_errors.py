"""What the operating system's errors mean for a blob."""

import errno
from types import TracebackType
from typing import Final

from stores.errors import BlobCorrupt, StoreDenied, StoreError, StoreFull, StoreUnavailable

#: EMLINK: a directory takes no more subdirectories. EFBIG: the file system takes no file of this size.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EFBIG})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: A symbolic link, a socket, a device, a file in place of a directory.
_FOREIGN: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV})


class translated:  # noqa: N801 - reads as the block it is
    """
    Turn an `OSError` into a `StoreError`. Its own text may hold a name or a path, so nothing of it is passed on.

    :param reading: Whether a foreign thing in place of ours means that a blob cannot be trusted.
    """

    __slots__ = ("_reading",)

    def __init__(self, *, reading: bool = False) -> None:
        self._reading = reading

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise _translate(error, reading=self._reading) from None


def is_full(error: OSError) -> bool:
    """Tell whether a disk, a quota or a directory had no room left."""
    return error.errno in _FULL


def _translate(error: OSError, *, reading: bool) -> StoreError:
    if is_full(error):
        return StoreFull("The disk of the store is full.")
    if error.errno in _DENIED:
        return StoreDenied("The operating system does not let this process do that in the store's directory.")
    if error.errno in _FOREIGN and reading:
        return BlobCorrupt("What stands in place of the blob or of its directory was not put there by this store.")
    if error.errno in _FOREIGN:
        return StoreDenied("Something that is no directory of the store's stands in place of one; remove it by hand.")
    name = errno.errorcode.get(error.errno or 0, "no number")
    return StoreUnavailable(f"The file system did not do what it was asked ({name}).")
