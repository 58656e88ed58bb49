"""What a backend does all day, on a catalogue that is small or large."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Final

from tenancy import Lifetime, Limits, QuotaExceeded, Session, SessionManager
from tests.core.bulk import CONTENT, Probe

#: Makes everything ready for one call, and returns the call.
Preparing = Callable[[], Callable[[], object]]
_SECOND: Final = timedelta(seconds=1)
_PAGE: Final = 20


class Daily:
    """
    The calls whose cost must not depend on how much there is.

    :param probes: See `bulk.fill`.
    """

    def __init__(self, manager: SessionManager, probes: list[Probe], *, seed: int = 1) -> None:
        self._manager = manager
        self._probes = probes
        self._chance = random.Random(seed)
        self._count = 0
        # Opened once, so that their keys are known to both catalogues alike when it begins.
        self._sessions = [manager.session(**probe.names) for probe in probes]
        self._longest = self._sessions[0]
        self._full = manager.session(
            tenant="huge", user="first", session="full", limits=Limits(session_bytes=0, session_results=0)
        )

    @property
    def operations(self) -> dict[str, Preparing]:
        """Each by its name, in the order in which they are best done."""
        return {
            "open a session that exists": self._open,
            "open a new session": self._open_new,
            "write": self._write,
            "write into the longest session": lambda: lambda: self._longest.write(CONTENT),
            "a write that is refused": lambda: self._write_refused,
            "read": self._read,
            "delete": self._delete,
            "list a session's results": self._list,
            "list the longest session's results": lambda: lambda: _first(self._longest),
            "list a huge tenant's sessions": lambda: self._list_sessions,
            "usage": self._usage,
            "cleanup with nothing to do": lambda: self._manager.cleanup,
            "cleanup of one session": self._clean_session,
            "cleanup of one result": self._clean_result,
        }

    def _any(self) -> tuple[Session, Probe]:
        index = self._chance.randrange(1, len(self._probes))
        return self._sessions[index], self._probes[index]

    def _new_names(self) -> dict[str, str]:
        self._count += 1
        _, probe = self._any()
        return {**probe.names, "session": f"new {self._count}"}

    def _open(self) -> Callable[[], object]:
        _, probe = self._any()
        return lambda: self._manager.session(**probe.names)

    def _open_new(self) -> Callable[[], object]:
        names = self._new_names()
        return lambda: self._manager.session(**names)

    def _write(self) -> Callable[[], object]:
        session, _ = self._any()
        return lambda: session.write(CONTENT)

    def _write_refused(self) -> None:
        # Before it is refused, its tenant's expired sessions are looked for.
        with suppress(QuotaExceeded):
            self._full.write(CONTENT)

    def _read(self) -> Callable[[], object]:
        session, probe = self._any()
        reference = self._chance.choice(probe.references)
        return lambda: session.read(reference)

    def _delete(self) -> Callable[[], object]:
        session, _ = self._any()
        reference = session.write(CONTENT)
        return lambda: session.delete(reference)

    def _list(self) -> Callable[[], object]:
        session, _ = self._any()
        return lambda: _first(session)

    def _list_sessions(self) -> list[object]:
        return list(islice(self._manager.sessions(tenant="huge"), _PAGE))

    def _usage(self) -> Callable[[], object]:
        _, probe = self._any()
        return lambda: self._manager.usage(**probe.names)

    def _clean_session(self) -> Callable[[], object]:
        session = self._manager.session(**self._new_names(), lifetime=Lifetime(idle=_SECOND))
        for _ in range(3):
            session.write(CONTENT)
        self._manager.clock.advance(_SECOND)
        return self._manager.cleanup

    def _clean_result(self) -> Callable[[], object]:
        session = self._manager.session(**self._new_names(), lifetime=Lifetime(result=_SECOND))
        session.write(CONTENT)
        self._manager.clock.advance(_SECOND)
        return self._manager.cleanup


def _first(session: Session) -> list[object]:
    return list(islice(session.results(), _PAGE))
