"""Tenants' keys go under the primary key of their provider, or to another provider."""

from collections.abc import Iterator
from functools import cached_property

from tenancy.backend import Backend
from tenancy.errors import KeyUnavailable, TenancyError
from tenancy.keys.stored import TenantKey
from tenancy.known_keys import remember
from tenancy.rotation.report import Tally, concerns_all


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
        self._remembered: set[str] = set()

    @cached_property
    def _primaries(self) -> dict[str, str | None]:
        # Asked once: a key service may have to be.
        return self._keyring.primary_keys()

    def begin(self, *, anew: bool = False) -> bool:  # noqa: ARG002 - see `Work`
        """Which key is the primary one is the provider's to say, and not asked for here."""
        return True

    def count_left(self) -> int:
        """How many tenants' keys are under another key."""
        if self._tenant_id is not None:
            return len(self._to_be_moved(self._tenant_id))
        return sum(number for root, number in self._all.keys_under_each().items() if self._is_due(*root))

    def is_finished(self) -> bool:
        """All there is to be done is counted."""
        return True

    def carry_out(self) -> None:
        """Move what is not moved."""
        self._remember(self._keyring.provider_name)
        if self._tenant_id is None:
            # Also what went under a new primary key by itself: what is known before that is forgotten afterwards.
            for provider, key_id in self._all.keys_under_each():
                if self._primaries.get(provider) == key_id:
                    self._remember_other(provider)
        for tenant_id in self._tenants():
            for key in self._to_be_moved(tenant_id):
                self._move(tenant_id, key)

    def end(self, left: int) -> None:
        """Forget the keys that nothing hangs on any more."""
        # Only whoever has looked at all tenants may say so, and of whom he has the keys.
        if self._tenant_id is None and left == 0:
            self._all.forget_root_keys(of=self._primaries.keys(), but=self._primaries.items())

    def _target(self, provider: str) -> str | None:
        """To which provider a key of this one goes; `None` if it is to stay as it is."""
        return provider

    def _is_due(self, provider: str, key_id: str) -> bool:
        target = self._target(provider)
        # Under a provider that is not configured, or does not say under which key: not to be done now, and not to be
        # kept quiet about.
        return target is not None and (provider, key_id) != (target, self._primaries.get(target))

    def _tenants(self) -> Iterator[str]:
        if self._tenant_id is not None:
            yield self._tenant_id
            return
        for provider, key_id in self._all.keys_under_each():
            after = ""
            while self._is_due(provider, key_id) and (
                page := self._all.tenants_under(provider=provider, key_id=key_id, after=after)
            ):
                yield from page
                after = page[-1]

    def _to_be_moved(self, tenant_id: str) -> list[TenantKey]:
        keys = self._one.tenant_keys(tenant_id)
        found = [] if keys is None else keys.by_version.values()
        return [key for key in found if self._is_due(key.provider, key.key_id)]

    def _move(self, tenant_id: str, key: TenantKey) -> None:
        target = self._target(key.provider)
        try:
            moved = self._moved(tenant_id, key, to=key.provider if target is None else target)
        except TenancyError as error:
            if concerns_all(error, is_own_key=key.provider != self._keyring.provider_name):
                raise
            self._tally.give_up(error, tenant_id, version=key.version)
            return
        if self._one.replace_tenant_key(tenant_id, old=key, new=moved):
            self._tally.advance(1)

    def _moved(self, tenant_id: str, key: TenantKey, *, to: str) -> TenantKey:
        if to in self._primaries and self._primaries[to] is None:
            raise KeyUnavailable("The provider of a tenant's own key does not say which its primary key is.")
        if to in self._primaries:
            self._remember(to)
        # Outside any transaction: a key service may take its time.
        return self._keyring.rewrap_tenant_key(key, tenant_id=tenant_id, to=to)

    def _remember(self, provider: str) -> None:
        # Before anything hangs on it.
        if provider not in self._remembered:
            remember(self._identity, self._keyring, provider, primary=self._primaries[provider])
            self._remembered.add(provider)

    def _remember_other(self, provider: str) -> None:
        try:
            self._remember(provider)
        except TenancyError as error:
            if concerns_all(error, is_own_key=provider != self._keyring.provider_name):
                raise


class MoveWork(RootWork):
    """
    See `Work`. Keys go to another provider, where they stay.

    :param to: Its name.
    :param source: What is under this provider only.
    """

    def __init__(self, backend: Backend, tally: Tally, tenant_id: str | None, *, to: str, source: str | None) -> None:
        super().__init__(backend, tally, tenant_id)
        self._to = to
        self._source = source

    def carry_out(self) -> None:
        """Move what is not moved."""
        self._remember(self._to)
        super().carry_out()

    def _moved(self, tenant_id: str, key: TenantKey, *, to: str) -> TenantKey:
        try:
            return self._keyring.rewrap_tenant_key(key, tenant_id=tenant_id, to=to)
        except TenancyError:
            # It was asked for by name. If that is the one that is in the way, there is no going on.
            self._keyring.check_value(catalogue_id=self._identity.catalogue_id(), provider=to)
            raise

    def _is_due(self, provider: str, key_id: str) -> bool:
        # Where nobody says which key it would be, any of that provider's is as good.
        return super()._is_due(provider, key_id) and (provider != self._to or self._primaries[provider] is not None)

    def end(self, left: int) -> None:
        """Nothing is forgotten: who knows what the next rotation of all finds."""

    def _target(self, provider: str) -> str | None:
        return self._to if self._source in (None, provider) else None
