"""Tenants, users and sessions in SQL: find, create, touch, list, end."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stores.errors import Conflict
from stores.sql import Transaction
from tenancy.catalogue import session_statements as sql
from tenancy.catalogue.access import Access
from tenancy.catalogue.charges import Charge, NotCharged, charge, charge_last, refusal
from tenancy.catalogue.counters import close_counters, close_many_counters, open_counters, write_limits
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
    """What already exists of a scope whose session does not. `None` where nothing does."""

    tenant_id: str | None
    user_id: str | None
    tenant_key: TenantKey | None


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


#: Works out, inside a transaction, how many sessions the user and the tenant may have. `None` is unlimited.
SessionLimits = Callable[[Transaction, Ids], tuple[int | None, int | None]]

_PAGE: Final = 200


class SessionTable:
    """Who has which session. Each method is one transaction or one query."""

    def __init__(self, access: Access, moments: Moments) -> None:
        self._access = access
        self._moments = moments
        self._tenants = TenantTable(access)

    def find(self, scope: Scope) -> OpenedSession | None:
        """Return the live session of this scope with its keys, in one query once its tenant is known, or `None`."""
        remembered = self._tenants.remembered(scope.tenant)
        found = None if remembered is None else self._find(remembered, scope)
        if found is not None:
            return found
        # Nothing may also mean that the tenant was erased, and another one has its name.
        tenant_id = self._tenants.look_up(scope.tenant)
        return None if tenant_id in (None, remembered) else self._find(tenant_id, scope)

    def _find(self, tenant_id: str, scope: Scope) -> OpenedSession | None:
        names = {"user": scope.user, "session": scope.session}
        with self._access.reading(tenant_id) as transaction:
            row = transaction.one(sql.FIND, tenant_id=tenant_id, now_us=self._moments.parameter(), **names)
        if row is None:
            return None
        return _opened(row)

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

    def find_owners(self, scope: Scope) -> Owners:
        """Return what exists of a scope's tenant and user."""
        tenant_id = self._tenants.look_up(scope.tenant)
        if tenant_id is None:
            return Owners(None, None, None)
        with self._access.reading(tenant_id) as transaction:
            row = transaction.one(sql.FIND_OWNERS, tenant_id=tenant_id, user=scope.user)
        if row is None:
            return Owners(None, None, None)
        key = TenantKey(version=row[2], provider=row[3], key_id=row[4], wrapped=row[5], floor=row[6])
        return Owners(tenant_id=row[0], user_id=row[1], tenant_key=key)

    def create(self, scope: Scope, new: NewSession, *, owners: Owners, limits: SessionLimits) -> None:
        """
        Write a new session, and its tenant and user where `owners` has none.

        :param limits: See `SessionLimits`.
        :raises Conflict: If somebody else created one of them meanwhile. Nothing was written; look again.
        :raises QuotaExceeded: If the user or the tenant may have no further session.
        :raises StoreFull: If the disk is full, or was and its reserve cannot be made again.
        """
        self._access.database.require_room()
        ids = new.ids
        last: tuple[Charge, ...] = ()
        try:
            # A new key may have SQLite merge pages of others; and an expired session of this name loses its own here.
            with self._access.writing(ids.tenant_id, shred=True) as transaction:
                self._write(transaction, scope, new, owners)
                of_user, of_tenant = limits(transaction, ids)
                charges = (
                    Charge("user", ids.user_id, add_sessions=1, limit_sessions=of_user),
                    Charge("tenant", ids.tenant_id, add_sessions=1, limit_sessions=of_tenant),
                )
                if owners.user_id is None:
                    # Whoever is refused is gone afterwards, and so is what would tell why.
                    for each in charges:
                        charge(transaction, ids.tenant_id, each)
                else:
                    last = charges
                    charge_last(transaction, ids.tenant_id, *last)
        except NotCharged:
            with self._access.reading(ids.tenant_id) as transaction:
                reason = refusal(transaction, ids.tenant_id, *last)
            raise reason or Conflict("Somebody has freed room since; look again.") from None

    def _write(self, transaction: Transaction, scope: Scope, new: NewSession, owners: Owners) -> None:
        ids, now = new.ids, self._moments.parameter()
        if owners.tenant_id is None:
            transaction.later(sql.ADD_TENANT, tenant_id=ids.tenant_id, name=scope.tenant, now_us=now)
            transaction.later(sql.ADD_TENANT_KEY, tenant_id=ids.tenant_id, now_us=now, **_columns(new.tenant_key))
            open_counters(transaction, ids.tenant_id, ids.tenant_id)
        if owners.user_id is None:
            transaction.later(sql.ADD_USER, tenant_id=ids.tenant_id, user_id=ids.user_id, name=scope.user, now_us=now)
            open_counters(transaction, ids.tenant_id, ids.user_id)
        for (expired,) in transaction.all(
            sql.EXPIRED_OF_NAME, tenant_id=ids.tenant_id, user_id=ids.user_id, name=scope.session, now_us=now
        ):
            end_session(transaction, ids.tenant_id, expired)
        transaction.later(
            sql.ADD_SESSION,
            tenant_id=ids.tenant_id,
            session_id=ids.session_id,
            user_id=ids.user_id,
            name=scope.session,
            idle_us=new.idle_us,
            maximum_us=new.maximum_us,
            first_us=min(new.idle_us, new.maximum_us),
            result_lifetime_us=new.result_lifetime_us,
            now_us=now,
        )
        add_session_key(transaction, ids, new.session_key, now_us=now)
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


def add_session_key(transaction: Transaction, ids: Ids, key: SessionKey, *, now_us: int) -> None:
    """
    Give a session a key that was wrapped outside the transaction.

    :raises Conflict: If a rotation has removed the tenant's key that wraps it. Nothing was written; look again.
    """
    added = transaction.execute(
        sql.ADD_SESSION_KEY,
        tenant_id=ids.tenant_id,
        session_id=ids.session_id,
        version=key.version,
        tenant_key_version=key.tenant_key_version,
        wrapped=key.wrapped,
        now_us=now_us,
    )
    if added != 1:
        raise Conflict("The tenant's key was rotated meanwhile.")


def _opened(row: tuple[Any, ...]) -> OpenedSession:
    return OpenedSession(
        ids=Ids(row[0], row[1], row[2]),
        session_key=SessionKey(version=row[3], tenant_key_version=row[4], wrapped=row[5]),
        tenant_key=TenantKey(version=row[4], provider=row[6], key_id=row[7], wrapped=row[8], floor=row[9]),
        touch_due=bool(row[10]),
    )


def _columns(key: TenantKey) -> Mapping[str, Any]:
    return {"version": key.version, "provider": key.provider, "key_id": key.key_id, "wrapped": key.wrapped}
