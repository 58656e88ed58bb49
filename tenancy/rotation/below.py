"""What the two levels below have in common: that a rotation was asked for stands with each tenant."""

from collections.abc import Iterator
from typing import ClassVar

from tenancy.backend import Backend
from tenancy.catalogue.rotation import Below, TenantKeys
from tenancy.errors import KeyDestroyed, TenancyError
from tenancy.rotation.report import Tally, concerns_all


class BelowWork:
    """
    See `Work`.

    :param tenant_id: Of this tenant only.
    """

    level: ClassVar[Below]

    def __init__(self, backend: Backend, tally: Tally, tenant_id: str | None) -> None:
        self._one = backend.catalogue.rotation
        self._all = backend.across.rotation
        self._keyring = backend.keyring
        self._tally = tally
        self._tenant_id = tenant_id

    def begin(self, *, anew: bool = False) -> bool:
        """Ask for new keys; unless `anew`, not while those that were asked for before are not all there."""
        table = self._all if self._tenant_id is None else self._one
        return table.mark(self.level, tenant_id=self._tenant_id, anew=anew)

    def count_left(self) -> int:
        """How many sessions' keys are to be put under another one, or followed by a new one."""
        table = self._all if self._tenant_id is None else self._one
        return table.count_due(self.level, tenant_id=self._tenant_id)

    def end(self, left: int) -> None:
        """Nothing comes after."""

    def _is_away(self, tenant_id: str, keys: TenantKeys) -> bool:
        """
        Give up a tenant that has a key of its own, if that cannot be used. Asked once: it may take its time to fail.

        :returns: Whether it was given up, now or before.
        """
        if (tenant_id, "", 0) in self._tally.given_up:
            return True
        own = [key for key in keys.by_version.values() if key.provider != self._keyring.provider_name]
        for key in own:
            try:
                self._keyring.require_tenant_key(key, tenant_id=tenant_id)
            except TenancyError as error:
                # What is gone for good is the business of whoever makes a new one.
                if isinstance(error, KeyDestroyed):
                    continue
                if concerns_all(error, is_own_key=True):
                    raise
                left = self._one.count_due(self.level, tenant_id=tenant_id)
                self._tally.give_up(error, tenant_id, keys=max(left, 1))
                return True
        return False

    def _tenants(self) -> Iterator[str]:
        if self._tenant_id is not None:
            yield self._tenant_id
            return
        after = ""
        while page := self._all.tenants_due(self.level, after=after):
            yield from page
            after = page[-1]
