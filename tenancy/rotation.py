"""
Rotation: keys are put under new keys, or followed by new ones. No result is touched, and old and new read throughout.

Any number of processes may be at it at once; each step is safe to repeat, and what is left when one dies is found and
carried on by the next.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from stores.errors import Conflict
from tenancy.backend import Backend
from tenancy.catalogue.identity import RootKey
from tenancy.catalogue.rotation import RotationTable, TenantKeys, WrappedSessionKey
from tenancy.errors import ConfigurationError, KeyDestroyed, ResultCorrupt, SessionNotFound, StorageUnavailable
from tenancy.events import emit
from tenancy.keys.keyring import TenantKey
from tenancy.keys.providers import UnknownKey

#: Which keys are rotated.
#:
#: * `"root"`: tenants' keys are put under the provider's primary key.
#: * `"tenant"`: each tenant gets a new key, its sessions' keys are put under that, and the old one is destroyed.
#: * `"session"`: each live session gets a new key for what is written from now on. What was written before stays under
#:   the old one, which ends with the session.
KeyLevel = Literal["root", "tenant", "session"]
LEVELS: Final[tuple[KeyLevel, ...]] = get_args(KeyLevel)
#: Called with how many keys are done, and how many there were to be done at the start.
Progress = Callable[[int, int], None]

#: How often what others are at work on at the same moment is come back to, and after how long.
_PASSES: Final = 20
_PAUSE_SECONDS: Final = 0.1
#: How often somebody else may give a tenant a new key first.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class RotationReport:
    """
    What a rotation did.

    :param changed: How many keys were put under another one or followed by a new one: tenants' keys at the level
        `"root"`, sessions' keys at the others.
    :param resumed: Whether it carried on one that was interrupted, and began none.
    :param failed: How many keys could not be opened, and are as they were: damaged, or their key is not there any more.
    :param left: How many are still to be done: those that failed, and those that others kept at work on.
    """

    level: KeyLevel
    changed: int
    resumed: bool
    failed: int
    left: int

    @property
    def complete(self) -> bool:
        """Whether nothing is left on an old key."""
        return self.left == 0


def require_level(level: str) -> None:
    """Refuse anything but a level."""
    if level not in LEVELS:
        raise ConfigurationError(f"The level of keys must be one of {', '.join(LEVELS)}.")


class Rotator:
    """
    One run at one level, for one tenant or for all.

    :param tenant: Its name; `None` for all, which on PostgreSQL only the maintenance role may.
    :raises SessionNotFound: If there is no such tenant.
    """

    def __init__(
        self, backend: Backend, level: KeyLevel, *, tenant: str | None, on_progress: Progress | None = None
    ) -> None:
        self._backend = backend
        self._level = level
        self._one = backend.catalogue.rotation
        self._all = backend.across.rotation
        self._keyring = backend.keyring
        self._on_progress = on_progress
        self._changed = self._total = 0
        # By id and version, since each pass meets them again.
        self._failed: set[tuple[str, str, int]] = set()
        self._tenant_id: str | None = None
        if tenant is None:
            backend.across.access.require_across()
        else:
            self._tenant_id = self._one.tenant_id(tenant)
            if self._tenant_id is None:
                raise SessionNotFound("There is no such tenant.")

    def rotate(self) -> RotationReport:
        """Begin a rotation, or carry on the one that was interrupted."""
        if self._level == "root":
            return self._run(resumed=False)
        return self._run(resumed=not self._table.mark(self._level, tenant_id=self._tenant_id))

    def carry_on(self) -> RotationReport:
        """Do what is left of rotations that were begun, and begin none."""
        return self._run(resumed=True)

    @property
    def _table(self) -> RotationTable:
        return self._all if self._tenant_id is None else self._one

    def _run(self, *, resumed: bool) -> RotationReport:
        step = {"root": self._move, "tenant": self._renew_tenant, "session": self._renew_sessions}[self._level]
        left = self._total = self._count()
        for number in range(_PASSES):
            if number:
                time.sleep(_PAUSE_SECONDS)
            for tenant_id in self._tenants():
                step(tenant_id)
            left = self._count()
            if left <= len(self._failed) and not self._is_unfinished():
                break
        if self._level == "root":
            self._forget(left)
        return RotationReport(self._level, self._changed, resumed, len(self._failed), left)

    def _count(self) -> int:
        if self._level != "root":
            return self._table.count_due(self._level, tenant_id=self._tenant_id)
        if self._tenant_id is None:
            return self._all.count_under_other(provider=self._target[0], key_id=self._target[1])
        return sum(not self._is_moved(key) for key in self._keys(self._tenant_id).by_version.values())

    def _is_unfinished(self) -> bool:
        # Tenants without a session have nothing to be counted, and still a key to be replaced.
        if self._level != "tenant" or self._failed:
            return False
        if self._tenant_id is not None:
            return self._one.is_due(self._level, tenant_id=self._tenant_id)
        return next(self._tenants(), None) is not None

    def _tenants(self) -> Iterator[str]:
        if self._tenant_id is not None:
            yield self._tenant_id
            return
        after = ""
        while True:
            page = (
                self._all.tenants_under_other(provider=self._target[0], key_id=self._target[1], after=after)
                if self._level == "root"
                else self._all.tenants_due(self._level, after=after)
            )
            yield from page
            if not page:
                return
            after = page[-1]

    def _advance(self, number: int) -> None:
        self._changed += number
        if self._on_progress:
            self._on_progress(self._changed, max(self._total, self._changed))

    def _keys(self, tenant_id: str) -> TenantKeys:
        return self._one.tenant_keys(tenant_id) or TenantKeys({}, is_due=False)

    # Tenants' keys under the provider's primary key.

    @property
    def _target(self) -> tuple[str, str]:
        return self._keyring.provider_name, self._keyring.primary_key_id

    def _is_moved(self, key: TenantKey) -> bool:
        return (key.provider, key.key_id) == self._target

    def _move(self, tenant_id: str) -> None:
        for key in self._keys(tenant_id).by_version.values():
            if self._is_moved(key):
                continue
            self._remember_target()
            try:
                # Outside any transaction: a key service may take its time.
                moved = self._keyring.rewrap_tenant_key(key, tenant_id=tenant_id)
            except (UnknownKey, KeyDestroyed, ResultCorrupt) as error:
                self._give_up(error, tenant_id, "", key.version)
                continue
            if self._one.replace_tenant_key(tenant_id, old=key, new=moved):
                self._advance(1)

    def _remember_target(self) -> None:
        # Before anything hangs on it: a start tells by it whether it has the right key.
        identity = self._backend.catalogue.identity
        if self._target in {(known.provider, known.check.key_id) for known in identity.root_keys()}:
            return
        check = self._keyring.check_value(catalogue_id=identity.catalogue_id())
        identity.remember_root_key(RootKey(provider=self._keyring.provider_name, check=check))

    def _forget(self, left: int) -> None:
        # Only whoever has looked at all tenants may say that nothing hangs on the others.
        if self._tenant_id is None and left == 0:
            self._remember_target()
            self._all.forget_root_keys(but=self._target)

    # A new key for a tenant, and its sessions' keys under that.

    def _renew_tenant(self, tenant_id: str) -> None:
        keys = self._with_new_key(tenant_id)
        if keys is None:
            return
        newest = keys.newest
        after = ("", 0)
        while page := self._one.session_keys_under_old(tenant_id, newest=newest.version, after=after):
            after = (page[-1].ids.session_id, page[-1].key.version)
            rewrapped = [new for old in page if (new := self._rewrapped(old, keys)) is not None]
            self._advance(self._one.rewrap_session_keys(tenant_id, rewrapped))
        if len(keys.by_version) > 1:
            self._one.retire(tenant_id, newest=newest.version)

    def _with_new_key(self, tenant_id: str) -> TenantKeys | None:
        for _ in range(_ATTEMPTS):
            keys = self._one.tenant_keys(tenant_id)
            if keys is None or not keys.is_due:
                return keys
            new = self._keyring.new_tenant_key(tenant_id=tenant_id, version=keys.newest.version + 1)
            try:
                self._one.add_tenant_key(tenant_id, new)
            except Conflict:
                # Another process was faster, or the tenant is being erased.
                continue
        raise StorageUnavailable("The keys of a tenant could not be rotated: others kept changing them.")

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
        except (UnknownKey, KeyDestroyed, ResultCorrupt) as error:
            self._give_up(error, ids.tenant_id, ids.session_id, old.key.version)
            return None
        return WrappedSessionKey(ids, key)

    # New keys for sessions.

    def _renew_sessions(self, tenant_id: str) -> None:
        newest = self._keys(tenant_id)
        after = ""
        while newest.by_version and (page := self._one.sessions_due(tenant_id, after=after)):
            after = page[-1][0].session_id
            made = [
                WrappedSessionKey(
                    ids,
                    self._keyring.new_session_key(
                        newest.newest,
                        tenant_id=tenant_id,
                        user_id=ids.user_id,
                        session_id=ids.session_id,
                        version=version + 1,
                    ),
                )
                for ids, version in page
                # Without a key it is just being ended.
                if version is not None
            ]
            try:
                self._advance(self._one.add_session_keys(tenant_id, made))
            except Conflict:
                # Another process is at the same page; the next pass finds what is left.
                continue

    def _give_up(self, error: Exception, tenant_id: str, session_id: str, version: int) -> None:
        if (tenant_id, session_id, version) not in self._failed:
            self._failed.add((tenant_id, session_id, version))
            emit("not_rotated", error=type(error).__name__)
