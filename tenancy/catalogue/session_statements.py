"""The statements on tenants, users and sessions: find, create, touch, list, end."""

from typing import Any, Final

import sqlalchemy as sa

from stores.sql import Statement
from tenancy.catalogue.moments import now_us, unindexed
from tenancy.schema import SESSION_KEYS, SESSIONS, TENANT_KEYS, TENANTS, USAGE, USERS

#: The idle expiry is moved at most once per sixteenth of the idle time, so that reading stays reading.
TOUCH_FRACTION: Final = 16

_live = (SESSIONS.c.state == "live", SESSIONS.c.expires_at_us > now_us())
_people = TENANTS.join(USERS, USERS.c.tenant_id == TENANTS.c.tenant_id).join(
    SESSIONS, sa.and_(SESSIONS.c.tenant_id == USERS.c.tenant_id, SESSIONS.c.user_id == USERS.c.user_id)
)
touch_due: Final = sa.case((SESSIONS.c.used_at_us + SESSIONS.c.idle_us // TOUCH_FRACTION < now_us(), 1), else_=0)


_keys_of_session = sa.and_(
    SESSION_KEYS.c.tenant_id == SESSIONS.c.tenant_id, SESSION_KEYS.c.session_id == SESSIONS.c.session_id
)
_found = (
    TENANTS.c.tenant_id,
    USERS.c.user_id,
    SESSIONS.c.session_id,
    SESSION_KEYS.c.version,
    TENANT_KEYS.c.version,
    SESSION_KEYS.c.wrapped,
    TENANT_KEYS.c.provider,
    TENANT_KEYS.c.key_id,
    TENANT_KEYS.c.wrapped,
    TENANTS.c.key_floor,
    touch_due,
)
_newest = TENANT_KEYS.alias("newest")
_newest_version = (
    sa.select(sa.func.max(_newest.c.version)).where(_newest.c.tenant_id == sa.bindparam("tenant_id")).scalar_subquery()
)

#: A live session by its name, with the newest of its keys and the tenant's key that wraps it. Without one, what there
#: is of its owners, with the tenant's newest key, and an expired session of that name that nobody has ended yet.
FIND: Final = Statement(
    sa.select(*_found, sa.case((SESSIONS.c.expires_at_us <= now_us(), SESSIONS.c.session_id)))
    .select_from(
        TENANTS.outerjoin(
            USERS,
            sa.and_(
                USERS.c.tenant_id == TENANTS.c.tenant_id,
                USERS.c.name == sa.bindparam("user"),
                USERS.c.state == "live",
            ),
        )
        .outerjoin(
            SESSIONS,
            sa.and_(
                SESSIONS.c.tenant_id == USERS.c.tenant_id,
                SESSIONS.c.user_id == USERS.c.user_id,
                SESSIONS.c.name == sa.bindparam("session"),
                SESSIONS.c.state == "live",
            ),
        )
        .outerjoin(SESSION_KEYS, sa.and_(_keys_of_session, SESSIONS.c.expires_at_us > now_us()))
        .join(
            TENANT_KEYS,
            sa.and_(
                TENANT_KEYS.c.tenant_id == TENANTS.c.tenant_id,
                TENANT_KEYS.c.version == sa.func.coalesce(SESSION_KEYS.c.tenant_key_version, _newest_version),
            ),
        )
    )
    .where(TENANTS.c.tenant_id == sa.bindparam("tenant_id"), TENANTS.c.state == "live")
    .order_by(SESSION_KEYS.c.version.desc())
    .limit(1)
)
#: A live session by its ids, with the same.
FIND_AGAIN: Final = Statement(
    sa.select(*_found)
    .select_from(
        _people.join(SESSION_KEYS, _keys_of_session).join(
            TENANT_KEYS,
            sa.and_(
                TENANT_KEYS.c.tenant_id == SESSION_KEYS.c.tenant_id,
                TENANT_KEYS.c.version == SESSION_KEYS.c.tenant_key_version,
            ),
        )
    )
    .where(
        TENANTS.c.tenant_id == sa.bindparam("tenant_id"),
        USERS.c.user_id == sa.bindparam("user_id"),
        SESSIONS.c.session_id == sa.bindparam("session_id"),
        *_live,
    )
    .order_by(SESSION_KEYS.c.version.desc())
    .limit(1)
)
ADD_TENANT: Final = Statement(
    TENANTS.insert().values(
        tenant_id=sa.bindparam("tenant_id"), name=sa.bindparam("name"), state="live", created_at_us=now_us()
    )
)
ADD_TENANT_KEY: Final = Statement(
    TENANT_KEYS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        version=sa.bindparam("version"),
        provider=sa.bindparam("provider"),
        key_id=sa.bindparam("key_id"),
        wrapped=sa.bindparam("wrapped"),
        created_at_us=now_us(),
    )
)
ADD_USER: Final = Statement(
    USERS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        user_id=sa.bindparam("user_id"),
        name=sa.bindparam("name"),
        state="live",
        created_at_us=now_us(),
    )
)
ADD_SESSION: Final = Statement(
    SESSIONS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        session_id=sa.bindparam("session_id"),
        user_id=sa.bindparam("user_id"),
        name=sa.bindparam("name"),
        state="live",
        created_at_us=now_us(),
        used_at_us=now_us(),
        expires_at_us=now_us() + sa.bindparam("first_us", type_=sa.BigInteger),
        maximum_at_us=now_us() + sa.bindparam("maximum_us", type_=sa.BigInteger),
        idle_us=sa.bindparam("idle_us"),
        result_lifetime_us=sa.bindparam("result_lifetime_us"),
    )
)
ADD_SESSION_KEY: Final = Statement(
    # Out of the row of the tenant's key that wraps it, and holding on to that: a rotation that has done with the key
    # waits for us before it removes it, and if it came first there is no version, which the column refuses.
    SESSION_KEYS.insert().values(
        tenant_id=sa.bindparam("tenant_id"),
        session_id=sa.bindparam("session_id"),
        version=sa.bindparam("version"),
        tenant_key_version=sa.select(TENANT_KEYS.c.version)
        .where(
            TENANT_KEYS.c.tenant_id == sa.bindparam("tenant_id"),
            TENANT_KEYS.c.version == sa.bindparam("tenant_key_version"),
        )
        .with_for_update(read=True, key_share=True)
        .scalar_subquery(),
        wrapped=sa.bindparam("wrapped"),
        created_at_us=now_us(),
    )
)
_one_session = (
    SESSIONS.c.tenant_id == sa.bindparam("tenant_id"),
    SESSIONS.c.session_id == sa.bindparam("session_id"),
)
END: Final = Statement(SESSIONS.update().where(*_one_session, SESSIONS.c.state == "live").values(state="ended"))
DROP_KEYS: Final = Statement(
    SESSION_KEYS.delete().where(
        SESSION_KEYS.c.tenant_id == sa.bindparam("tenant_id"), SESSION_KEYS.c.session_id == sa.bindparam("session_id")
    )
)
#: The same three for a session that was found expired, each of which does nothing if it is not.
END_EXPIRED: Final = Statement(
    SESSIONS.update()
    .where(*_one_session, SESSIONS.c.state == "live", SESSIONS.c.expires_at_us <= now_us())
    .values(state="ended")
)
_has_ended = sa.exists(sa.select(SESSIONS.c.session_id).where(*_one_session, SESSIONS.c.state == "ended"))
CLOSE_ENDED: Final = Statement(
    USAGE.update()
    .where(
        USAGE.c.tenant_id == sa.bindparam("tenant_id"),
        USAGE.c.owner_id == sa.bindparam("session_id"),
        USAGE.c.slot == 0,
        _has_ended,
    )
    .values(open=0)
)
DROP_KEYS_OF_ENDED: Final = Statement(
    SESSION_KEYS.delete().where(
        SESSION_KEYS.c.tenant_id == sa.bindparam("tenant_id"),
        SESSION_KEYS.c.session_id == sa.bindparam("session_id"),
        _has_ended,
    )
)
TOUCH: Final = Statement(
    SESSIONS.update()
    .where(*_one_session, *_live)
    .values(
        used_at_us=now_us(),
        expires_at_us=sa.case(
            (now_us() + SESSIONS.c.idle_us < SESSIONS.c.maximum_at_us, now_us() + SESSIONS.c.idle_us),
            else_=SESSIONS.c.maximum_at_us,
        ),
    )
)
NOT_ENDED: Final = Statement(sa.select(SESSIONS.c.session_id).where(*_one_session, SESSIONS.c.state == "live"))
IS_LIVE: Final = Statement(
    sa.select(SESSIONS.c.session_id).where(*_one_session, SESSIONS.c.user_id == sa.bindparam("user_id"), *_live)
)


_of_tenant = SESSIONS.c.tenant_id == sa.bindparam("tenant_id")
_user = (
    sa.select(USERS.c.user_id)
    .where(
        USERS.c.tenant_id == sa.bindparam("tenant_id"), USERS.c.name == sa.bindparam("user"), USERS.c.state == "live"
    )
    .scalar_subquery()
)


_after_session = SESSIONS.c.session_id > sa.bindparam("after_session", type_=sa.String)
_after = sa.tuple_(SESSIONS.c.tenant_id, SESSIONS.c.session_id) > sa.tuple_(
    sa.bindparam("after_tenant", type_=sa.String), sa.bindparam("after_session", type_=sa.String)
)


def _listing(*of_whom: sa.ColumnElement[bool], after: sa.ColumnElement[bool]) -> Statement:
    # First the page, in the order of the primary key, then what belongs to it, looked up row by row: joined, every page
    # would sort all sessions there are, or go through all users of a tenant. A live session has a live user and tenant.
    page = (
        sa.select(SESSIONS)
        .where(
            *of_whom,
            unindexed(SESSIONS.c.state) == "live",
            unindexed(SESSIONS.c.expires_at_us) > now_us(),
            after,
        )
        .order_by(SESSIONS.c.tenant_id, SESSIONS.c.session_id)
        .limit(sa.bindparam("page", type_=sa.Integer))
        .subquery("page")
    )

    def looked_up(column: "sa.Column[Any]", *key: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
        return sa.select(column).where(column.table.c.tenant_id == page.c.tenant_id, *key).scalar_subquery()

    counters = (USAGE.c.owner_id == page.c.session_id, USAGE.c.slot == 0)
    return Statement(
        sa.select(
            page.c.tenant_id,
            page.c.user_id,
            page.c.session_id,
            looked_up(TENANTS.c.name),
            looked_up(USERS.c.name, USERS.c.user_id == page.c.user_id),
            page.c.name,
            page.c.created_at_us,
            page.c.used_at_us,
            page.c.expires_at_us,
            looked_up(USAGE.c.used_bytes, *counters),
            looked_up(USAGE.c.results, *counters),
        ).order_by(page.c.tenant_id, page.c.session_id)
    )


LIST_ALL: Final = _listing(after=_after)
# Within one tenant SQLite finds the beginning of a page by the session alone; by both it would go through all pages
# before it.
LIST_TENANT: Final = _listing(_of_tenant, after=_after_session)
LIST_USER: Final = _listing(_of_tenant, SESSIONS.c.user_id == _user, after=_after_session)
