"""
The consistency check: does every row have its bytes, do all bytes have a row, do the counters say what the rows say?

It reads and opens every result. It never deletes one, nor a file that it does not know, whatever is wrong with it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from stores.blob import Namespace
from stores.errors import BlobCorrupt, BlobNotFound, StoreError
from tenancy.backend import Backend, names_of_rows
from tenancy.catalogue.result_rows import StoredResult
from tenancy.catalogue.sessions import Ids
from tenancy.cleanup import Cleaner
from tenancy.clock import Clock
from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable, ResultCorrupt
from tenancy.events import emit
from tenancy.sealing.envelope import Binding, open_card, open_whole
from tenancy.unknown import Quarantine

#: Called with how many results were checked so far.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One kind of thing that is wrong.

    :param kind: `missing_bytes` (a row without its bytes), `damaged` (bytes or card that do not open), `no_key` (the
        key is away or destroyed), `unreadable` (the store refused: a result, or a whole room), `unknown_bytes` (bytes
        without a row), `wrong_usage` (a counter that differs from its rows), `interrupted` (a write or delete nobody
        is at any more), `unfinished_erasure`.
    :param count: How many.
    :param repaired: Whether this run set it right. Only the last three can be, and unknown files that are old enough:
        they are in quarantine now.
    """

    kind: str
    count: int
    repaired: bool


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """
    What a check found. `ok` means that nothing is left to do.

    :param alarm: So many stored files are unknown that the catalogue may be an older one than the store: a backup that
        was restored. Nothing was repaired, and nothing should be before that is clear.
    """

    findings: tuple[Finding, ...]
    checked_results: int
    alarm: bool

    @property
    def ok(self) -> bool:
        """Whether nothing was found, or everything that was is repaired."""
        return not self.alarm and all(finding.repaired for finding in self.findings)


class Verifier:
    """
    Checks one backend.

    :param clock: What the age of unknown files is measured by.
    """

    def __init__(self, backend: Backend, *, clock: Clock) -> None:
        self._backend = backend
        self._quarantine = Quarantine(backend, clock=clock)
        self._audit = backend.across.audit
        # Whatever is opened is opened as the role that serves its tenant: the other one may not read what is sealed.
        self._of_tenant = backend.catalogue.audit

    def run(self, *, repair: bool, accept_unknown: bool, on_progress: Progress | None = None) -> VerifyReport:
        """See `SessionManager.verify`."""
        found: Counter[str] = Counter()
        checked = 0
        for ids, live in self._audit.sessions():
            for stored in self._of_tenant.committed(ids) if live else ():
                kind = "no_key" if stored is None else self._problem(ids, stored)
                found.update([kind] if kind else [])
                checked += 1
                if on_progress:
                    on_progress(checked)
        unknown = self._quarantine.find()
        alarm = unknown.too_many and not accept_unknown
        if alarm:
            emit("many_unknown", files=unknown.files, unknown=unknown.unknown)
        repair = repair and not alarm
        moved, refused = self._quarantine.set_aside(unknown) if repair else (0, 0)
        found["unreadable"] += unknown.unreadable + refused
        # Each room was looked at again: more may have been moved than were there before.
        found["unknown_bytes"] += self._audit.unknown_blobs() + max(0, unknown.unknown - moved)
        findings = [Finding(kind, count, repaired=False) for kind, count in sorted(found.items()) if count]
        findings += [Finding("unknown_bytes", moved, repaired=True)] * bool(moved)
        return VerifyReport(tuple(findings + self._repairable(repair)), checked_results=checked, alarm=alarm)

    def _problem(self, ids: Ids, stored: StoredResult) -> str | None:
        binding = Binding(ids.tenant_id, ids.user_id, ids.session_id, stored.result_id)
        namespace = self._backend.namespace(ids, inline=stored.inline)
        try:
            with self._backend.session_key(ids, stored.tenant_key, stored.session_key) as key:
                contents = open_card(stored.envelope, key=key, binding=binding)
                body = namespace.get(stored.result_id, size_bytes=stored.envelope.stored_bytes)
                open_whole(stored.envelope, contents, body, key=key)
        except BlobNotFound:
            problem = "missing_bytes"
        except (BlobCorrupt, ResultCorrupt):
            problem = "damaged"
        except (KeyUnavailable, KeyDestroyed, ConfigurationError):
            # The last: a tenant's own key is another one than it was. That of all others was held to at the start.
            problem = _problem_without_key(namespace, stored)
        except StoreError:
            problem = "unreadable"
        else:
            return None
        # A result that was deleted while it was being checked is no problem, nor one that is on its way: its bytes go
        # before its row does, and so do those of a session that has ended.
        return problem if self._of_tenant.is_committed(ids, stored) else None

    def _repairable(self, repair: bool) -> list[Finding]:
        counts = left = self._unfinished()
        if repair and any(counts.values()):
            Cleaner(self._backend, across=True).run(dry_run=False, batch_size=500, max_seconds=None)
            # What could not be removed is not repaired, whatever was tried.
            left = self._unfinished()
        found = [Finding(kind, count, repaired=not left[kind]) for kind, count in counts.items() if count]
        drifts = len(self._audit.drifts(repair=repair))
        return found + [Finding("wrong_usage", drifts, repaired=repair)] * bool(drifts)

    def _unfinished(self) -> dict[str, int]:
        return {
            "interrupted": self._audit.stale(),
            "unfinished_erasure": len(self._backend.across.erasure.unfinished()),
        }


def _problem_without_key(namespace: Namespace, stored: StoredResult) -> str:
    # Whether bytes are there, and how many, can be told while the key is away. Nothing vouches for the row, though.
    if type(stored.envelope.stored_bytes) is not int:
        return "damaged"
    try:
        with names_of_rows():
            namespace.get(stored.result_id, size_bytes=stored.envelope.stored_bytes)
    except BlobNotFound:
        return "missing_bytes"
    except BlobCorrupt:
        return "damaged"
    except StoreError:
        return "unreadable"
    return "no_key"
