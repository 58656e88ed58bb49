"""Which catalogue this is, and which key-encryption keys it was made with."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from stores.errors import Conflict
from stores.names import mint_name
from stores.sql import Database, Statement, Transaction
from tenancy.catalogue.moments import Moments, now_us
from tenancy.keys.providers import WrappedKey
from tenancy.schema import CATALOGUE, ROOT_KEYS

_READ: Final = Statement(sa.select(CATALOGUE.c.catalogue_id))
_CREATE: Final = Statement(
    CATALOGUE.insert().values(id=1, catalogue_id=sa.bindparam("catalogue_id"), created_at_us=now_us())
)
_READ_KEYS: Final = Statement(sa.select(ROOT_KEYS.c.provider, ROOT_KEYS.c.key_id, ROOT_KEYS.c.check_value))
_LOCK: Final = Statement(sa.select(CATALOGUE.c.catalogue_id).with_for_update())
_ADD_KEY: Final = Statement(
    ROOT_KEYS.insert().values(
        provider=sa.bindparam("provider"),
        key_id=sa.bindparam("key_id"),
        check_value=sa.bindparam("check_value"),
        created_at_us=now_us(),
    )
)


@dataclass(frozen=True, slots=True)
class RootKey:
    """A key-encryption key this catalogue knows, with a value that only this key opens."""

    provider: str
    check: WrappedKey


class IdentityTable:
    """The catalogue's own row and its root keys."""

    def __init__(self, database: Database, moments: Moments) -> None:
        self._database = database
        self._moments = moments

    def catalogue_id(self) -> str:
        """Return this catalogue's id; a catalogue that has none yet gets one."""
        for _ in range(2):
            if (known := self.known_id()) is not None:
                return known
            try:
                with self._database.writing() as transaction:
                    transaction.execute(_CREATE, catalogue_id=mint_name(), now_us=self._moments.parameter())
            except Conflict:
                # Another process was faster: its id is the one.
                continue
        known = self.known_id()
        if known is None:
            raise LookupError("The catalogue has no id.")
        return known

    def known_id(self) -> str | None:
        """Return this catalogue's id, or `None` if it has none yet. Changes nothing."""
        with self._database.reading() as transaction:
            row = transaction.one(_READ)
        return None if row is None else str(row[0])

    def root_keys(self) -> list[RootKey]:
        """Return the key-encryption keys this catalogue knows."""
        with self._database.reading() as transaction:
            rows = transaction.all(_READ_KEYS)
        return [RootKey(provider=row[0], check=WrappedKey(key_id=row[1], data=row[2])) for row in rows]

    def remember_root_key(self, key: RootKey, *, beside: Collection[str]) -> None:
        """
        Remember one more key-encryption key, which tenants' keys are about to be put under.

        :param beside: The ids of those keys of its provider that were known when this one was held to them.
        :raises Conflict: If others are known by now. Nothing was changed; hold it to those.
        """
        with self._database.writing() as transaction:
            transaction.one(_LOCK)
            known = {row[1] for row in transaction.all(_READ_KEYS) if row[0] == key.provider}
            if key.check.key_id in known:
                return
            if known != set(beside):
                raise Conflict("Another key of the same provider is known by now.")
            self._add(transaction, key)

    def add_root_key(self, key: RootKey) -> None:
        """
        Remember the key-encryption key of a catalogue that has none.

        :raises Conflict: If it has one. Of two first starts with different keys the second is the one that is refused.
        """
        with self._database.writing() as transaction:
            transaction.one(_LOCK)
            if transaction.one(_READ_KEYS) is not None:
                raise Conflict("This catalogue has a key already.")
            self._add(transaction, key)

    def _add(self, transaction: Transaction, key: RootKey) -> None:
        transaction.execute(
            _ADD_KEY,
            provider=key.provider,
            key_id=key.check.key_id,
            check_value=key.check.data,
            now_us=self._moments.parameter(),
        )
