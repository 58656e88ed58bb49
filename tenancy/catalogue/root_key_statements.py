"""The statements about what hangs on which key-encryption key, and putting a tenant's key under another."""

from typing import Final

import sqlalchemy as sa

from stores.sql import Statement
from tenancy.schema import ROOT_KEYS, SESSION_KEYS, TENANT_KEYS, TENANTS

_page = sa.bindparam("page", type_=sa.Integer)
_after_tenant = sa.bindparam("after_tenant", type_=sa.String)
_live_tenant = TENANTS.c.state == "live"
_key_of_tenant = TENANT_KEYS.c.tenant_id == sa.bindparam("tenant_id")
_provider, _key_id = sa.bindparam("provider", type_=sa.String), sa.bindparam("key_id", type_=sa.String)
_keys_of_live = TENANT_KEYS.join(TENANTS, TENANTS.c.tenant_id == TENANT_KEYS.c.tenant_id)
TENANTS_UNDER: Final = Statement(
    sa.select(TENANT_KEYS.c.tenant_id)
    .distinct()
    .select_from(_keys_of_live)
    .where(
        _live_tenant,
        TENANT_KEYS.c.provider == _provider,
        TENANT_KEYS.c.key_id == _key_id,
        TENANT_KEYS.c.tenant_id > _after_tenant,
    )
    .order_by(TENANT_KEYS.c.tenant_id)
    .limit(_page)
)
KEYS_UNDER_EACH: Final = Statement(
    sa.select(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id, sa.func.count())
    .select_from(_keys_of_live)
    .where(_live_tenant)
    .group_by(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id)
    .order_by(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id)
)
REPLACE_TENANT_KEY: Final = Statement(
    TENANT_KEYS.update()
    .where(
        _key_of_tenant,
        TENANT_KEYS.c.version == sa.bindparam("version"),
        TENANT_KEYS.c.provider == sa.bindparam("old_provider"),
        TENANT_KEYS.c.key_id == sa.bindparam("old_key_id"),
    )
    .values(provider=_provider, key_id=_key_id, wrapped=sa.bindparam("wrapped"))
)
ROOT_KEYS_IN_USE: Final = Statement(
    sa.select(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id, sa.func.count(sa.distinct(TENANT_KEYS.c.tenant_id)))
    .group_by(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id)
    .order_by(TENANT_KEYS.c.provider, TENANT_KEYS.c.key_id)
)
ROOT_KEYS_KNOWN: Final = Statement(
    sa.select(ROOT_KEYS.c.provider, ROOT_KEYS.c.key_id, ROOT_KEYS.c.created_at_us).order_by(
        ROOT_KEYS.c.created_at_us, ROOT_KEYS.c.provider, ROOT_KEYS.c.key_id
    )
)
FORGET_ROOT_KEY: Final = Statement(
    ROOT_KEYS.delete().where(
        ROOT_KEYS.c.provider == _provider,
        ROOT_KEYS.c.key_id == _key_id,
        sa.not_(
            sa.exists(
                sa.select(TENANT_KEYS.c.version)
                .where(TENANT_KEYS.c.provider == ROOT_KEYS.c.provider, TENANT_KEYS.c.key_id == ROOT_KEYS.c.key_id)
                .correlate(ROOT_KEYS)
            )
        ),
    )
)
OLDEST_KEYS: Final = Statement(
    sa.select(
        sa.select(sa.func.min(TENANT_KEYS.c.created_at_us)).scalar_subquery(),
        sa.select(sa.func.min(SESSION_KEYS.c.created_at_us)).scalar_subquery(),
        sa.select(sa.func.count()).select_from(TENANT_KEYS).scalar_subquery(),
        sa.select(sa.func.count()).select_from(SESSION_KEYS).scalar_subquery(),
    )
)
