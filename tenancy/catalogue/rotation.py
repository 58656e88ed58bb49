"""
Rotation in SQL: which keys are due, and putting them under others.

A rotation of tenants' or sessions' keys is a moment that stands with the tenant: keys made before it are due. So one
that was interrupted is found by whoever comes next, and carried on. Which keys hang on an old key-encryption key stands
with each of them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stores.errors import Conflict
from tenancy.catalogue import root_key_statements as root_sql
from tenancy.catalogue import rotation_statements as sql
from tenancy.catalogue.access import Access
from tenancy.catalogue.moments import Moments
from tenancy.catalogue.receipts import HungOn, add_hold
from tenancy.catalogue.sessions import Ids
from tenancy.catalogue.tenants import find_tenant
from tenancy.keys.stored import SessionKey, TenantKey

#: Whose keys are replaced by new ones. Below a key-encryption key, which is the provider's.
Below = Literal["tenant", "session"]

_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """
    A tenant's keys, by version.

    :param is_due: Whether a rotation wants a newer one than the newest.
    """

    by_version: dict[int, TenantKey]
    is_due: bool

    @property
    def newest(self) -> TenantKey:
        """The one that new sessions' keys are wrapped by."""
        return self.by_version[max(self.by_version)]


@dataclass(frozen=True, slots=True)
class WrappedSessionKey:
    """A session's key, and whose it is."""

    ids: Ids
    key: SessionKey


@dataclass(frozen=True, slots=True)
class RootKeyUse:
    """
    How many tenants hang on a key-encryption key.

    :param known_since_us: When this catalogue first used it; `None` if that is not known.
    """

    provider: str
    key_id: str
    tenants: int
    known_since_us: int | None


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """How many wrapped keys there are, and when the oldest was made, in microseconds since 1970."""

    tenant_keys: int
    session_keys: int
    oldest_tenant_key_us: int | None
    oldest_session_key_us: int | None


class RotationTable:
    """Each method is one transaction or one query."""

    def __init__(self, access: Access, moments: Moments) -> None:
        self._access = access
        self._moments = moments

    def tenant_id(self, tenant: str) -> str | None:
        """Return the id of a live tenant, or `None`."""
        with self._access.reading_named(tenant) as transaction:
            return find_tenant(transaction, tenant)

    def mark(self, level: Below, *, tenant_id: str | None, anew: bool = False) -> bool:
        """
        Ask for new keys, of one tenant or of all, unless a rotation that was asked for is not finished.

        :param anew: Also if it is not.
        :returns: Whether it was asked for. `False`: there is one to be carried on.
        """
        if tenant_id is not None:
            with self._access.writing(tenant_id) as transaction:
                transaction.one(sql.LOCK_TENANT, tenant_id=tenant_id)
                # Not before: others may have rotated while this waited for its turn.
                now = self._moments.parameter()
                if not anew and transaction.one(sql.IS_DUE[level], tenant_id=tenant_id, now_us=now) is not None:
                    return False
                transaction.execute(sql.MARK[level], tenant_id=tenant_id, now_us=now)
            return True
        with self._access.writing_across() as transaction:
            transaction.one(sql.TAKE_TURNS)
            now = self._moments.parameter()
            first = {"after_tenant": "", "page": 1, "now_us": now}
            if not anew and transaction.one(sql.TENANTS_DUE[level], **first) is not None:
                return False
            transaction.execute(sql.MARK_ALL[level], now_us=now)
        return True

    def is_due(self, level: Below, *, tenant_id: str) -> bool:
        """Tell whether a rotation was asked for of a tenant and is not finished."""
        with self._access.reading(tenant_id) as transaction:
            now = self._moments.parameter()
            return transaction.one(sql.IS_DUE[level], tenant_id=tenant_id, now_us=now) is not None

    def tenants_due(self, level: Below, *, after: str) -> list[str]:
        """Return a page of the tenants for whom a rotation is not finished, by their ids; none after the last one."""
        with self._access.reading_across() as transaction:
            now = self._moments.parameter()
            rows = transaction.all(sql.TENANTS_DUE[level], after_tenant=after, page=_PAGE, now_us=now)
        return [row[0] for row in rows]

    def count_due(self, level: Below, *, tenant_id: str | None) -> int:
        """Return how many sessions' keys a rotation has still to put under another one, or to follow by a new one."""
        now = self._moments.parameter()
        if tenant_id is not None:
            with self._access.reading(tenant_id) as transaction:
                row = transaction.one(sql.COUNT_DUE_OF_TENANT[level], tenant_id=tenant_id, now_us=now)
        else:
            with self._access.reading_across() as transaction:
                row = transaction.one(sql.COUNT_DUE[level], now_us=now)
        return 0 if row is None else int(row[0])

    def tenant_keys(self, tenant_id: str) -> TenantKeys | None:
        """Return a live tenant's keys, or `None` if it is gone."""
        with self._access.reading(tenant_id) as transaction:
            rows = transaction.all(sql.TENANT_KEYS_OF, tenant_id=tenant_id)
        if not rows:
            return None
        keys = {row[0]: TenantKey(row[0], row[1], row[2], row[3], floor=row[4]) for row in rows}
        return TenantKeys(keys, is_due=bool(rows[-1][5]))

    def add_tenant_key(self, tenant_id: str, key: TenantKey) -> None:
        """
        Give a tenant a further key, which new sessions' keys are wrapped by from now on.

        :raises Conflict: If somebody else gave it one or moved it to another provider, or it is being erased. Nothing
            was changed; look again.
        """
        with self._access.writing(tenant_id, shred=True) as transaction:
            added = transaction.execute(
                sql.ADD_TENANT_KEY,
                tenant_id=tenant_id,
                version=key.version,
                provider=key.provider,
                key_id=key.key_id,
                wrapped=key.wrapped,
                now_us=self._moments.parameter(),
            )
            if added != 1:
                raise Conflict("The tenant is being erased, or was moved to another provider.")

    def session_keys_under_old(self, tenant_id: str, *, newest: int, after: tuple[str, int]) -> list[WrappedSessionKey]:
        """Return a page of the session keys that older versions of the tenant's key wrap, in the order of their ids."""
        with self._access.reading(tenant_id) as transaction:
            rows = transaction.all(
                sql.SESSION_KEYS_UNDER_OLD,
                tenant_id=tenant_id,
                new_version=newest,
                after_session=after[0],
                after_version=after[1],
                page=_PAGE,
            )
        return [WrappedSessionKey(Ids(tenant_id, row[4], row[0]), SessionKey(row[1], row[2], row[3])) for row in rows]

    def rewrap_session_keys(self, tenant_id: str, keys: Sequence[WrappedSessionKey]) -> int:
        """
        Put session keys under the tenant's key that has wrapped them anew, in one transaction.

        :param keys: In the order of their ids.
        :returns: How many. What was removed meanwhile, or is being removed, is left out.
        """
        done = 0
        with self._access.writing(tenant_id, shred=True) as transaction:
            self._access.mark_shredding(transaction)
            for each in keys:
                which = {
                    "tenant_id": tenant_id,
                    "session_id": each.ids.session_id,
                    "version": each.key.version,
                    "new_version": each.key.tenant_key_version,
                }
                if transaction.one(sql.LOCK_SESSION_KEY, **which) is not None:
                    done += transaction.execute(sql.REWRAP_SESSION_KEY, new_wrapped=each.key.wrapped, **which)
        return done

    def retire(self, tenant_id: str, *, newest: int) -> int | None:
        """
        Destroy a tenant's older keys, unless something is still under one of them; refuse such keys from now on.

        :returns: How many were destroyed; `None` if something is left, or the tenant is gone.
        """
        with self._access.writing(tenant_id, shred=True) as transaction:
            if transaction.one(sql.LOCK_TENANT, tenant_id=tenant_id) is None:
                return None
            transaction.all(sql.LOCK_OLD_TENANT_KEYS, tenant_id=tenant_id, new_version=newest)
            if transaction.one(sql.ANY_UNDER_OLD, tenant_id=tenant_id, new_version=newest) is not None:
                return None
            self._access.mark_shredding(transaction)
            transaction.execute(sql.RAISE_FLOOR, tenant_id=tenant_id, new_version=newest)
            return transaction.execute(sql.DROP_OLD_TENANT_KEYS, tenant_id=tenant_id, new_version=newest)

    def sessions_due(self, tenant_id: str, *, after: str) -> list[tuple[Ids, int]]:
        """Return a page of the live sessions that are to get a new key, with the version of their newest one."""
        with self._access.reading(tenant_id) as transaction:
            rows = transaction.all(
                sql.SESSIONS_DUE,
                tenant_id=tenant_id,
                after_session=after,
                page=_PAGE,
                now_us=self._moments.parameter(),
            )
        return [(Ids(tenant_id, row[1], row[0]), row[2]) for row in rows]

    def add_session_keys(self, tenant_id: str, keys: Sequence[WrappedSessionKey]) -> int:
        """
        Give sessions new keys, in one transaction.

        :returns: How many. Those that ended meanwhile, or that somebody is at work on, are left out.
        """
        with self._access.writing(tenant_id, shred=True) as transaction:
            return sum(
                transaction.execute(
                    sql.ADD_SESSION_KEY,
                    tenant_id=tenant_id,
                    session_id=each.ids.session_id,
                    version=each.key.version,
                    tenant_key_version=each.key.tenant_key_version,
                    wrapped=each.key.wrapped,
                    now_us=self._moments.parameter(),
                )
                for each in keys
            )

    def tenants_under(self, *, provider: str, key_id: str, after: str) -> list[str]:
        """Return a page of the tenants with a key that this key-encryption key wraps."""
        with self._access.reading_across() as transaction:
            rows = transaction.all(
                root_sql.TENANTS_UNDER, provider=provider, key_id=key_id, after_tenant=after, page=_PAGE
            )
        return [row[0] for row in rows]

    def keys_under_each(self) -> dict[tuple[str, str], int]:
        """Return how many tenants' keys each key-encryption key wraps, by its provider and its id."""
        with self._access.reading_across() as transaction:
            return {(row[0], row[1]): row[2] for row in transaction.all(root_sql.KEYS_UNDER_EACH)}

    def replace_tenant_key(self, tenant_id: str, *, old: TenantKey, new: TenantKey) -> bool:
        """
        Put a tenant's key under another key-encryption key.

        :returns: Whether this call did it; `False` if somebody else had, or it is gone.
        """
        with self._access.writing(tenant_id, shred=True) as transaction:
            self._access.mark_shredding(transaction)
            changed = transaction.execute(
                root_sql.REPLACE_TENANT_KEY,
                tenant_id=tenant_id,
                version=old.version,
                old_provider=old.provider,
                old_key_id=old.key_id,
                provider=new.provider,
                key_id=new.key_id,
                wrapped=new.wrapped,
            )
            if changed:
                add_hold(transaction, tenant_id, HungOn(new.provider, new.key_id, new.version, is_later=True))
        return changed == 1

    def root_keys(self) -> list[RootKeyUse]:
        """Return the key-encryption keys that this catalogue knows or hangs on, the oldest first."""
        with self._access.reading_across() as transaction:
            known = {(row[0], row[1]): row[2] for row in transaction.all(root_sql.ROOT_KEYS_KNOWN)}
            used = {(row[0], row[1]): row[2] for row in transaction.all(root_sql.ROOT_KEYS_IN_USE)}
        return [
            RootKeyUse(provider, key_id, used.get((provider, key_id), 0), known.get((provider, key_id)))
            for provider, key_id in [*known, *(each for each in used if each not in known)]
        ]

    def forget_root_keys(self, *, of: Collection[str], but: Collection[tuple[str, str | None]]) -> None:
        """
        Forget the key-encryption keys that nothing is under any more: no start asks for them then.

        :param of: Of these providers only.
        :param but: These are kept all the same, by provider and id.
        """
        with self._access.writing_across() as transaction:
            for provider, key_id, _ in transaction.all(root_sql.ROOT_KEYS_KNOWN):
                if provider in of and (provider, key_id) not in but:
                    transaction.execute(root_sql.FORGET_ROOT_KEY, provider=provider, key_id=key_id)

    def counts(self) -> KeyCounts:
        """Return how many wrapped keys there are, and how old."""
        with self._access.reading_across() as transaction:
            row = transaction.one(root_sql.OLDEST_KEYS)
        if row is None:
            raise LookupError("The database does not say how many keys there are.")
        return KeyCounts(
            tenant_keys=row[2], session_keys=row[3], oldest_tenant_key_us=row[0], oldest_session_key_us=row[1]
        )
