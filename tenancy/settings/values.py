"""The written forms of limits and durations, in settings and on the command line."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from tenancy.errors import ConfigurationError
from tenancy.quotas import DEFAULT_LIMITS, FIELDS, MAX_LIMIT, Lifetime, Limits

#: What an unlimited limit, and a result without a lifetime of its own, are called where there is no `None`.
UNLIMITED: Final = "unlimited"

_AMOUNT: Final = re.compile(r"([0-9]{1,19}) ?([A-Za-z]{1,3})?", re.ASCII)
_SUFFIXES: Final = {
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([smhdw])?", re.ASCII)
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_ISO_8601: Final = TypeAdapter(timedelta)


def parse_amount(value: object, *, suffixes: bool) -> int | None:
    """
    Return how many bytes or things a text or number means; `None` for `"unlimited"`.

    :param suffixes: Whether `KiB MiB GiB TiB` (powers of 1024) and `kB MB GB TB` (of 1000) are understood.
    :raises ValueError: If it is neither, is negative, or is larger than the databases hold. The message shows no value.
    """
    if value == UNLIMITED:
        return None
    amount = value
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value.strip())
        unit = _SUFFIXES.get((found[2] or "b").lower()) if found else None
        if found is None or unit is None or (found[2] and not suffixes):
            raise ValueError(_amount_rule(suffixes))
        amount = int(found[1]) * unit
    # A bool is an int, and 1.5 bytes are none.
    if type(amount) is not int or not 0 <= amount <= MAX_LIMIT:
        raise ValueError(_amount_rule(suffixes))
    return amount


def parse_duration(value: object) -> timedelta:
    """
    Return the duration that is meant: ISO 8601 (`"PT24H"`), a number with a unit (`"24h"`), or seconds.

    :raises ValueError: If it is none of them. The message shows no value.
    """
    try:
        if isinstance(value, timedelta):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
        if isinstance(value, str) and value.startswith("P"):
            return _ISO_8601.validate_python(value)
        found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is not None:
            return timedelta(seconds=float(found[1]) * _UNIT_SECONDS[found[2] or "s"])
    except (ValidationError, OverflowError, ValueError):
        pass
    raise ValueError(_DURATION_RULE)


def limits_of(value: object) -> Limits:
    """
    Return the manager's limits: those of a mapping of written forms, the rest from the defaults.

    :raises ValueError: Naming every field that is wrong or unknown, as `limits.FIELD`, and no value.
    """
    if isinstance(value, Limits):
        return value.over(DEFAULT_LIMITS)
    given = _checked(
        value,
        section="limits",
        fields=FIELDS,
        parse=lambda field, written: parse_amount(written, suffixes=field.endswith("_bytes")),
    )
    return Limits(**given).over(DEFAULT_LIMITS)


def lifetime_of(value: object) -> Lifetime:
    """
    Return the lifetime a mapping of written forms means; what it lacks has its default.

    :raises ValueError: Naming every field that is wrong or unknown, as `lifetime.FIELD`, and no value.
    """
    if isinstance(value, Lifetime):
        return value
    given = _checked(
        value,
        section="lifetime",
        fields=("idle", "maximum", "result"),
        parse=lambda field, written: (
            None if field == "result" and written in (None, UNLIMITED) else parse_duration(written)
        ),
    )
    try:
        return Lifetime(**given)
    except ConfigurationError:
        raise ValueError("each duration of lifetime must be positive and at most 100 years") from None


def _checked(
    value: object, *, section: str, fields: tuple[str, ...], parse: Callable[[str, object], Any]
) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        # A ValueError, since that is what pydantic collects.
        raise ValueError(f"{section} must be given field by field ({section}.{fields[0]} and so on)")  # noqa: TRY004
    parsed, wrong = {}, []
    for field, written in value.items():
        if field not in fields:
            wrong.append(f"{section}.{field} is not a setting")
            continue
        try:
            parsed[field] = parse(field, written)
        except ValueError as error:
            wrong.append(f"{section}.{field} {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return parsed


def _amount_rule(suffixes: bool) -> str:
    return f'must be a whole number from 0 to 2**63 - 1{" (64MiB, 2GB)" if suffixes else ""}, or "{UNLIMITED}"'


_DURATION_RULE: Final = "must be a duration such as 24h, 30d, PT24H or a number of seconds"
