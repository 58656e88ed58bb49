"""What an erasure removed, how far that reaches, and what the key-encryption key has to do with it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tenancy.backend import Backend
from tenancy.catalogue.receipts import HungOn, ReceiptRow
from tenancy.clock import to_datetime

#: How far an erasure reaches. See `Receipt.reached`.
REMOVED: Final = "removed"
KEY_DESTROYED: Final = "key_destroyed"
UNREADABLE: Final = "unreadable"

_NOTHING: Final = "There was nothing to erase."
_UNDER_WAY: Final = (
    "The keys are destroyed, so nothing can be read any more. Bytes and rows are still being removed; the next "
    "cleanup finishes."
)
_GONE: Final = "Rows, bytes and wrapped keys are gone from this catalogue and store."
_REMAIN: Final = (
    "Copies of database and files taken before remain readable to whoever has them and the key-encryption key"
)
_COPIES: Final = {
    REMOVED: f"{_REMAIN}.",
    KEY_DESTROYED: (
        "The key-encryption key they hung on is destroyed: copies of database and files taken before open nothing any "
        "more by themselves. Beside this catalogue or a later copy of it, which has the tenant's key under another "
        "key-encryption key, they do, until the tenant's key is rotated and that other key destroyed as well."
    ),
    UNREADABLE: (
        "The key-encryption key they hung on is destroyed: copies of database and files taken before can no longer be "
        "read by anybody, unless a copy of that key was kept. Copies of before an earlier rotation hang on the key of "
        "that time."
    ),
}
_NOT_ASKED: Final = f"{_REMAIN}, whose state could not be asked."
_LOG_IS_LEFT: Final = (
    "SQLite's log still holds old pages: it is being read, or the disk is full. The next cleanup cuts it."
)
_UNTIL_VACUUM: Final = (
    "The server's own files still hold the old rows until VACUUM and WAL recycling have passed over them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """
    What an erasure removed. Holds no identifier of a tenant, a user or a session.

    :param receipt_id: Under which an interrupted erasure resumes, and `SessionManager.receipt` tells it again; `None`
        for a session, and if there was nothing.
    :param level: `"session"`, `"user"` or `"tenant"`.
    :param used_bytes: Plaintext bytes that had been charged.
    :param keys_destroyed: Wrapped keys, of sessions and tenants.
    :param key_ids: The key-encryption keys these had hung on last, each as `PROVIDER:KEY_ID`.
    :param started_at: When the keys were destroyed, and reading ended in every process.
    :param finished_at: When the last row was gone; `None` while bytes or rows are left.
    :param reached: How far it reaches. `"removed"`: rows, bytes and wrapped keys are gone; copies of database and files
        taken before open with the key-encryption key. `"key_destroyed"`: that is destroyed too; such a copy opens only
        beside this catalogue, which still has the tenant's key. `"unreadable"`: the tenant's key is gone as well, and
        no copy opens. `None` while bytes or rows are left, and if there was nothing.
    :param statement: The same in plain words.
    """

    receipt_id: str | None
    level: str
    users: int
    sessions: int
    results: int
    used_bytes: int
    keys_destroyed: int
    key_ids: tuple[str, ...]
    started_at: datetime | None
    finished_at: datetime | None
    reached: str | None
    statement: str


def find_receipt(backend: Backend, receipt_id: str) -> Receipt | None:
    """Tell a receipt again, with what has become of the key-encryption keys since. See `SessionManager.receipt`."""
    found = backend.across.receipts.find(receipt_id)
    if found is None:
        return None
    row, versions = found
    reached, copies = _reached(backend, row.hung_on, versions)
    return of_row(
        backend, row, reached=reached, copies=copies, is_log_cut=backend.catalogue.access.shredding_id() is None
    )


def of_row(
    backend: Backend, row: ReceiptRow, *, is_log_cut: bool, reached: str = REMOVED, copies: str = _COPIES[REMOVED]
) -> Receipt:
    """Return the receipt of an erasure. An erasure does not ask for the state of the key: it works without it."""
    is_finished = row.finished_at_us is not None
    return Receipt(
        receipt_id=row.receipt_id,
        level=row.level,
        users=row.users,
        sessions=row.sessions,
        results=row.results,
        used_bytes=row.size_bytes,
        keys_destroyed=row.keys_destroyed,
        key_ids=_spoken(row.hung_on),
        started_at=to_datetime(row.started_at_us),
        finished_at=None if row.finished_at_us is None else to_datetime(row.finished_at_us),
        reached=reached if is_finished else None,
        statement=_statement(backend, copies, is_log_cut=is_log_cut) if is_finished else _UNDER_WAY,
    )


def of_session(
    backend: Backend,
    *,
    results: int,
    used_bytes: int,
    keys_destroyed: int,
    hung_on: list[HungOn],
    at: datetime,
    is_log_cut: bool,
) -> Receipt:
    """Return the receipt of one session, which is told only now."""
    return Receipt(
        receipt_id=None,
        level="session",
        users=0,
        sessions=1,
        results=results,
        used_bytes=used_bytes,
        keys_destroyed=keys_destroyed,
        key_ids=_spoken(hung_on),
        started_at=at,
        finished_at=at,
        reached=REMOVED,
        statement=_statement(backend, _COPIES[REMOVED], is_log_cut=is_log_cut),
    )


def of_nothing(level: str) -> Receipt:
    """Return the receipt of an erasure that found nothing."""
    return Receipt(
        receipt_id=None,
        level=level,
        users=0,
        sessions=0,
        results=0,
        used_bytes=0,
        keys_destroyed=0,
        key_ids=(),
        started_at=None,
        finished_at=None,
        reached=None,
        statement=_NOTHING,
    )


def _reached(backend: Backend, hung_on: tuple[HungOn, ...], versions: frozenset[int]) -> tuple[str, str]:
    def fates(*, later: bool) -> set[bool | None]:
        return {backend.keyring.is_destroyed(one.provider, one.key_id) for one in hung_on if one.is_later == later}

    asked = fates(later=False)
    if asked != {True}:
        # Of an older receipt nobody has written down which keys to ask for.
        return REMOVED, _COPIES[REMOVED] if False in asked else _NOT_ASKED
    is_known = versions.intersection(one.version for one in hung_on) or fates(later=True) - {True}
    reached = KEY_DESTROYED if is_known else UNREADABLE
    return reached, _COPIES[reached]


def _statement(backend: Backend, copies: str, *, is_log_cut: bool) -> str:
    sentences = [_GONE, copies]
    if not backend.catalogue.database.is_sqlite:
        sentences.append(_UNTIL_VACUUM)
    elif not is_log_cut:
        sentences.append(_LOG_IS_LEFT)
    return " ".join(sentences)


def _spoken(hung_on: tuple[HungOn, ...] | list[HungOn]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{one.provider}:{one.key_id}" for one in hung_on if not one.is_later))
