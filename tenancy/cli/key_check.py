"""The check of `tenancy doctor` on how old keys are."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tenancy.cli.check import Check, Status

if TYPE_CHECKING:
    from tenancy.rotation import KeyReport

_NOT_AT_HAND: Final = ("disabled", "destroyed", "missing", "foreign")
#: The period after which AWS KMS rotates a key by itself. NIST SP 800-57 part 1, table 1, allows a key-wrapping key two
#: years of wrapping.
_ROTATION_DUE: Final = timedelta(days=365)


def keys(report: "KeyReport", *, now: datetime) -> Check:
    """Look how old the key-encryption key is, and whether anything hangs on an old one."""
    unusable = sum(key.tenants for key in report.root_keys if key.state in _NOT_AT_HAND)
    if unusable:
        return Check(
            "keys",
            Status.WARN,
            f"Tenants whose key is under one that is disabled, destroyed or not configured: {unusable}.",
            "See `tenancy keys list`; enable it, or erase what hung on it.",
        )
    if waiting := sum(report.due.values()):
        return Check(
            "keys",
            Status.WARN,
            f"Keys that wait for a rotation that was begun: {waiting}.",
            "Run `tenancy keys rewrap`.",
        )
    ages = [(now - key.created_at).days for key in report.root_keys if key.state == "primary" and key.created_at]
    age = max(ages, default=None)
    if age is None:
        return Check("keys", Status.OK, "Nothing hangs on an old key.")
    if age > _ROTATION_DUE.days:
        return Check(
            "keys", Status.WARN, f"The primary key is {age} days old.", "Run `tenancy keys rotate root` once a year."
        )
    return Check("keys", Status.OK, f"The primary key is {age} days old, and nothing hangs on an older one.")
