"""
Time. One source per catalogue: the database server's clock where there is one, this process's on SQLite.

Every moment is an `int` of microseconds since 1970 UTC (`…_us`), so that both databases compare the same numbers.
"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Clock:
    """
    The process clock plus an offset.

    :param offset_us: Added to the process clock and to the database's alike. Tests move it by hand; `0` otherwise.
    """

    offset_us: int = field(default=0)

    def now_us(self) -> int:
        """The process clock in microseconds since 1970 UTC, offset included."""
        return time.time_ns() // 1000 + self.offset_us

    def advance(self, by: timedelta) -> None:
        """Move the offset forward (or back). For tests."""
        self.offset_us += by // timedelta(microseconds=1)


def to_datetime(moment_us: int) -> datetime:
    """Turn microseconds since 1970 into an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=moment_us)


def to_us(duration: timedelta) -> int:
    """Turn a duration into whole microseconds."""
    return duration // timedelta(microseconds=1)
