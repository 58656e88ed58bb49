"""Stores of opaque blobs: in memory, in files, in a database."""

from stores.blob import BlobInfo, BlobStore, JoinableNamespace, Namespace
from stores.errors import (
    BlobCorrupt,
    BlobExists,
    BlobNotFound,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from stores.location import open_store

__all__ = [
    "BlobCorrupt",
    "BlobExists",
    "BlobInfo",
    "BlobNotFound",
    "BlobStore",
    "JoinableNamespace",
    "Namespace",
    "StoreDenied",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "open_store",
]
