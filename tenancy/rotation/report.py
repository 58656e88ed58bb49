"""What a rotation is asked for, what it did, and what it could not do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt, TenancyError
from tenancy.events import emit
from tenancy.keys.providers import DisabledKey, UnknownKey

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


#: What says of one key that it does not open, and nothing of any other: that one is passed over.
NOT_OPENED: Final = (UnknownKey, DisabledKey, KeyDestroyed, ResultCorrupt)


def concerns_all(error: TenancyError, *, is_own_key: bool) -> bool:
    """
    Tell whether what went wrong with a key would with others too, so that there is no going on.

    :param is_own_key: Whether it is with a provider of its own tenant's, whose troubles are nobody else's.
    """
    return not isinstance(error, (*NOT_OPENED, KeyUnavailable, ConfigurationError) if is_own_key else NOT_OPENED)


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


@dataclass(slots=True, eq=False)
class Tally:
    """
    Counts while the work goes on.

    :param on_progress: Told of each step forward.
    """

    on_progress: Progress | None
    total: int = 0
    changed: int = 0
    #: How many keys, by whose they are and their version: each pass meets them again.
    given_up: dict[tuple[str, str, int], int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many keys could not be opened."""
        return sum(self.given_up.values())

    def advance(self, number: int) -> None:
        """So many more keys are done."""
        self.changed += number
        if self.on_progress:
            self.on_progress(self.changed, max(self.total, self.changed))

    def give_up(self, error: Exception, tenant_id: str, session_id: str = "", version: int = 0, keys: int = 1) -> None:
        """A key cannot be opened, and with it so many. Said once."""
        which = tenant_id, session_id, version
        if which not in self.given_up:
            emit("not_rotated", error=type(error).__name__)
        self.given_up[which] = keys


def require_level(level: str) -> None:
    """Refuse anything but a level."""
    if level not in LEVELS:
        raise ConfigurationError(f"The level of keys must be one of {', '.join(LEVELS)}.")
