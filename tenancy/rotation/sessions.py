"""Each live session gets a new key, for what is written from now on."""

from stores.errors import Conflict
from tenancy.catalogue.rotation import WrappedSessionKey
from tenancy.catalogue.sessions import Ids
from tenancy.errors import TenancyError
from tenancy.keys.stored import TenantKey
from tenancy.rotation.below import BelowWork
from tenancy.rotation.report import concerns_all


class SessionWork(BelowWork):
    """See `Work`."""

    level = "session"

    def is_finished(self) -> bool:
        """All there is to be done is counted."""
        return True

    def carry_out(self) -> None:
        """Do so for each."""
        for tenant_id in self._tenants():
            keys = self._one.tenant_keys(tenant_id)
            if keys is not None and not self._is_away(tenant_id, keys):
                self._renew(tenant_id, keys.newest)

    def _renew(self, tenant_id: str, under: TenantKey) -> None:
        after = ""
        while page := self._one.sessions_due(tenant_id, after=after):
            after = page[-1][0].session_id
            # Without a version it has no key, since it is just being ended.
            asked = [(ids, version + 1) for ids, version in page if version is not None]
            made = [key for ids, version in asked if (key := self._made(ids, version, under)) is not None]
            try:
                self._tally.advance(self._one.add_session_keys(tenant_id, made))
            except Conflict:
                # Another process is at the same page; the next pass finds what is left.
                continue

    def _made(self, ids: Ids, version: int, under: TenantKey) -> WrappedSessionKey | None:
        try:
            key = self._keyring.new_session_key(
                under, tenant_id=ids.tenant_id, user_id=ids.user_id, session_id=ids.session_id, version=version
            )
        except TenancyError as error:
            if concerns_all(error, is_own_key=under.provider != self._keyring.provider_name):
                raise
            self._tally.give_up(error, ids.tenant_id, ids.session_id, version)
            return None
        return WrappedSessionKey(ids, key)
