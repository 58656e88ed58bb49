"""Tenants' keys go under the provider's primary key."""

from collections.abc import Iterator
from functools import cached_property

from tenancy.backend import Backend
from tenancy.catalogue.identity import RootKey
from tenancy.keys.stored import TenantKey
from tenancy.rotation.report import NOT_OPENED, Tally


class RootWork:
    """
    See `Work`. What hangs on another key stands with each tenant's key, so there is nothing to be asked for.

    :param tenant_id: Of this tenant only.
    """

    def __init__(self, backend: Backend, tally: Tally, tenant_id: str | None) -> None:
        self._one = backend.catalogue.rotation
        self._all = backend.across.rotation
        self._identity = backend.catalogue.identity
        self._keyring = backend.keyring
        self._tally = tally
        self._tenant_id = tenant_id

    @cached_property
    def _target(self) -> tuple[str, str]:
        # Asked once: a key service may have to be.
        return self._keyring.provider_name, self._keyring.primary_key_id

    def begin(self, *, anew: bool = False) -> bool:  # noqa: ARG002 - see `Work`
        """Which key is the primary one is the provider's to say, and not asked for here."""
        return True

    def count_left(self) -> int:
        """How many tenants' keys are under another key."""
        if self._tenant_id is not None:
            return len(self._to_be_moved(self._tenant_id))
        provider, key_id = self._target
        return self._all.count_under_other(provider=provider, key_id=key_id)

    def is_finished(self) -> bool:
        """All there is to be done is counted."""
        return True

    def carry_out(self) -> None:
        """Move what is not moved."""
        self._remember_target()
        for tenant_id in self._tenants():
            for key in self._to_be_moved(tenant_id):
                self._move(tenant_id, key)

    def end(self, left: int) -> None:
        """Forget the keys that nothing hangs on any more."""
        # Only whoever has looked at all tenants may say so.
        if self._tenant_id is None and left == 0:
            self._all.forget_root_keys(but=self._target)

    def _tenants(self) -> Iterator[str]:
        if self._tenant_id is not None:
            yield self._tenant_id
            return
        (provider, key_id), after = self._target, ""
        while page := self._all.tenants_under_other(provider=provider, key_id=key_id, after=after):
            yield from page
            after = page[-1]

    def _to_be_moved(self, tenant_id: str) -> list[TenantKey]:
        keys = self._one.tenant_keys(tenant_id)
        found = [] if keys is None else keys.by_version.values()
        return [key for key in found if (key.provider, key.key_id) != self._target]

    def _move(self, tenant_id: str, key: TenantKey) -> None:
        try:
            # Outside any transaction: a key service may take its time.
            moved = self._keyring.rewrap_tenant_key(key, tenant_id=tenant_id)
        except NOT_OPENED as error:
            self._tally.give_up(error, tenant_id, "", key.version)
            return
        if self._one.replace_tenant_key(tenant_id, old=key, new=moved):
            self._tally.advance(1)

    def _remember_target(self) -> None:
        # Before anything hangs on it: a start tells by it whether it has the right key.
        if self._target in {(known.provider, known.check.key_id) for known in self._identity.root_keys()}:
            return
        check = self._keyring.check_value(catalogue_id=self._identity.catalogue_id())
        self._identity.remember_root_key(RootKey(provider=self._keyring.provider_name, check=check))
