"""What the sessions and jobs of one manager share."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from stores.blob import BlobStore, Namespace
from stores.database import DatabaseStore
from stores.errors import BlobCorrupt, StoreError
from stores.sql import Transaction
from tenancy.catalogue import Catalogue
from tenancy.catalogue.sessions import Ids
from tenancy.keys.keyring import Keyring
from tenancy.keys.material import SecretKey
from tenancy.keys.stored import SessionKey, TenantKey

#: How long moving an idle expiry may wait for a lock.
_TOUCH_PATIENCE_SECONDS: Final = 0.2


@dataclass(slots=True, eq=False)
class Backend:
    """
    The catalogue, the two places where bytes may be, and the keys.

    :param catalogue: As the role that serves one tenant at a time.
    :param across: The same catalogue as the role that works on all tenants. Without such a role its calls refuse.
    :param store: Where sealed bytes above `inline_bytes` go.
    :param inline: The catalogue's own table of blobs. The same object as `store` when that is `database:`.
    :param inline_bytes: Sealed bytes up to this many go into `inline`, in one transaction with their row.
    :param compresses: Whether text is compressed where that makes it shorter.
    """

    catalogue: Catalogue
    across: Catalogue
    store: BlobStore
    inline: DatabaseStore
    keyring: Keyring
    inline_bytes: int
    compresses: bool
    #: Set when the manager closes; every handle then refuses.
    closed: bool = field(default=False, init=False)
    #: What stops those who work in the background, before anything closes. Whoever has ended is not among them.
    on_close: set[Callable[[], None]] = field(default_factory=set, init=False)

    def close(self) -> None:
        """
        Close the store, the keys and the database. Handles that are left refuse from now on.

        A step that raises, as when Ctrl-C ends the wait for a janitor, keeps none of the others from being taken.
        """
        self.closed = True
        with contextlib.ExitStack() as steps:
            # The last one first.
            steps.callback(self.across.database.close)
            steps.callback(self.catalogue.database.close)
            steps.callback(self.keyring.close)
            steps.callback(self.store.close)
            for stop in tuple(self.on_close):
                steps.callback(stop)

    def goes_inline(self, sealed_bytes: int) -> bool:
        """Tell where sealed bytes of this size go."""
        return self.store is self.inline or sealed_bytes <= self.inline_bytes

    def session_key(self, ids: Ids, tenant_key: TenantKey, session_key: SessionKey) -> SecretKey:
        """Open a session's key. The caller closes it."""
        return self.keyring.session_key(
            tenant_key, session_key, tenant_id=ids.tenant_id, user_id=ids.user_id, session_id=ids.session_id
        )

    def touch(self, ids: Ids) -> None:
        """Move a session's idle expiry because it was used. The next use tries again; nothing fails because of it."""
        with contextlib.suppress(StoreError):
            self.catalogue.sessions.touch(ids, patience_seconds=_TOUCH_PATIENCE_SECONDS)

    def namespace(self, ids: Ids, *, inline: bool) -> Namespace:
        """Return the room of a session in the place where a result is."""
        store: BlobStore = self.inline if inline else self.store
        with names_of_rows():
            return store.namespace(ids.tenant_id, ids.session_id)

    def putter(self, ids: Ids, name: str, data: bytes) -> Callable[[Transaction], None]:
        """Return what writes a blob inside a transaction of the catalogue's."""

        def put(transaction: Transaction) -> None:
            self._joined(ids, transaction).put(name, data)

        return put

    def drop_one(self, ids: Ids) -> Callable[[Transaction, str], None]:
        """Return what deletes one blob inside a transaction of the catalogue's."""

        def drop(transaction: Transaction, name: str) -> None:
            with names_of_rows():
                self._joined(ids, transaction).delete(name)

        return drop

    def drop_all(self, ids: Ids, transaction: Transaction) -> None:
        """Delete all of a session's blobs inside a transaction of the catalogue's."""
        self._joined(ids, transaction).destroy()

    def destroy_files(self, ids: Ids) -> None:
        """Remove whatever a session has outside the catalogue's database."""
        if self.store is not self.inline:
            self.namespace(ids, inline=False).destroy()

    def _joined(self, ids: Ids, transaction: Transaction) -> Namespace:
        with names_of_rows():
            return self.inline.namespace(ids.tenant_id, ids.session_id).joined(transaction)


class names_of_rows:  # noqa: N801 - reads as the block it is
    """
    Take a name out of a row that no store accepts for what it is: a damaged row, and an error of its own only.

    :raises BlobCorrupt: In place of the store's `ValueError`.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ValueError):
            raise BlobCorrupt("A row of the catalogue holds a name that no store gave; it is damaged.") from None
