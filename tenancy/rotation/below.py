"""What the two levels below have in common: that a rotation was asked for stands with each tenant."""

from collections.abc import Iterator
from typing import ClassVar

from tenancy.backend import Backend
from tenancy.catalogue.rotation import Below
from tenancy.rotation.report import Tally


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

    def _tenants(self) -> Iterator[str]:
        if self._tenant_id is not None:
            yield self._tenant_id
            return
        after = ""
        while page := self._all.tenants_due(self.level, after=after):
            yield from page
            after = page[-1]
