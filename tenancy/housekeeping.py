"""Keeping house: what jobs and operators ask of a manager, about all tenants at once."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from tenancy.backend import Backend
from tenancy.cleanup import Cleaner, CleanupReport, require_batch_size
from tenancy.cleanup import Progress as CleanupProgress
from tenancy.clock import Clock, to_datetime
from tenancy.errors import ConfigurationError
from tenancy.janitor import MAX_SECONDS, AsyncJanitor, Janitor, Rounds
from tenancy.rotation import (
    KeyLevel,
    KeyReport,
    MakeWork,
    MoveWork,
    RotationReport,
    Rotator,
    report_keys,
    require_level,
)
from tenancy.rotation import Progress as RotationProgress
from tenancy.scope import require_identifier
from tenancy.translation import translated
from tenancy.verify import Progress as VerifyProgress
from tenancy.verify import Verifier, VerifyReport


class Housekeeping:
    """This half of a `SessionManager`."""

    clock: Clock
    _backend: Backend

    def cleanup(
        self,
        *,
        dry_run: bool = False,
        batch_size: int = 500,
        max_seconds: float | None = None,
        on_progress: CleanupProgress | None = None,
    ) -> CleanupReport:
        """
        Reclaim what has expired, ended or was left half done. Any number of processes may do so at once.

        :param dry_run: Change nothing and report what would be reclaimed.
        :param batch_size: How many sessions or results one transaction may end.
        :param max_seconds: Stop after this long; the next call carries on.
        :param on_progress: Called with how many sessions and results are done, and how many there were at the start.
        :raises ConfigurationError: If a bound is no number of that kind; or on PostgreSQL, without `maintenance_url`.
        """
        self._require_open()
        with translated():
            return Cleaner(self._backend, across=True).run(
                dry_run=dry_run, batch_size=batch_size, max_seconds=max_seconds, on_progress=on_progress
            )

    def run_janitor(self, *, interval_seconds: float = 300.0, batch_size: int = 500) -> Janitor:
        """
        Clean up in a thread of this process, every so often, until this manager closes. For web servers.

        Each process may have one. A run that fails logs the event `janitor_failed`, and the next one tries again.

        :param interval_seconds: From the end of a run to the beginning of the next. The first one comes at a random
            moment within it.
        :returns: The running janitor: `stop()`, or leaving its `with` block, ends it earlier.
        :raises ConfigurationError: If a bound is no number of that kind; or on PostgreSQL, without `maintenance_url`.
        """
        janitor = Janitor(self._rounds(interval_seconds, batch_size), on_end=self._backend.on_close.discard)
        self._backend.on_close.add(janitor.stop)
        # Once more: a manager that closed in between has not seen this one.
        self._require_open()
        return janitor.start()

    async def run_janitor_async(self, *, interval_seconds: float = 300.0, batch_size: int = 500) -> None:
        """
        `run_janitor` for coroutines: runs until it is cancelled or this manager closes. Make a task of it.

        The work itself is done in a thread. What a cancellation interrupts, the next cleanup carries on.
        """
        janitor = AsyncJanitor(self._rounds(interval_seconds, batch_size), on_end=self._backend.on_close.discard)
        self._backend.on_close.add(janitor.stop)
        self._require_open()
        await janitor.run()

    def _rounds(self, interval_seconds: float, batch_size: int) -> Rounds:
        self._require_open()
        require_batch_size(batch_size)
        # Now, and not by an event every five minutes.
        self._backend.across.access.require_across()

        def clean(is_stopping: Callable[[], bool]) -> CleanupReport:
            with translated():
                return Cleaner(self._backend, across=True).run(
                    dry_run=False, batch_size=batch_size, max_seconds=MAX_SECONDS, is_stopping=is_stopping
                )

        return Rounds(clean, interval_seconds)

    def require_key(self, provider: str | None = None) -> None:
        """
        Make sure that the key is this catalogue's, for whoever wants to know before somebody reads or writes.

        A manager starts while its key is away, since what only removes needs none. What was told is not asked again.

        :param provider: A name in `other_keys`; `None` for the setting `keys`.
        :raises KeyUnavailable: If it is away, disabled or not configured, or the setting `keys` is `none:`.
        :raises KeyDestroyed: If it is gone for good.
        :raises ConfigurationError: If it is another one's.
        """
        self._require_open()
        self._backend.keyring.require_key(provider)

    def cleaned_at(self) -> datetime | None:
        """Return when a cleanup last ran to its end, or `None` if none did."""
        self._require_open()
        with translated():
            moment_us = self._backend.catalogue.reclaim.cleaned_at_us()
        return None if moment_us is None else to_datetime(moment_us)

    def verify(
        self, *, repair: bool = False, accept_unknown: bool = False, on_progress: VerifyProgress | None = None
    ) -> VerifyReport:
        """
        Check every row, byte and counter against each other. Opens every result, so it takes its time.

        If more than one in a hundred stored files is unknown to the catalogue, that may be an old one, restored from a
        backup, and the files newer: then the report has `alarm` and nothing is repaired at all.

        :param repair: Set right what is safe: counters, interrupted work; and move files that no row has known for a
            day into the store's quarantine. Never deletes a result nor such a file.
        :param accept_unknown: Repair all the same, however many are unknown.
        :param on_progress: Called with how many results were checked so far.
        :raises ConfigurationError: On PostgreSQL, without `maintenance_url`.
        """
        self._require_open()
        with translated():
            verifier = Verifier(self._backend, clock=self.clock)
            return verifier.run(repair=repair, accept_unknown=accept_unknown, on_progress=on_progress)

    def rotate_keys(
        self, level: KeyLevel, *, tenant: str | None = None, on_progress: RotationProgress | None = None
    ) -> RotationReport:
        """
        Put keys under new ones, or have new ones follow them; or carry on where a rotation was interrupted.

        No result is touched, everything stays readable throughout, and other processes go on as before. Interrupted, it
        is carried on by the next call, in any process; several at once share the work.

        :param level: `"root"` puts tenants' keys under the primary key of the provider, where that is another one now:
            `tenancy keys rotate root`, or whoever keeps the key, makes one. `"tenant"` makes new keys for tenants, puts
            their sessions' keys under those and destroys the old ones, which are refused from then on. `"session"`
            makes new keys for live sessions; what was written before stays under the old ones.
        :param tenant: Of this tenant only.
        :param on_progress: Called with how many keys are done, and how many there were at the start.
        :raises SessionNotFound: If there is no such tenant.
        :raises KeyUnavailable: If the provider does not answer. What was done stays done; the next call carries on.
        :raises ConfigurationError: If the level is none; or on PostgreSQL, without `tenant` and `maintenance_url`.
        """
        return self._rotator(level, tenant, on_progress, Rotator.rotate)

    def rewrap_keys(
        self, level: KeyLevel, *, tenant: str | None = None, on_progress: RotationProgress | None = None
    ) -> RotationReport:
        """Do what is left of rotations that were begun, and begin none. See `rotate_keys`."""
        return self._rotator(level, tenant, on_progress, Rotator.carry_on)

    def move_keys(
        self,
        *,
        to: str,
        tenant: str | None = None,
        source: str | None = None,
        on_progress: RotationProgress | None = None,
    ) -> RotationReport:
        """
        Put a tenant's keys under a key of its own, or back; or everything that is with one provider under another's.

        The tenant stays there: whatever new keys it gets go there too, and rotations at the level `"root"` put its keys
        under that provider's primary key. Everything else as with `rotate_keys`. From a provider to another the keys
        pass through this process.

        :param to: The provider: its name in `other_keys`, or that of the setting `keys`, as `key_report` shows it.
        :param tenant: Whose keys. Either this or `source`.
        :param source: Whatever is with this provider; on PostgreSQL this takes `maintenance_url`.
        :param on_progress: See `rotate_keys`.
        :raises SessionNotFound: If there is no such tenant.
        :raises KeyUnavailable: If a provider does not answer. What was done stays done; the next call carries on.
        :raises KeyDestroyed: If the key of `to` is gone for good.
        :raises ConfigurationError: If no such provider is configured, its key is not the one that this catalogue knows
            of it, or both or none of `tenant` and `source` are given.
        """
        if (tenant is None) == (source is None):
            raise ConfigurationError("Say which keys are moved: those of one tenant or those of one provider.")
        self._require_open()
        names = self._backend.keyring.provider_names
        if to not in names or source not in (None, *names):
            raise ConfigurationError("No provider of that name is configured; name it in other_keys.")
        return self._rotator("root", tenant, on_progress, Rotator.rotate, partial(MoveWork, to=to, source=source))

    def _rotator(
        self,
        level: KeyLevel,
        tenant: str | None,
        on_progress: RotationProgress | None,
        work: Callable[[Rotator], RotationReport],
        make_work: MakeWork | None = None,
    ) -> RotationReport:
        require_level(level)
        if tenant is not None:
            require_identifier(tenant, "tenant")
        self._require_open()
        with translated():
            return work(Rotator(self._backend, level, tenant=tenant, on_progress=on_progress, make_work=make_work))

    def key_report(self) -> KeyReport:
        """
        Say which keys there are, how old they are, and what a rotation has still to do.

        :raises ConfigurationError: On PostgreSQL, without `maintenance_url`.
        """
        self._require_open()
        with translated():
            return report_keys(self._backend)

    def _require_open(self) -> None:
        if self._backend.closed:
            raise ConfigurationError("This manager was closed. Make a new one.")
