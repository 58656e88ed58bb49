"""Tenants' keys go under the primary key of their provider, or to another provider."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from tenancy.backend import Backend
from tenancy.catalogue.identity import RootKey
from tenancy.errors import KeyDestroyed, KeyUnavailable, TenancyError
from tenancy.keys.stored import TenantKey
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

    @cached_property
    def _primaries(self) -> dict[str, str | None]:
        # Asked once: a key service may have to be.
        return self._keyring.primary_keys()

    @cached_property
    def _known(self) -> set[tuple[str, str]]:
        return {(known.provider, known.check.key_id) for known in self._identity.root_keys()}

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
        for tenant_id in self._tenants():
            for key in self._to_be_moved(tenant_id):
                self._move(tenant_id, key)

    def end(self, left: int) -> None:
        """Forget the keys that nothing hangs on any more."""
        # Only whoever has looked at all tenants may say so.
        if self._tenant_id is None and left == 0:
            self._all.forget_root_keys(but=self._primaries.items())

    def _target(self, provider: str) -> str | None:
        """To which provider a key of this one goes; `None` if it is to stay as it is."""
        return provider

    def _is_due(self, provider: str, key_id: str) -> bool:
        target = self._target(provider)
        if target is None:
            return False
        # Under a provider that is not configured: not to be done without it, and not to be kept quiet about.
        primary = self._primaries.get(target, "")
        # One that does not answer is another tenant's own, and keeps nobody waiting.
        return primary is not None and (provider, key_id) != (target, primary)

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
            if target in self._primaries:
                self._remember(target)
            # Outside any transaction: a key service may take its time.
            moved = self._keyring.rewrap_tenant_key(key, tenant_id=tenant_id, to=target)
        except TenancyError as error:
            if concerns_all(error, is_own_key=key.provider != self._keyring.provider_name):
                raise
            self._tally.give_up(error, tenant_id, "", key.version)
            return
        if self._one.replace_tenant_key(tenant_id, old=key, new=moved):
            self._tally.advance(1)

    def _remember(self, provider: str) -> None:
        # Before anything hangs on it: a start tells by it whether it has the right key.
        if (provider, self._primaries[provider]) not in self._known:
            # Not what has come back as another one; whether all that was known is still at hand is not the question.
            with suppress(KeyUnavailable, KeyDestroyed):
                self._keyring.require_key(provider)
            check = self._keyring.check_value(catalogue_id=self._identity.catalogue_id(), provider=provider)
            self._identity.remember_root_key(RootKey(provider=provider, check=check))
            self._known.add((provider, check.key_id))


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
        # Whose key this is asks for it by name, so it is told if it does not answer.
        self._keyring.require_key(self._to)
        self._remember(self._to)
        super().carry_out()

    def end(self, left: int) -> None:
        """Nothing is forgotten: who knows what the next rotation of all finds."""

    def _target(self, provider: str) -> str | None:
        return self._to if self._source in (None, provider) else None
