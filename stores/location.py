"""From a URL to a store."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes

from stores.blob import BlobStore
from stores.connections import Durability
from stores.database import DatabaseStore
from stores.filesystem import FilesystemStore
from stores.memory import MemoryStore
from stores.sql import Database

_FORMS: Final = "A store URL is one of file:///ABSOLUTE/PATH, database: and memory:."


def open_store(url: str, *, durability: Durability = "power", database: Database | None = None) -> BlobStore:
    """
    Open the store a URL names.

    :param url: `file:///ABSOLUTE/PATH` (percent-decoded once), `database:` or `memory:`.
    :param durability: What a write survives: `"power"` loss, or the death of this `"process"`. A database store is as
        durable as its database was opened to be.
    :param database: Where `database:` keeps its rows. Whoever opened it closes it.
    :returns: The open store. Whoever called this closes it.
    :raises ValueError: If the URL has another form, or `database:` is asked for without one. The message holds no part
        of the URL.
    :raises StoreError: If the place cannot be used; `StoreDenied` says what to do about it.
    """
    scheme, _, rest = url.partition(":")
    if scheme not in _OPENERS or ":" not in url:
        raise ValueError(_FORMS)
    if durability not in ("power", "process"):
        raise ValueError('Durability is "power" or "process".')
    return _OPENERS[scheme](rest, durability, database)


def _open_file(rest: str, durability: Durability, _database: Database | None) -> BlobStore:
    # Two slashes and then a path: no host, no query, no fragment.
    if not rest.startswith("///") or "?" in rest or "#" in rest:
        raise ValueError(_FORMS)
    path = os.fsdecode(unquote_to_bytes(rest[2:]))
    if "\0" in path:
        raise ValueError(_FORMS)
    return FilesystemStore(path, durability=durability)


def _open_database(rest: str, _durability: Durability, database: Database | None) -> BlobStore:
    if rest:
        raise ValueError(_FORMS)
    if database is None:
        raise ValueError("The store database: needs the database of a catalogue.")
    return DatabaseStore(database)


def _open_memory(rest: str, _durability: Durability, _database: Database | None) -> BlobStore:
    if rest:
        raise ValueError(_FORMS)
    return MemoryStore()


_OPENERS: Final[Mapping[str, Callable[[str, Durability, Database | None], BlobStore]]] = MappingProxyType(
    {"file": _open_file, "database": _open_database, "memory": _open_memory}
)
