"""From a URL to a store."""

from stores.blob import BlobStore
from stores.sql import Database, Durability


def open_store(url: str, *, durability: Durability = "power", database: Database | None = None) -> BlobStore:
    """Open the store a URL names."""
    raise ValueError("A store URL is one of file:///ABSOLUTE/PATH, database: and memory:.")
