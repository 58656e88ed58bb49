"""One run of a rotation at one level: begin it or carry it on, in as many passes as it takes."""

import time
from collections.abc import Callable
from typing import Final, Protocol

from tenancy.backend import Backend
from tenancy.cleanup import Cleaner
from tenancy.errors import SessionNotFound
from tenancy.rotation.report import KeyLevel, Progress, RotationReport, Tally
from tenancy.rotation.root import RootWork
from tenancy.rotation.sessions import SessionWork
from tenancy.rotation.tenants import TenantWork

#: How often what others are at work on at the same moment is come back to, and after how long.
_PASSES: Final = 20
_PAUSE_SECONDS: Final = 0.1


class Work(Protocol):
    """What there is to be done at one level, for one tenant or for all."""

    def begin(self, *, anew: bool = False) -> bool:
        """
        Ask for it.

        :param anew: Also if something old is to be carried on.
        :returns: Whether something new was asked for.
        """

    def count_left(self) -> int:
        """How many keys are still to be done."""

    def is_finished(self) -> bool:
        """Whether nothing is to be done that is not among those keys."""

    def carry_out(self) -> None:
        """Go through all of it once. What others are at work on is passed over."""

    def end(self, left: int) -> None:
        """Do what comes after the last pass."""


#: Puts it together, for the tenant of this id or for all.
MakeWork = Callable[[Backend, Tally, str | None], Work]
_KINDS: Final[dict[KeyLevel, MakeWork]] = {
    "root": RootWork,
    "tenant": TenantWork,
    "session": SessionWork,
}


class Rotator:
    """
    One run at one level.

    :param tenant: Its name; `None` for all, which on PostgreSQL only the maintenance role may.
    :param make_work: `None` for what a rotation at this level is.
    :raises SessionNotFound: If there is no such tenant.
    """

    def __init__(
        self,
        backend: Backend,
        level: KeyLevel,
        *,
        tenant: str | None,
        on_progress: Progress | None = None,
        make_work: MakeWork | None = None,
    ) -> None:
        tenant_id = None
        if tenant is None:
            backend.across.access.require_across()
        else:
            tenant_id = backend.catalogue.rotation.tenant_id(tenant)
            if tenant_id is None:
                raise SessionNotFound("There is no such tenant.")
        self._backend = backend
        self._level = level
        self._tally = Tally(on_progress)
        self._work = (make_work or _KINDS[level])(backend, self._tally, tenant_id)

    def rotate(self) -> RotationReport:
        """Begin a rotation, or carry on the one that was interrupted."""
        is_new = self._work.begin()
        report = self._run(resumed=not is_new)
        if is_new or report.changed or not report.failed or report.left > report.failed:
            return report
        # All that was left of the last one are keys that do not open. They shall not keep all others from a new one.
        self._work.begin(anew=True)
        return self._run(resumed=False)

    def carry_on(self) -> RotationReport:
        """Do what is left of rotations that were begun, and begin none."""
        return self._run(resumed=True)

    def _run(self, *, resumed: bool) -> RotationReport:
        work, tally = self._work, self._tally
        left = tally.total = work.count_left()
        for number in range(_PASSES):
            if number:
                time.sleep(_PAUSE_SECONDS)
            work.carry_out()
            left = work.count_left()
            if left <= tally.failed and work.is_finished():
                break
        work.end(left)
        # What was wrapped before stands in SQLite's log too.
        Cleaner(self._backend).cut_log()
        return RotationReport(self._level, tally.changed, resumed, tally.failed, left)
