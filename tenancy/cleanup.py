"""
Reclaiming what has ended. Expiry is enforced whenever something is read; cleanup only gives the room back.

Any number of workers may run at once, without a leader; whatever one leaves half done, the next one finishes.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Final, TypeVar

from stores.errors import Conflict, StoreError, StoreFull
from tenancy.backend import Backend, names_of_rows
from tenancy.catalogue.erasure import Erasing
from tenancy.catalogue.reclaim import Removed
from tenancy.catalogue.result_rows import Doomed
from tenancy.catalogue.sessions import Ids
from tenancy.errors import ConfigurationError
from tenancy.events import emit
from tenancy.unknown import MaybeBeingWritten, rescue

#: How many of a tenant's expired sessions, and of its expired results, a refused charge reclaims at most.
RECLAIM_ON_REFUSAL: Final = 16

#: The rows of so many sessions go in one transaction at most. More would save little and keep other writers waiting.
SESSIONS_AT_ONCE: Final = 20
#: For so long the files of further ones are removed before the rows go: a run may be stopped after each step, and what
#: has no files any more should not be charged for long.
STEP_SECONDS: Final = 0.1

#: More at once would only keep everybody else waiting; and databases count rows in 32 bits.
MAX_BATCH_SIZE: Final = 100_000

_T = TypeVar("_T")

#: Called with how many sessions and results are done so far, and with how many there were at the start.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """
    What a cleanup reclaimed, or with `dry_run` would reclaim.

    :param sessions: Expired and ended sessions.
    :param results: Results, those of the sessions included. Leftovers of interrupted writes and deletes count too.
    :param reclaimed_bytes: Their plaintext bytes, which is what had been charged.
    :param complete: `False` if a bound stopped it, or if something could not be removed; the next run carries on.
    """

    sessions: int
    results: int
    reclaimed_bytes: int
    dry_run: bool
    complete: bool


class Cleaner:
    """
    Ends, removes and refunds.

    :param across: Work as the role that may reach all tenants, which `run` needs. Otherwise a call is for one tenant.
    :param monotonic: Measures `max_seconds`.
    """

    def __init__(
        self, backend: Backend, *, across: bool = False, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend = backend
        self._catalogue = backend.across if across else backend.catalogue
        self._reclaim = self._catalogue.reclaim
        self._monotonic = monotonic

    def run(
        self,
        *,
        dry_run: bool,
        batch_size: int,
        max_seconds: float | None,
        on_progress: Progress | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> CleanupReport:
        """
        See `SessionManager.cleanup`.

        :param is_stopping: Asked before each step whether to leave the rest to the next run.
        """
        require_batch_size(batch_size)
        if max_seconds is not None and not (isinstance(max_seconds, int | float) and max_seconds > 0):
            raise ConfigurationError("max_seconds must be positive.")
        self._catalogue.access.require_across()
        # Looks at every result there is, so only for somebody who wants to know.
        waiting = self._reclaim.waiting() if dry_run or on_progress else Removed()
        if dry_run:
            return _report(waiting, dry_run=True, complete=True)
        deadline = None if max_seconds is None else self._monotonic() + max_seconds
        removed, complete, failures = Removed(), False, 0
        with contextlib.closing(self._steps(batch_size)) as steps:
            for done, step in enumerate(steps):
                # At least one step a run, so that however small the bound is, the work comes to its end.
                if done and ((deadline is not None and self._monotonic() >= deadline) or is_stopping()):
                    break
                try:
                    removed += step()
                except StoreError as error:
                    # One unreadable directory must not keep all the others from being reclaimed.
                    failures += 1
                    emit("not_reclaimed", error=type(error).__name__)
                if on_progress:
                    on_progress(removed.sessions + removed.results, waiting.sessions + waiting.results)
            else:
                complete = failures == 0
        if complete:
            self._reclaim.mark_cleaned()
        self.cut_log()
        self._catalogue.database.restore_reserve()
        return _report(removed, dry_run=False, complete=complete)

    def _steps(self, batch_size: int) -> Generator[Callable[[], Removed], None, None]:
        # Keys before bytes before rows: after the first loop nothing that has expired can be read by anybody.
        for _ in _pages(self._reclaim.end_expired, batch_size):
            yield Removed
        results: set[Doomed] = set()
        sessions: set[Ids] = set()
        try:
            for doom in (self._reclaim.doom_expired, self._reclaim.doom_stale):
                for doomed in _pages(doom, batch_size):
                    results.update(doomed)
                    yield from (partial(_done, self.finish, one, results) for one in doomed)
            for ended in _pages(self._reclaim.claim_ended, batch_size):
                sessions.update(ended)
                for together in _together(ended):
                    yield from self._removing(together, sessions)
        finally:
            # Stopped half way, or something could not be removed. If not even this works, the leases run out.
            if results or sessions:
                with contextlib.suppress(StoreError):
                    self._reclaim.release(sessions=sessions, results=results)
        yield from (partial(self.carry_out, erasing) for erasing in self._catalogue.erasure.unfinished())
        yield self._sweep

    def _removing(self, together: list[Ids], left: set[Ids], *, shred: bool = False) -> Iterator[Callable[[], Removed]]:
        """Remove sessions of one tenant, a few in a step; take off `left` what is done."""
        waiting, refused = deque(together), list[Ids]()
        while waiting:
            yield partial(self._remove_some, waiting, refused, left, shred=shred)
        # Something is wrong with one of these, which must not keep the others.
        yield from (partial(_done, partial(self._remove_rows, shred=shred), ids, left) for ids in refused)

    def _remove_some(self, waiting: deque[Ids], refused: list[Ids], left: set[Ids], *, shred: bool) -> Removed:
        """
        Take off `waiting` as many as there is time for in one step, and remove the files of each, then all their rows.

        :param refused: Gets those whose rows could not be removed together.
        """
        emptied: list[Ids] = []
        end = self._monotonic() + STEP_SECONDS
        while waiting and (not emptied or self._monotonic() < end):
            try:
                self._destroy_files(waiting[0], shred=shred)
            except StoreError:
                if emptied:
                    # First come the rows of those before it, which are charged for files that are gone. It is met
                    # again by the next step.
                    break
                waiting.popleft()
                raise
            emptied.append(waiting.popleft())
        removed = Removed()
        with contextlib.suppress(StoreError):
            while emptied:
                done = self._reclaim.remove_sessions(emptied, drop=self._backend.drop_all, shred=shred)
                removed = sum(done, removed)
                left.difference_update(emptied[: len(done)])
                del emptied[: len(done)]
        refused += emptied
        return removed

    def _sweep(self) -> Removed:
        self._backend.store.sweep()
        return Removed()

    def cut_log(self) -> bool:
        """
        Move SQLite's log into the database; cut it to nothing if anybody has overwritten pages since it last was.

        :returns: Whether no page of before an erasure is left in it. Otherwise the next cleanup tries again: somebody
            was reading, or the disk is full.
        """
        access = self._catalogue.access
        shredding_id = access.shredding_id()
        try:
            is_cut = access.database.checkpoint(truncate=shredding_id is not None)
        except StoreFull:
            is_cut = False
        if shredding_id is None:
            return True
        if is_cut:
            # If this fails, the next cleanup cuts it once more.
            with contextlib.suppress(StoreError):
                access.unmark_shredding(shredding_id)
        return is_cut

    def remove_session(self, ids: Ids, *, shred: bool = False) -> Removed:
        """
        Give back an ended session: its files, then its rows and what they were charged.

        :param shred: Somebody asked for all of it to be removed, files that no row speaks of included. Otherwise those
            are set aside.
        """
        # Bytes first: a crash in between leaves rows that the next cleanup finds. The other order would leave bytes
        # that nobody counts.
        self._destroy_files(ids, shred=shred)
        return self._remove_rows(ids, shred=shred)

    def _destroy_files(self, ids: Ids, *, shred: bool) -> None:
        if not shred:
            rescue(self._backend.store, self._catalogue.audit, ids)
        self._backend.destroy_files(ids)

    def _remove_rows(self, ids: Ids, *, shred: bool = False) -> Removed:
        (removed,) = self._reclaim.remove_sessions([ids], drop=self._backend.drop_all, shred=shred)
        return removed

    def finish(self, doomed: Doomed) -> Removed:
        """Remove the bytes and then the row of a result that is being deleted."""
        with names_of_rows():
            self._backend.namespace(doomed.ids, inline=doomed.inline).delete(doomed.result_id)
        if not self._catalogue.results.remove(doomed):
            return Removed()
        return Removed(results=1, size_bytes=doomed.size_bytes)

    def make_room(self, tenant_id: str) -> bool:
        """
        Reclaim a few of a tenant's expired sessions and results because a charge was refused.

        :returns: Whether there were any.
        """
        ended = self._reclaim.end_expired(page=RECLAIM_ON_REFUSAL, tenant_id=tenant_id)
        ended = ended or self._reclaim.ended_of(tenant_id, page=RECLAIM_ON_REFUSAL)
        doomed = self._reclaim.doom_expired(page=RECLAIM_ON_REFUSAL, tenant_id=tenant_id)
        removed = [self.finish(one) for one in doomed]
        for ids in ended:
            with contextlib.suppress(MaybeBeingWritten):
                removed.append(self.remove_session(ids))
        return any(one != Removed() for one in removed)

    def carry_out(self, erasing: Erasing) -> Removed:
        """Remove everything an erasure has made unreadable, then the owner itself. May be repeated."""
        self._catalogue.erasure.end_rest(erasing)
        removed = Removed()
        while ended := self._reclaim.ended_of(erasing.tenant_id, user_id=erasing.user_id, page=500):
            before = removed
            for together in _together(ended):
                removed = sum((step() for step in self._removing(together, set(), shred=True)), removed)
            if removed == before:
                # Another process holds the rest; it, or the next cleanup, will finish.
                return removed
        # A session that another worker is removing this very moment: that worker or the next cleanup finishes.
        with contextlib.suppress(Conflict):
            self._catalogue.erasure.finish(erasing)
        return removed


def require_batch_size(batch_size: int) -> None:
    """Refuse anything but a whole number that is not too large."""
    if type(batch_size) is not int or not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise ConfigurationError(f"batch_size must be a whole number from 1 to {MAX_BATCH_SIZE}.")


def _pages(find: Callable[..., list[_T]], size: int) -> Iterator[list[_T]]:
    """
    Call `find` with a page size until it finds nothing.

    On a disk so full that not even the reserve has room for that much at once, go on with less.
    """
    while True:
        try:
            found = find(page=size)
        except StoreFull:
            if size == 1:
                raise
            size = max(1, size // 10)
        else:
            if not found:
                return
            yield found


def _together(ended: list[Ids]) -> Iterator[list[Ids]]:
    """Part sessions into those that one transaction may remove: a tenant's, in the order in which all wait for them."""
    in_turn = sorted(ended, key=lambda ids: (ids.tenant_id, ids.session_id))
    for _, of_tenant in groupby(in_turn, key=lambda ids: ids.tenant_id):
        while some := list(islice(of_tenant, SESSIONS_AT_ONCE)):
            yield some


def _done(work: Callable[[_T], Removed], one: _T, left: set[_T]) -> Removed:
    removed = work(one)
    left.discard(one)
    return removed


def _report(removed: Removed, *, dry_run: bool, complete: bool) -> CleanupReport:
    return CleanupReport(
        sessions=removed.sessions,
        results=removed.results,
        reclaimed_bytes=removed.size_bytes,
        dry_run=dry_run,
        complete=complete,
    )
