"""How much may be stored: limits, and what is in use."""

from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Final, Self

from tenancy.errors import ConfigurationError


class _Unset(Enum):
    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


#: A limit that is not given here: the next wider level decides.
UNSET: Final = _Unset.UNSET
Limit = int | None | _Unset

#: The largest number both databases hold.
MAX_LIMIT = 2**63 - 1

#: The limit fields each level may set: its own and those of narrower levels.
FIELDS_OF_LEVEL: Final = {
    "session": ("max_result_bytes", "session_bytes", "session_results"),
    "user": ("max_result_bytes", "session_bytes", "session_results", "user_bytes", "user_results", "user_sessions"),
    "tenant": (
        "max_result_bytes",
        "session_bytes",
        "session_results",
        "user_bytes",
        "user_results",
        "user_sessions",
        "tenant_bytes",
        "tenant_results",
        "tenant_sessions",
    ),
}
FIELDS: Final = FIELDS_OF_LEVEL["tenant"]


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Upper bounds, in plaintext bytes and in counts.

    `None` is unlimited. `UNSET` inherits: a session from its user, a user from its tenant, a tenant from the manager.
    Read at each write, so a change counts at once. The manager's own are never stored.

    :raises ConfigurationError: If a value is not a whole number from 0 to 2**63 - 1, `None` or `UNSET`.
    """

    max_result_bytes: Limit = UNSET
    session_bytes: Limit = UNSET
    session_results: Limit = UNSET
    user_bytes: Limit = UNSET
    user_results: Limit = UNSET
    user_sessions: Limit = UNSET
    tenant_bytes: Limit = UNSET
    tenant_results: Limit = UNSET
    tenant_sessions: Limit = UNSET

    def __post_init__(self) -> None:
        for field in FIELDS:
            value = getattr(self, field)
            if value is None or value is UNSET:
                continue
            if type(value) is not int or not 0 <= value <= MAX_LIMIT:
                raise ConfigurationError(
                    f"The limit {field} must be a whole number from 0 to 2**63 - 1, or None for unlimited."
                )

    def require_level(self, level: str) -> Self:
        """
        Refuse a field of a wider level than the one being set.

        :param level: `"session"`, `"user"` or `"tenant"`.
        :raises ConfigurationError: For instance `tenant_bytes` at a user.
        """
        for field in FIELDS:
            if getattr(self, field) is not UNSET and field not in FIELDS_OF_LEVEL[level]:
                raise ConfigurationError(f"The limit {field} cannot be set at a {level}; set it at a wider level.")
        return self

    def over(self, wider: "Limits") -> "Limits":
        """Return these limits with every `UNSET` field taken from `wider`."""
        return Limits(
            **{
                field.name: getattr(wider, field.name)
                if getattr(self, field.name) is UNSET
                else getattr(self, field.name)
                for field in fields(self)
            }
        )


#: 64 MiB a result, 1 GiB a user, the rest unlimited.
DEFAULT_LIMITS: Final = Limits(
    max_result_bytes=64 * 2**20,
    session_bytes=None,
    session_results=None,
    user_bytes=2**30,
    user_results=None,
    user_sessions=None,
    tenant_bytes=None,
    tenant_results=None,
    tenant_sessions=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one tenant, user or session has in use, and what it may have. `None` is unlimited."""

    used_bytes: int
    results: int
    sessions: int
    limit_bytes: int | None
    limit_results: int | None
    limit_sessions: int | None
    max_result_bytes: int | None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """
    How long a session and its results live.

    :param idle: Ends a session that was not used for this long.
    :param maximum: Ends a session this long after it was opened first, however much it is used.
    :param result: Ends each result this long after it was written; `None` keeps it as long as its session.
    :raises ConfigurationError: If a duration is not a positive `timedelta` of at most 100 years.
    """

    idle: timedelta = timedelta(hours=24)
    maximum: timedelta = timedelta(days=30)
    result: timedelta | None = None

    def __post_init__(self) -> None:
        for name in ("idle", "maximum", "result"):
            value = getattr(self, name)
            if value is None and name == "result":
                continue
            if not isinstance(value, timedelta) or not timedelta(0) < value <= timedelta(days=36525):
                raise ConfigurationError(f"The lifetime {name} must be a positive timedelta of at most 100 years.")
