"""The statements of rotation: mark, find what is due, put keys under others, retire."""

from typing import Any, Final

import sqlalchemy as sa

from stores.sql import Statement
from tenancy.catalogue.moments import now_us
from tenancy.schema import CATALOGUE, SESSION_KEYS, SESSIONS, TENANT_KEYS, TENANTS

_page = sa.bindparam("page", type_=sa.Integer)
_after_tenant = sa.bindparam("after_tenant", type_=sa.String)
_of_tenant = TENANTS.c.tenant_id == sa.bindparam("tenant_id")
_live_tenant = TENANTS.c.state == "live"

_old_tenant_key = sa.exists(
    sa.select(TENANT_KEYS.c.version)
    .where(TENANT_KEYS.c.tenant_id == TENANTS.c.tenant_id, TENANT_KEYS.c.created_at_us < TENANTS.c.tenant_key_from_us)
    .correlate(TENANTS)
)
#: Sessions whose newest key is older than the rotation that was asked for. What has expired is reclaimed instead.
_session_without_new_key = (
    SESSIONS.c.tenant_id == TENANTS.c.tenant_id,
    SESSIONS.c.state == "live",
    SESSIONS.c.expires_at_us > now_us(),
    sa.not_(
        sa.exists(
            sa.select(SESSION_KEYS.c.version)
            .where(
                SESSION_KEYS.c.tenant_id == SESSIONS.c.tenant_id,
                SESSION_KEYS.c.session_id == SESSIONS.c.session_id,
                SESSION_KEYS.c.created_at_us >= TENANTS.c.session_keys_from_us,
            )
            .correlate(SESSIONS, TENANTS)
        )
    ),
)
_old_session_key = sa.and_(
    TENANTS.c.session_keys_from_us.is_not(None),
    sa.exists(sa.select(SESSIONS.c.session_id).where(*_session_without_new_key).correlate(TENANTS)),
)
_DUE: Final = {"tenant": _old_tenant_key, "session": _old_session_key}
_MARKER: Final = {"tenant": "tenant_key_from_us", "session": "session_keys_from_us"}

#: By level: which tenants a rotation was asked for and not finished.
TENANTS_DUE: Final = {
    level: Statement(
        sa.select(TENANTS.c.tenant_id)
        .where(_live_tenant, due, TENANTS.c.tenant_id > _after_tenant)
        .order_by(TENANTS.c.tenant_id)
        .limit(_page)
    )
    for level, due in _DUE.items()
}
IS_DUE: Final = {
    level: Statement(sa.select(TENANTS.c.tenant_id).where(_of_tenant, _live_tenant, due)) for level, due in _DUE.items()
}


def _later_than(moment: sa.ColumnElement[Any], other: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    # A comparison with NULL is not true.
    return sa.case((other >= moment, other + 1), else_=moment)


def _newest(table: sa.Table) -> sa.ColumnElement[Any]:
    return (
        sa.select(sa.func.max(table.c.created_at_us)).where(table.c.tenant_id == TENANTS.c.tenant_id).scalar_subquery()
    )


# Now; or later, if keys there are were made by a clock that was ahead: none of them must count as made since.
_MARKS: Final = {
    level: {column: _later_than(_later_than(now_us(), _newest(table)), TENANTS.c[column])}
    for (level, column), table in zip(_MARKER.items(), (TENANT_KEYS, SESSION_KEYS), strict=True)
}
#: Takes turns with others who ask for a rotation: whoever comes second finds the first one's.
TAKE_TURNS: Final = Statement(sa.select(CATALOGUE.c.catalogue_id).with_for_update())
MARK_ALL: Final = {
    level: Statement(TENANTS.update().where(_live_tenant).values(mark)) for level, mark in _MARKS.items()
}
MARK: Final = {
    level: Statement(TENANTS.update().where(_of_tenant, _live_tenant).values(mark)) for level, mark in _MARKS.items()
}

_keys_with_tenant = SESSION_KEYS.join(TENANTS, TENANTS.c.tenant_id == SESSION_KEYS.c.tenant_id)
_wrapped_by_new_key = sa.exists(
    sa.select(TENANT_KEYS.c.version)
    .where(
        TENANT_KEYS.c.tenant_id == SESSION_KEYS.c.tenant_id,
        TENANT_KEYS.c.version == SESSION_KEYS.c.tenant_key_version,
        TENANT_KEYS.c.created_at_us >= TENANTS.c.tenant_key_from_us,
    )
    .correlate(SESSION_KEYS, TENANTS)
)
_counted = {
    "tenant": sa.select(sa.func.count())
    .select_from(_keys_with_tenant)
    .where(_live_tenant, TENANTS.c.tenant_key_from_us.is_not(None), sa.not_(_wrapped_by_new_key)),
    "session": sa.select(sa.func.count())
    .select_from(SESSIONS.join(TENANTS, TENANTS.c.tenant_id == SESSIONS.c.tenant_id))
    .where(_live_tenant, TENANTS.c.session_keys_from_us.is_not(None), *_session_without_new_key),
}
#: By level: how many session keys a rotation has still to put under another, or to replace.
COUNT_DUE: Final = {level: Statement(counted) for level, counted in _counted.items()}
COUNT_DUE_OF_TENANT: Final = {level: Statement(counted.where(_of_tenant)) for level, counted in _counted.items()}

_key_of_tenant = TENANT_KEYS.c.tenant_id == sa.bindparam("tenant_id")
TENANT_KEYS_OF: Final = Statement(
    sa.select(
        TENANT_KEYS.c.version,
        TENANT_KEYS.c.provider,
        TENANT_KEYS.c.key_id,
        TENANT_KEYS.c.wrapped,
        TENANTS.c.key_floor,
        sa.case((TENANT_KEYS.c.created_at_us < TENANTS.c.tenant_key_from_us, 1), else_=0),
    )
    .select_from(TENANT_KEYS.join(TENANTS, TENANTS.c.tenant_id == TENANT_KEYS.c.tenant_id))
    .where(_key_of_tenant, _live_tenant)
    .order_by(TENANT_KEYS.c.version)
)
# Not earlier than the rotation it is made for, whatever the clock did meanwhile: else it would count as an old one.
_since = {
    level: sa.case((now_us() < TENANTS.c[column], TENANTS.c[column]), else_=now_us())
    for level, column in _MARKER.items()
}
ADD_TENANT_KEY: Final = Statement(
    TENANT_KEYS.insert().from_select(
        ["tenant_id", "version", "provider", "key_id", "wrapped", "created_at_us"],
        sa.select(
            TENANTS.c.tenant_id,
            sa.bindparam("version", type_=sa.Integer),
            sa.bindparam("provider", type_=sa.String),
            sa.bindparam("key_id", type_=sa.String),
            sa.bindparam("wrapped", type_=sa.LargeBinary),
            _since["tenant"],
        )
        .select_from(TENANTS.join(TENANT_KEYS, TENANT_KEYS.c.tenant_id == TENANTS.c.tenant_id))
        .where(
            _of_tenant,
            _live_tenant,
            # With the provider of the one that it follows: a tenant that is moved to another meanwhile goes there.
            TENANT_KEYS.c.version + 1 == sa.bindparam("version", type_=sa.Integer),
            TENANT_KEYS.c.provider == sa.bindparam("provider", type_=sa.String),
        )
        # An erasure that has begun has removed the keys; none may come after.
        .with_for_update(of=[TENANTS, TENANT_KEYS], read=True),
    )
)
_after_key = sa.tuple_(SESSION_KEYS.c.session_id, SESSION_KEYS.c.version) > sa.tuple_(
    sa.bindparam("after_session", type_=sa.String), sa.bindparam("after_version", type_=sa.Integer)
)
_session_key_of_tenant = SESSION_KEYS.c.tenant_id == sa.bindparam("tenant_id")
_under_old = SESSION_KEYS.c.tenant_key_version < sa.bindparam("new_version", type_=sa.Integer)
SESSION_KEYS_UNDER_OLD: Final = Statement(
    sa.select(
        SESSION_KEYS.c.session_id,
        SESSION_KEYS.c.version,
        SESSION_KEYS.c.tenant_key_version,
        SESSION_KEYS.c.wrapped,
        SESSIONS.c.user_id,
    )
    .select_from(
        SESSION_KEYS.join(
            SESSIONS,
            sa.and_(
                SESSIONS.c.tenant_id == SESSION_KEYS.c.tenant_id, SESSIONS.c.session_id == SESSION_KEYS.c.session_id
            ),
        )
    )
    .where(_session_key_of_tenant, _under_old, _after_key)
    .order_by(SESSION_KEYS.c.session_id, SESSION_KEYS.c.version)
    .limit(_page)
)
# SKIP LOCKED: what somebody is removing with a whole batch of others is left to him. To wait for one while holding
# another would be to wait for each other.
LOCK_SESSION_KEY: Final = Statement(
    sa.select(SESSION_KEYS.c.version)
    .where(
        _session_key_of_tenant,
        SESSION_KEYS.c.session_id == sa.bindparam("session_id"),
        SESSION_KEYS.c.version == sa.bindparam("version"),
        _under_old,
    )
    .with_for_update(key_share=True, skip_locked=True)
)
REWRAP_SESSION_KEY: Final = Statement(
    SESSION_KEYS.update()
    .where(
        _session_key_of_tenant,
        SESSION_KEYS.c.session_id == sa.bindparam("session_id"),
        SESSION_KEYS.c.version == sa.bindparam("version"),
        _under_old,
    )
    .values(tenant_key_version=sa.bindparam("new_version", type_=sa.Integer), wrapped=sa.bindparam("new_wrapped"))
)
ANY_UNDER_OLD: Final = Statement(
    sa.select(SESSION_KEYS.c.version).where(_session_key_of_tenant, _under_old).limit(sa.literal_column("1"))
)
# The tenant before its keys: the order in which an erasure takes them.
LOCK_TENANT: Final = Statement(
    sa.select(TENANTS.c.tenant_id).where(_of_tenant, _live_tenant).with_for_update(key_share=True)
)
_older_key = (_key_of_tenant, TENANT_KEYS.c.version < sa.bindparam("new_version", type_=sa.Integer))
# Waits for those who are about to add a session's key under one of them, and keeps out whoever comes next.
LOCK_OLD_TENANT_KEYS: Final = Statement(sa.select(TENANT_KEYS.c.version).where(*_older_key).with_for_update())
DROP_OLD_TENANT_KEYS: Final = Statement(TENANT_KEYS.delete().where(*_older_key))
RAISE_FLOOR: Final = Statement(
    TENANTS.update()
    .where(_of_tenant, _live_tenant, TENANTS.c.key_floor < sa.bindparam("new_version", type_=sa.Integer))
    .values(key_floor=sa.bindparam("new_version", type_=sa.Integer))
)
SESSIONS_DUE: Final = Statement(
    sa.select(
        SESSIONS.c.session_id,
        SESSIONS.c.user_id,
        sa.select(sa.func.max(SESSION_KEYS.c.version))
        .where(SESSION_KEYS.c.tenant_id == SESSIONS.c.tenant_id, SESSION_KEYS.c.session_id == SESSIONS.c.session_id)
        .scalar_subquery(),
    )
    .select_from(SESSIONS.join(TENANTS, TENANTS.c.tenant_id == SESSIONS.c.tenant_id))
    .where(
        _of_tenant,
        _live_tenant,
        TENANTS.c.session_keys_from_us.is_not(None),
        *_session_without_new_key,
        SESSIONS.c.session_id > sa.bindparam("after_session", type_=sa.String),
    )
    .order_by(SESSIONS.c.session_id)
    .limit(_page)
)
_with_tenant_key = SESSIONS.join(TENANTS, TENANTS.c.tenant_id == SESSIONS.c.tenant_id).join(
    TENANT_KEYS, TENANT_KEYS.c.tenant_id == SESSIONS.c.tenant_id
)
ADD_SESSION_KEY: Final = Statement(
    # Holds the session, which whoever ends it waits for before he removes its keys, and the tenant's key.
    SESSION_KEYS.insert().from_select(
        ["tenant_id", "session_id", "version", "tenant_key_version", "wrapped", "created_at_us"],
        sa.select(
            SESSIONS.c.tenant_id,
            SESSIONS.c.session_id,
            sa.bindparam("version", type_=sa.Integer),
            TENANT_KEYS.c.version,
            sa.bindparam("wrapped", type_=sa.LargeBinary),
            _since["session"],
        )
        .select_from(_with_tenant_key)
        .where(
            _of_tenant,
            SESSIONS.c.session_id == sa.bindparam("session_id"),
            SESSIONS.c.state == "live",
            TENANT_KEYS.c.version == sa.bindparam("tenant_key_version"),
            sa.not_(
                sa.exists(
                    sa.select(SESSION_KEYS.c.version)
                    .where(
                        SESSION_KEYS.c.tenant_id == SESSIONS.c.tenant_id,
                        SESSION_KEYS.c.session_id == SESSIONS.c.session_id,
                        SESSION_KEYS.c.version >= sa.bindparam("version", type_=sa.Integer),
                    )
                    .correlate(SESSIONS)
                )
            ),
        )
        .with_for_update(of=[SESSIONS, TENANT_KEYS], read=True, skip_locked=True),
    )
)
