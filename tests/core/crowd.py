"""What those do who write, delete, clean up and erase in the same few rooms, all at once."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tenancy import Lifetime, Limits, SessionManager
from tenancy.settings import Settings

#: The parts of the threads of one process.
MIXED: Final = ("write", "write", "write", "delete", "end", "clean", "erase", "limit")
TENANTS: Final = 3
USERS: Final = 3
SESSIONS: Final = 2
_HOUR: Final = Lifetime(idle=timedelta(hours=1), result=timedelta(minutes=90))
_SIZES: Final = (1, 100, 40_000)


class Mixed:
    """
    One thread in the crowd.

    :param manager: Of its process. Whoever cleans up has one of its own, whose clock is two hours ahead.
    """

    def __init__(self, settings: Settings, manager: SessionManager, *, seed: int) -> None:
        self._settings = settings
        self._manager = manager
        self._chance = random.Random(seed)

    def part(self, name: str) -> Callable[[], object]:
        """Return what this thread does again and again."""
        if name == "clean":
            self._manager = SessionManager.from_settings(self._settings)
            self._manager.clock.advance(timedelta(hours=2))
        parts: dict[str, Callable[[], object]] = {
            "write": self._write,
            "delete": self._delete,
            "end": self._end,
            "clean": lambda: self._manager.cleanup(batch_size=3),
            "erase": self._erase,
            "limit": self._limit,
        }
        return parts[name]

    def _names(self) -> dict[str, str]:
        return {
            "tenant": f"t{self._chance.randrange(TENANTS)}",
            "user": f"u{self._chance.randrange(USERS)}",
            "session": f"s{self._chance.randrange(SESSIONS)}",
        }

    def _write(self) -> None:
        session = self._manager.session(**self._names(), lifetime=_HOUR)
        content = b"x" * self._chance.choice(_SIZES)
        reference = session.write(content)
        if session.read(reference) != content:
            raise AssertionError("a read gave something else than was written")

    def _delete(self) -> None:
        session = self._manager.session(**self._names(), lifetime=_HOUR)
        for _, found in zip(range(3), session.results(), strict=False):
            session.delete(found.reference)

    def _end(self) -> None:
        self._manager.delete_session(**self._names())

    def _erase(self) -> None:
        names = self._names()
        if self._chance.random() < 0.2:
            self._manager.erase_tenant(tenant=names["tenant"])
        else:
            self._manager.erase_user(tenant=names["tenant"], user=names["user"])

    def _limit(self) -> None:
        names = self._names()
        bound = self._chance.choice([None, 100_000])
        self._manager.set_limits(Limits(tenant_bytes=bound, user_results=20), tenant=names["tenant"])
