"""One write, straight down: seal, reserve, put, commit; or seal and one transaction for what goes inline."""

import contextlib
import threading
from types import TracebackType
from typing import Final, Self

from stores.errors import StoreError
from stores.names import mint_name
from tenancy.backend import Backend
from tenancy.catalogue.result_rows import NewResult
from tenancy.catalogue.results import LEASE_US, KeysRotated
from tenancy.catalogue.sessions import OpenedSession
from tenancy.cleanup import Cleaner
from tenancy.errors import (
    KeyDestroyed,
    KeyUnavailable,
    QuotaExceeded,
    ResultCorrupt,
    ResultTooLarge,
    SessionNotFound,
    StorageUnavailable,
)
from tenancy.references import Reference, hint_for, mint_tag, suffix_of
from tenancy.sealing.envelope import Binding, Card, seal, size_of_text

#: From this size on a write is first asked whether it may be that large, before time is spent on sealing it.
_ASK_FIRST_BYTES: Final = 2**20
#: From this size on a write renews its lease while the store is at work.
_RENEW_FROM_BYTES: Final = 16 * 2**20
_RENEW_SECONDS: Final = LEASE_US / 1_000_000 / 3
#: How often the keys may change under one write; once is rare.
_ATTEMPTS: Final = 5


def write(
    backend: Backend,
    opened: OpenedSession,
    content: str | bytes,
    *,
    name: str,
    tool: str | None,
    media_type: str | None,
) -> tuple[Reference, OpenedSession]:
    """
    Store one result. Either all of it is stored, readable and charged, or nothing is.

    :param opened: The session, with keys that a rotation may have replaced since.
    :param name: The hook's key. Hostile text, which becomes sealed metadata and a hint.
    :param tool: The tool's name where it is known for sure.
    :returns: Its reference, and the session with the keys it has now.
    :raises SessionNotFound: If the session has ended.
    :raises ResultTooLarge: If one result may not be that large.
    :raises QuotaExceeded: If a limit refuses even after the tenant's expired sessions were reclaimed.
    :raises KeyUnavailable: If its key cannot be opened now.
    :raises KeyDestroyed: If its key is gone for good.
    :raises StoreError: If the catalogue or the store fails. What was begun is undone, or left to cleanup.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _write(backend, opened, content, name=name, tool=tool, media_type=media_type), opened
        except KeysRotated:
            renewed = backend.catalogue.sessions.renewed(opened)
        except (KeyUnavailable, KeyDestroyed, ResultCorrupt):
            # Perhaps only what this handle remembers of its keys: a rotation may have put them under others.
            renewed = backend.catalogue.sessions.renewed(opened)
            if renewed is None and backend.catalogue.sessions.is_live(opened.ids):
                raise
        if renewed is None:
            raise SessionNotFound
        opened = renewed
    raise StorageUnavailable("The result could not be stored: the session's keys kept changing at the same time.")


def _write(
    backend: Backend,
    opened: OpenedSession,
    content: str | bytes,
    *,
    name: str,
    tool: str | None,
    media_type: str | None,
) -> Reference:
    ids, results = opened.ids, backend.catalogue.results
    key_version = opened.session_key.version
    if len(content) >= _ASK_FIRST_BYTES:
        # A text has at least so many bytes. How many exactly is known when it is sealed, and asked again then.
        try:
            results.admit(ids, key_version=key_version, size_bytes=len(content))
        except ResultTooLarge as error:
            size = size_of_text(content) if isinstance(content, str) else len(content)
            raise ResultTooLarge(limit_bytes=error.limit_bytes, requested_bytes=size) from None
    result_id, hint, tag, suffix = mint_name(), hint_for(tool or _tool_part(name)), mint_tag(), suffix_of(name)
    with backend.session_key(ids, opened.tenant_key, opened.session_key) as key:
        envelope, body = seal(
            content,
            key=key,
            key_version=key_version,
            binding=Binding(ids.tenant_id, ids.user_id, ids.session_id, result_id),
            card=Card(hint=hint, tag=tag, suffix=suffix, name=name, tool=tool, media_type=media_type),
            compress=backend.compresses,
        )
    new = NewResult(
        ids=ids,
        result_id=result_id,
        reference=lambda number: Reference(hint=hint, number=number, tag=tag, suffix=suffix),
        envelope=envelope,
        inline=backend.goes_inline(len(body)),
    )
    try:
        return _store(backend, new, body)
    except QuotaExceeded:
        # What has expired still counts until it is reclaimed; nobody should be refused because of it.
        if not Cleaner(backend).make_room(ids.tenant_id):
            raise
    return _store(backend, new, body)


def _store(backend: Backend, new: NewResult, body: bytes) -> Reference:
    results = backend.catalogue.results
    inserted = results.insert(new, put=backend.putter(new.ids, new.result_id, body) if new.inline else None)
    if inserted.touch_due:
        # Also a conversation that only ever writes is in use.
        backend.touch(new.ids)
    reference = inserted.reference
    if new.inline:
        return reference
    namespace = backend.namespace(new.ids, inline=False)
    try:
        with _Renewal(backend, new, reference.number, len(body)):
            namespace.put(new.result_id, body)
        results.commit(new, reference.number)
    except BaseException as error:
        # What cannot be undone now is found by cleanup when the lease has run out.
        with contextlib.suppress(StoreError):
            if not results.abandon(new, reference.number):
                if isinstance(error, StoreError):
                    # The commit went through and only its answer was lost: the result is stored.
                    return reference
                # Somebody interrupts this process just after the commit; that must not be swallowed.
                raise
            namespace.delete(new.result_id)
            results.forget(new, reference.number)
            if backend.catalogue.sessions.has_ended(new.ids):
                # Whoever removes the session may have been at its room before these bytes made it anew, and would not
                # look there again. Nothing in it can be read any more, and its id is never used again.
                namespace.destroy()
        raise
    return reference


class _Renewal:
    """Renews the lease of a large write while the store is at work on it."""

    def __init__(self, backend: Backend, new: NewResult, number: int, size_bytes: int) -> None:
        self._backend, self._new, self._number = backend, new, number
        self._needed = size_bytes >= _RENEW_FROM_BYTES
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="tenancy-lease", daemon=True)

    def __enter__(self) -> Self:
        if self._needed:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._needed:
            self._done.set()
            self._thread.join()

    def _renew(self) -> None:
        while not self._done.wait(_RENEW_SECONDS):
            # A renewal that fails is tried again; if none succeeds, the commit refuses.
            with contextlib.suppress(StoreError):
                self._backend.catalogue.results.renew(self._new, self._number)


def _tool_part(name: str) -> str:
    """Leave the step number, the compactor's mark and the suffix out of a hook's key: the hint begins with the tool."""
    stem = name.rpartition(".")[0] if suffix_of(name) else name
    head, _, rest = stem.partition("_")
    return rest if rest and (head.isdigit() or head == "compacted") else stem
