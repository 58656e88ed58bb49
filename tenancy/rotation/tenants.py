"""Each tenant gets a new key, its sessions' keys go under that, and the old one is destroyed."""

from typing import Final

from stores.errors import Conflict
from tenancy.catalogue.rotation import TenantKeys, WrappedSessionKey
from tenancy.errors import KeyDestroyed, StorageUnavailable, TenancyError
from tenancy.rotation.below import BelowWork
from tenancy.rotation.report import concerns_all

#: How often somebody else may give a tenant a new key first.
_ATTEMPTS: Final = 5


class TenantWork(BelowWork):
    """See `Work`."""

    level = "tenant"

    def is_finished(self) -> bool:
        """Tenants without a session have nothing to be counted, and still a key to be replaced."""
        if self._tally.failed:
            return True
        if self._tenant_id is not None:
            return not self._one.is_due(self.level, tenant_id=self._tenant_id)
        return next(self._tenants(), None) is None

    def carry_out(self) -> None:
        """Do so for each."""
        for tenant_id in self._tenants():
            keys = self._with_new_key(tenant_id)
            if keys is not None and len(keys.by_version) > 1:
                self._rewrap(tenant_id, keys)
                self._one.retire(tenant_id, newest=keys.newest.version)

    def _with_new_key(self, tenant_id: str) -> TenantKeys | None:
        for _ in range(_ATTEMPTS):
            keys = self._one.tenant_keys(tenant_id)
            if keys is None or self._is_away(tenant_id, keys):
                return None
            if not keys.is_due and not self._is_lost(tenant_id, keys):
                return keys
            # Outside any transaction: a key service may take its time.
            version, provider = keys.newest.version + 1, keys.newest.provider
            try:
                new = self._keyring.new_tenant_key(tenant_id=tenant_id, version=version, provider=provider)
                self._one.add_tenant_key(tenant_id, new)
            except Conflict:
                # Another process was faster, or the tenant is being erased or moved.
                continue
            except TenancyError as error:
                if self._concerns_all(error, keys):
                    raise
                left = self._one.count_due(self.level, tenant_id=tenant_id)
                self._tally.give_up(error, tenant_id, keys=max(left, 1))
                return None
        raise StorageUnavailable("The keys of a tenant could not be rotated: others kept changing them.")

    def _is_lost(self, tenant_id: str, keys: TenantKeys) -> bool:
        # Made under a key-encryption key that was destroyed before it was committed: nothing can be put under it.
        try:
            self._keyring.require_tenant_key(keys.newest, tenant_id=tenant_id)
        except KeyDestroyed:
            return True
        except TenancyError as error:
            if self._concerns_all(error, keys):
                raise
        return False

    def _concerns_all(self, error: TenancyError, keys: TenantKeys) -> bool:
        default = self._keyring.provider_name
        return concerns_all(error, is_own_key=any(key.provider != default for key in keys.by_version.values()))

    def _rewrap(self, tenant_id: str, keys: TenantKeys) -> None:
        after = ("", 0)
        while page := self._one.session_keys_under_old(tenant_id, newest=keys.newest.version, after=after):
            after = (page[-1].ids.session_id, page[-1].key.version)
            rewrapped = [new for old in page if (new := self._rewrapped(old, keys)) is not None]
            self._tally.advance(self._one.rewrap_session_keys(tenant_id, rewrapped))

    def _rewrapped(self, old: WrappedSessionKey, keys: TenantKeys) -> WrappedSessionKey | None:
        ids = old.ids
        try:
            key = self._keyring.rewrap_session_key(
                old.key,
                # Where its own is not there any more the newest one does not open it either.
                old=keys.by_version.get(old.key.tenant_key_version, keys.newest),
                new=keys.newest,
                tenant_id=ids.tenant_id,
                user_id=ids.user_id,
                session_id=ids.session_id,
            )
        except TenancyError as error:
            if self._concerns_all(error, keys):
                raise
            self._tally.give_up(error, ids.tenant_id, ids.session_id, old.key.version)
            return None
        return WrappedSessionKey(ids, key)
