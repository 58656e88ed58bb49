"""Tenants, users and sessions in SQL: find, create, touch, list, end."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stores.errors import Conflict
from stores.sql import Transaction
from tenancy.catalogue import session_statements as sql
from tenancy.catalogue.access import Access
from tenancy.catalogue.charges import NotCharged, charge_session, charges_of_session, refusal
from tenancy.catalogue.counters import (
    close_counters,
    close_many_counters,
    effective_limits,
    open_counters,
    write_limits,
)
from tenancy.catalogue.moments import Moments
from tenancy.catalogue.tenants import TenantTable
from tenancy.keys.stored import SessionKey, TenantKey
from tenancy.quotas import Limits
from tenancy.scope import Scope


@dataclass(frozen=True, slots=True)
class Ids:
    """The opaque ids of a live session and of whom it belongs to."""

    tenant_id: str
    user_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A live session as it was found."""

    ids: Ids
    session_key: SessionKey
    tenant_key: TenantKey
    touch_due: bool


@dataclass(frozen=True, slots=True)
class Owners:
    """
    What already exists of a scope whose session does not. `None` where nothing does.

    :param expired_id: A session of that name that has expired and was not ended yet.
    """

    tenant_id: str | None = None
    user_id: str | None = None
    tenant_key: TenantKey | None = None
    expired_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewSession:
    """Everything a session's creation writes, made outside the transaction."""

    ids: Ids
    tenant_key: TenantKey
    session_key: SessionKey
    idle_us: int
    maximum_us: int
    result_lifetime_us: int | None
    limits: Limits


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One live session as a listing shows it. Moments in microseconds since 1970."""

    ids: Ids
    scope: Scope
    created_at_us: int
    used_at_us: int
    expires_at_us: int
    used_bytes: int
    results: int


_PAGE: Final = 200


class SessionTable:
    """
    Who has which session. Each method is one transaction or one query.

    :param defaults: The manager's own limits, complete.
    """

    def __init__(self, access: Access, moments: Moments, defaults: Limits) -> None:
        self._access = access
        self._moments = moments
        self._defaults = defaults
        self._tenants = TenantTable(access)

    def find(self, scope: Scope) -> OpenedSession | Owners:
        """
        Return the live session of this scope with its keys, or what exists of its owners.

        In one query once its tenant is known.
        """
        remembered = self._tenants.remembered(scope.tenant)
        found = None if remembered is None else self._find(remembered, scope)
        if found is None:
            # Nothing may also mean that the tenant was erased, and another one has its name.
            tenant_id = self._tenants.look_up(scope.tenant)
            found = None if tenant_id in (None, remembered) else self._find(tenant_id, scope)
        return Owners() if found is None else found

    def _find(self, tenant_id: str, scope: Scope) -> OpenedSession | Owners | None:
        names = {"user": scope.user, "session": scope.session}
        with self._access.reading(tenant_id) as transaction:
            row = transaction.one(sql.FIND, tenant_id=tenant_id, now_us=self._moments.parameter(), **names)
        if row is None:
            return None
        # Whatever lives has a key.
        return Owners(tenant_id, row[1], _tenant_key(row), row[11]) if row[3] is None else _opened(row)

    def renewed(self, opened: OpenedSession) -> OpenedSession | None:
        """
        Return an open session with the keys it has now, in one query.

        :returns: `None` if it has ended, or if its keys are those it was opened with.
        """
        ids = opened.ids
        with self._access.reading(ids.tenant_id) as transaction:
            row = transaction.one(
                sql.FIND_AGAIN,
                tenant_id=ids.tenant_id,
                user_id=ids.user_id,
                session_id=ids.session_id,
                now_us=self._moments.parameter(),
            )
        found = None if row is None else _opened(row)
        if found is None or (found.session_key, found.tenant_key) == (opened.session_key, opened.tenant_key):
            return None
        return found

    def create(self, scope: Scope, new: NewSession, *, owners: Owners) -> None:
        """
        Write a new session, and its tenant and user where `owners` has none. On PostgreSQL in one round trip.

        :raises Conflict: If somebody else created one of them meanwhile, or rotated the tenant's key away. Nothing was
            written; look again.
        :raises QuotaExceeded: If the user or the tenant may have no further session. Nothing was written.
        :raises SessionNotFound: If the user or the tenant has ended. Nothing was written.
        :raises StoreFull: If the disk is full, or was and its reserve cannot be made again.
        """
        self._access.database.require_room()
        ids = new.ids
        try:
            # A new key may have SQLite merge pages of others; and an expired session of this name loses its own here.
            with self._access.writing(ids.tenant_id, shred=True) as transaction:
                self._write(transaction, scope, new, owners)
                charge_session(transaction, ids.tenant_id, ids.user_id, defaults=self._defaults)
        except NotCharged:
            raise self._refusal(ids, owners) or Conflict("Somebody has freed room since; look again.") from None

    def _refusal(self, ids: Ids, owners: Owners) -> Exception | None:
        tenant_id, user_id = ids.tenant_id, ids.user_id
        with self._access.reading(tenant_id) as transaction:
            limits = effective_limits(transaction, tenant_id, user_id, tenant_id, defaults=self._defaults)
            charges = charges_of_session(limits, user_id, tenant_id)
            # Whoever was new is gone again.
            new = {tenant_id, user_id} - {owners.tenant_id, owners.user_id}
            return refusal(transaction, tenant_id, *charges, unknown=new)

    def _write(self, transaction: Transaction, scope: Scope, new: NewSession, owners: Owners) -> None:
        ids, now = new.ids, self._moments.parameter()
        session = {"tenant_id": ids.tenant_id, "session_id": ids.session_id}
        if owners.tenant_id is None:
            transaction.later(sql.ADD_TENANT, tenant_id=ids.tenant_id, name=scope.tenant, now_us=now)
            transaction.later(sql.ADD_TENANT_KEY, tenant_id=ids.tenant_id, now_us=now, **_columns(new.tenant_key))
            open_counters(transaction, ids.tenant_id, ids.tenant_id)
        if owners.user_id is None:
            transaction.later(sql.ADD_USER, tenant_id=ids.tenant_id, user_id=ids.user_id, name=scope.user, now_us=now)
            open_counters(transaction, ids.tenant_id, ids.user_id)
        if owners.expired_id is not None:
            end_expired(transaction, ids.tenant_id, owners.expired_id, now_us=now)
        transaction.later(
            sql.ADD_SESSION,
            **session,
            user_id=ids.user_id,
            name=scope.session,
            idle_us=new.idle_us,
            maximum_us=new.maximum_us,
            first_us=min(new.idle_us, new.maximum_us),
            result_lifetime_us=new.result_lifetime_us,
            now_us=now,
        )
        key = new.session_key
        transaction.later(
            sql.ADD_SESSION_KEY,
            **session,
            version=key.version,
            tenant_key_version=key.tenant_key_version,
            wrapped=key.wrapped,
            now_us=now,
        )
        open_counters(transaction, ids.tenant_id, ids.session_id)
        if new.limits != Limits():
            write_limits(transaction, ids.tenant_id, ids.session_id, new.limits)

    def touch(self, ids: Ids, *, patience_seconds: float | None = None) -> None:
        """
        Move the idle expiry of a live session. An ended one stays ended.

        :param patience_seconds: Give up after waiting this long for a lock, instead of the database's own time.
        """
        with self._access.writing(ids.tenant_id, patience_seconds=patience_seconds) as transaction:
            transaction.later(
                sql.TOUCH, tenant_id=ids.tenant_id, session_id=ids.session_id, now_us=self._moments.parameter()
            )

    def is_live(self, ids: Ids) -> bool:
        """Tell whether a session is still there, by its ids."""
        with self._access.reading(ids.tenant_id) as transaction:
            row = transaction.one(
                sql.IS_LIVE,
                tenant_id=ids.tenant_id,
                session_id=ids.session_id,
                user_id=ids.user_id,
                now_us=self._moments.parameter(),
            )
        return row is not None

    def has_ended(self, ids: Ids) -> bool:
        """Tell whether a session was ended for good: its keys are destroyed, its rows may be there or not."""
        with self._access.reading(ids.tenant_id) as transaction:
            return transaction.one(sql.NOT_ENDED, tenant_id=ids.tenant_id, session_id=ids.session_id) is None

    def list(self, *, tenant: str | None = None, user: str | None = None) -> Iterator[SessionRow]:
        """Go through the live sessions, of one tenant or of one user if given, in the order of their ids."""
        statement, names, tenant_id = sql.LIST_ALL, {}, None
        if tenant is not None:
            tenant_id = self._tenants.look_up(tenant)
            if tenant_id is None:
                return
            statement, names = sql.LIST_TENANT, {"tenant_id": tenant_id}
            if user is not None:
                statement, names = sql.LIST_USER, {**names, "user": user}
        after = ("", "")
        while True:
            # Asked anew for each page: no connection is held while the caller looks at one.
            reading = self._access.reading_across() if tenant_id is None else self._access.reading(tenant_id)
            with reading as transaction:
                rows = transaction.all(
                    statement,
                    after_tenant=after[0],
                    after_session=after[1],
                    page=_PAGE,
                    now_us=self._moments.parameter(),
                    **names,
                )
            for row in rows:
                yield SessionRow(Ids(*row[:3]), Scope(*row[3:6]), *row[6:])
            if len(rows) < _PAGE:
                return
            after = (rows[-1][0], rows[-1][2])


def end_session(transaction: Transaction, tenant_id: str, session_id: str) -> int:
    """
    End a session for good and destroy its wrapped keys: from this commit on nothing in it can be read or written.

    :returns: How many keys were destroyed.
    """
    # The session's row before its counters: cleanup comes with a whole batch of rows locked, and two that end the same
    # session in different orders would wait for each other.
    transaction.later(sql.END, tenant_id=tenant_id, session_id=session_id)
    close_counters(transaction, tenant_id, session_id)
    return transaction.execute(sql.DROP_KEYS, tenant_id=tenant_id, session_id=session_id)


def end_expired(transaction: Transaction, tenant_id: str, session_id: str, *, now_us: int) -> None:
    """Do the same for a session that was found expired a moment ago, if it still is or somebody else has ended it."""
    session = {"tenant_id": tenant_id, "session_id": session_id}
    transaction.later(sql.END_EXPIRED, **session, now_us=now_us)
    transaction.later(sql.CLOSE_ENDED, **session)
    transaction.later(sql.DROP_KEYS_OF_ENDED, **session)


def end_many_sessions(transaction: Transaction, sessions: Iterable[tuple[str, str]]) -> None:
    """
    Do the same for many, whose rows this transaction has locked.

    :param sessions: The ids of the tenant and of the session.
    """
    # Sorted: what else belongs to a session is waited for, and everybody waits in one order.
    ending = sorted(sessions)
    rows = [{"tenant_id": tenant_id, "session_id": session_id} for tenant_id, session_id in ending]
    transaction.execute_many(sql.END, rows)
    close_many_counters(transaction, ending)
    transaction.execute_many(sql.DROP_KEYS, rows)


def _opened(row: tuple[Any, ...]) -> OpenedSession:
    return OpenedSession(
        ids=Ids(row[0], row[1], row[2]),
        session_key=SessionKey(version=row[3], tenant_key_version=row[4], wrapped=row[5]),
        tenant_key=_tenant_key(row),
        touch_due=bool(row[10]),
    )


def _tenant_key(row: tuple[Any, ...]) -> TenantKey:
    return TenantKey(version=row[4], provider=row[6], key_id=row[7], wrapped=row[8], floor=row[9])


def _columns(key: TenantKey) -> Mapping[str, Any]:
    return {"version": key.version, "provider": key.provider, "key_id": key.key_id, "wrapped": key.wrapped}
