"""Which keys there are, how old they are, and what still hangs on an old one. Nothing secret is in it."""

from dataclasses import dataclass
from datetime import datetime

from tenancy.backend import Backend
from tenancy.clock import to_datetime
from tenancy.rotation.report import Tally
from tenancy.rotation.root import RootWork


@dataclass(frozen=True, slots=True, kw_only=True)
class RootKeyInfo:
    """
    A key-encryption key, as far as the provider and the catalogue know it.

    :param provider: What its provider is called in `other_keys`; of that in `keys`, its kind.
    :param state: `"primary"`, `"enabled"`, `"disabled"` or `"destroyed"`; `"missing"` where the provider lists its keys
        and this one is not among them, `"unknown"` where it does not or cannot now, and `"foreign"` if its provider is
        not configured.
    :param created_at: When it was made; where the provider does not say, when this catalogue first used it.
    :param tenants: How many tenants hang on it.
    """

    provider: str
    key_id: str
    state: str
    created_at: datetime | None
    tenants: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    """
    The keys of a catalogue.

    :param tenant_keys: How many wrapped keys of tenants there are.
    :param session_keys: How many of sessions.
    :param oldest_tenant_key_at: When the oldest was made; `None` if there is none.
    :param due: By level, how many keys a rotation that was begun has still to do.
    """

    root_keys: tuple[RootKeyInfo, ...]
    tenant_keys: int
    session_keys: int
    oldest_tenant_key_at: datetime | None
    oldest_session_key_at: datetime | None
    due: dict[str, int]


def report_keys(backend: Backend) -> KeyReport:
    """Ask the provider and the catalogue, as the role that works on all tenants."""
    rotation, keyring = backend.across.rotation, backend.keyring
    counts = rotation.counts()
    primaries = keyring.primary_keys()
    listed = {
        (name, key.key_id): (key.state.value, key.created_at)
        for name in primaries
        for key in keyring.provider_keys(name) or ()
    }
    listing = {name for name, _ in listed}
    known = {(use.provider, use.key_id): use for use in rotation.root_keys()}
    held = [(name, key_id) for name, key_id in primaries.items() if key_id is not None]
    roots = []
    for provider, key_id in dict.fromkeys([*known, *listed, *held]):
        use = known.get((provider, key_id))
        unlisted = "missing" if provider in listing else "unknown" if provider in primaries else "foreign"
        is_primary = primaries.get(provider) == key_id
        state, created_at = listed.get((provider, key_id), ("primary" if is_primary else unlisted, None))
        if created_at is None and use is not None:
            created_at = _moment(use.known_since_us)
        roots.append(
            RootKeyInfo(
                provider=provider,
                key_id=key_id,
                state=state,
                created_at=created_at,
                tenants=0 if use is None else use.tenants,
            )
        )
    due = {
        "root": RootWork(backend, Tally(None), None).count_left(),
        "tenant": rotation.count_due("tenant", tenant_id=None),
        "session": rotation.count_due("session", tenant_id=None),
    }
    return KeyReport(
        root_keys=tuple(roots),
        tenant_keys=counts.tenant_keys,
        session_keys=counts.session_keys,
        oldest_tenant_key_at=_moment(counts.oldest_tenant_key_us),
        oldest_session_key_at=_moment(counts.oldest_session_key_us),
        due=due,
    )


def _moment(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)
