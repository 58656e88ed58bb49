"""One read, straight down: one query, the bytes, the key, open. A whole result or a part of a text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NoReturn

from stores.blob import Namespace
from stores.errors import BlobCorrupt, BlobNotFound
from tenancy.backend import Backend
from tenancy.catalogue.result_rows import Found, StoredResult
from tenancy.catalogue.sessions import Ids
from tenancy.clock import to_datetime
from tenancy.errors import KeyDestroyed, KeyUnavailable, ResultCorrupt, ResultNotFound
from tenancy.events import emit
from tenancy.keys.material import SecretKey
from tenancy.references import Reference, parse_reference
from tenancy.scope import Scope
from tenancy.sealing.envelope import Binding, Contents, Fetch, Kind, find_line, open_card, open_whole, read_chars

#: How many rows one query of a listing brings.
_LIST_PAGE: Final = 50
#: Bodies up to this size are fetched in one go also for a page: two round trips cost more than the bytes.
_WHOLE_BYTES: Final = 64 * 1024
#: More than anything has.
_ANY_BYTES: Final = 2**62
#: What says that something is not as it was written, or not there any more.
_NOT_AS_WRITTEN: Final = (BlobNotFound, BlobCorrupt, ResultCorrupt)
#: How often the keys may change under one read; once is rare.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Page:
    """
    A part of a text. The repr shows none of it.

    :param offset: Where it begins, in characters.
    :param next_offset: Where the next page begins; `None` at the end.
    :param total_chars: Characters of the whole text.
    :param total_lines: Lines of the whole text, an unfinished last one included.
    :param line: The number of the line it begins in, from 1 on.
    """

    text: str = field(repr=False)
    offset: int
    next_offset: int | None
    total_chars: int
    total_lines: int
    line: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """
    What a session holds under one reference. The repr shows sizes and times only.

    :param name: The key it was written under, shortened if it was long.
    :param tool: The tool it came from, where that is known.
    :param kind: `"text"` or `"bytes"`.
    :param size_bytes: What it is charged: UTF-8 bytes of a text.
    :param expires_at: When it ends at the latest, unless use moves its session's expiry.
    """

    reference: str = field(repr=False)
    name: str = field(repr=False)
    tool: str | None = field(repr=False)
    kind: str
    size_bytes: int
    total_chars: int | None
    total_lines: int | None
    media_type: str | None = field(repr=False)
    created_at: datetime
    expires_at: datetime


class Reader:
    """Reads the results of one session. Holds no state but where to look."""

    def __init__(self, backend: Backend, ids: Ids, scope: Scope) -> None:
        self._backend = backend
        self._ids = ids
        self._scope = scope

    def read(self, reference: str) -> str | bytes:
        """See `Session.read`."""
        parsed, stored, body = self._find(reference, body_up_to=_ANY_BYTES)
        try:
            stored, key = self._opened(stored, lambda: self._look(parsed).result)
            with key:
                contents = open_card(stored.envelope, key=key, binding=self._binding(stored))
                _require_reference(contents, stored, parsed)
                if body is None:
                    body = self._namespace(stored).get(stored.result_id, size_bytes=stored.envelope.stored_bytes)
                return open_whole(stored.envelope, contents, body, key=key)
        except _NOT_AS_WRITTEN:
            self._tell_apart(parsed)

    def read_page(
        self, reference: str, *, offset: int, line: int | None, max_chars: int, max_lines: int | None
    ) -> Page:
        """See `Session.read_page`."""
        parsed, stored, body = self._find(reference, body_up_to=_WHOLE_BYTES)
        if stored.envelope.kind == Kind.BYTES:
            raise ValueError("This result is not text. Use read().")
        try:
            stored, key = self._opened(stored, lambda: self._look(parsed).result)
            with key:
                contents = open_card(stored.envelope, key=key, binding=self._binding(stored))
                _require_reference(contents, stored, parsed)
                total_chars, total_lines = contents.total_chars or 0, contents.total_lines or 0
                fetch = self._fetch(stored, body)
                if line is not None:
                    line = max(1, total_lines + 1 + line) if line < 0 else line
                    offset = find_line(stored.envelope, contents, fetch, key=key, line=line)
                elif offset < 0:
                    offset = max(0, total_chars + offset)
                text, at = read_chars(stored.envelope, contents, fetch, key=key, offset=offset, max_chars=max_chars)
        except _NOT_AS_WRITTEN:
            self._tell_apart(parsed)
        if max_lines is not None:
            text = _first_lines(text, max_lines)
        end = offset + len(text)
        return Page(text, offset, end if end < total_chars else None, total_chars, total_lines, at)

    def result(self, reference: str) -> Result:
        """See `Session.result`."""
        _, stored, _ = self._find(reference, body_up_to=0)
        found = self._listed(stored)
        if found is None or found.reference != reference:
            raise ResultNotFound
        return found

    def results(self, *, before: int | None = None) -> Iterator[Result]:
        """See `Session.results`."""
        while True:
            listed = self._backend.catalogue.results.list(self._ids, before=before, page=_LIST_PAGE)
            if listed.touch_due:
                self._backend.touch(self._ids)
            rows = listed.results
            for stored in rows:
                result = self._listed(stored)
                if result is not None:
                    yield result
            if len(rows) < _LIST_PAGE:
                return
            before = rows[-1].number

    def _listed(self, stored: StoredResult) -> Result | None:
        number = stored.number
        try:
            stored, key = self._opened(stored, lambda: self._look_at(number))
            with key:
                contents = open_card(stored.envelope, key=key, binding=self._binding(stored))
            created_at, expires_at = to_datetime(stored.created_at_us), to_datetime(stored.expires_at_us)
        except ResultNotFound:
            # Gone since the page was read, and nobody would miss it had the page been read now.
            return None
        except (ResultCorrupt, TypeError, OverflowError):
            # A moment that is no moment is damage too; SQLite keeps whatever it is given.
            self._event()
            raise ResultCorrupt from None
        return Result(
            reference=str(_reference(contents, stored)),
            name=contents.card.name,
            tool=contents.card.tool,
            kind="text" if stored.envelope.kind == Kind.TEXT else "bytes",
            size_bytes=stored.envelope.size_bytes,
            total_chars=contents.total_chars,
            total_lines=contents.total_lines,
            media_type=contents.card.media_type,
            created_at=created_at,
            expires_at=expires_at,
        )

    def _find(self, text: str, *, body_up_to: int) -> tuple[Reference, StoredResult, bytes | None]:
        # What is not a reference of ours reaches neither the database nor the disk.
        parsed = parse_reference(text)
        if parsed is None:
            raise ResultNotFound
        found = self._look(parsed, body_up_to=body_up_to)
        if found.touch_due:
            self._backend.touch(self._ids)
        if found.result is None:
            raise ResultNotFound
        return parsed, found.result, found.body

    def _look(self, parsed: Reference, *, body_up_to: int = 0) -> Found:
        return self._backend.catalogue.results.find(self._ids, parsed, body_up_to=body_up_to)

    def _look_at(self, number: int) -> StoredResult | None:
        listed = self._backend.catalogue.results.list(self._ids, before=number + 1, page=1)
        return next((stored for stored in listed.results if stored.number == number), None)

    def _opened(self, stored: StoredResult, again: Callable[[], StoredResult | None]) -> tuple[StoredResult, SecretKey]:
        """
        Open a result's key.

        :param again: Looks the row up once more.
        :returns: The row as it was when its key opened, and the key, which the caller closes.
        :raises ResultNotFound: If the row is gone by the second look.
        :raises SessionNotFound: If the session is.
        :raises KeyUnavailable: If the key cannot be opened now.
        :raises KeyDestroyed: If it is gone for good.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return stored, self._key(stored)
            except (KeyUnavailable, KeyDestroyed):
                # Perhaps only the key over it when the row was read: a rotation may have put another one there.
                found = again()
                if found is None:
                    raise ResultNotFound from None
                if (found.session_key, found.tenant_key) == (stored.session_key, stored.tenant_key):
                    raise
                stored = found
        return stored, self._key(stored)

    def _tell_apart(self, parsed: Reference) -> NoReturn:
        """Tell a result that somebody deleted meanwhile from one that is damaged, and be loud about the latter."""
        if self._look(parsed).result is None:
            raise ResultNotFound from None
        self._event()
        raise ResultCorrupt from None

    def _event(self) -> None:
        emit("corrupt", session=self._scope.short_hash)

    def _fetch(self, stored: StoredResult, body: bytes | None) -> Fetch:
        namespace, name, size = self._namespace(stored), stored.result_id, stored.envelope.stored_bytes
        if size <= _WHOLE_BYTES:
            whole = namespace.get(name, size_bytes=size) if body is None else body
            return lambda ranges: [whole[start : start + length] for start, length in ranges]
        return lambda ranges: namespace.get_ranges(name, ranges, size_bytes=size)

    def _key(self, stored: StoredResult) -> SecretKey:
        return self._backend.session_key(self._ids, stored.tenant_key, stored.session_key)

    def _binding(self, stored: StoredResult) -> Binding:
        return Binding(self._ids.tenant_id, self._ids.user_id, self._ids.session_id, stored.result_id)

    def _namespace(self, stored: StoredResult) -> Namespace:
        return self._backend.namespace(self._ids, inline=stored.inline)


def page_of(
    whole: str, *, offset: int = 0, line: int | None = None, max_chars: int, max_lines: int | None = None
) -> Page:
    """Return a page of a text that is at hand. See `Session.read_page` for the numbers."""
    total_lines = whole.count("\n") + (not whole.endswith("\n") and whole != "")
    if line is not None:
        line = max(1, total_lines + 1 + line) if line < 0 else line
        offset = _start_of_line(whole, line)
    elif offset < 0:
        offset = max(0, len(whole) + offset)
    text = whole[offset : offset + max_chars]
    if max_lines is not None:
        text = _first_lines(text, max_lines)
    end = offset + len(text)
    at = max(1, min(1 + whole.count("\n", 0, offset), total_lines))
    return Page(text, offset, end if end < len(whole) else None, len(whole), total_lines, at)


def _start_of_line(text: str, line: int) -> int:
    start, end, left = 0, len(text), line - 1
    if not left or left > text.count("\n"):
        return end if left else 0
    # By halves: that takes as long as counting all of them, however many there are.
    while end - start > 1:
        middle = (start + end) // 2
        before = text.count("\n", start, middle)
        if before >= left:
            end = middle
        else:
            start, left = middle, left - before
    return end


def _first_lines(text: str, number: int) -> str:
    # Not `splitlines`, which ends lines at characters that count as no line's end here.
    end = 0
    for _ in range(number):
        found = text.find("\n", end)
        if found < 0:
            return text
        end = found + 1
    return text[:end]


def _reference(contents: Contents, stored: StoredResult) -> Reference:
    card = contents.card
    return Reference(hint=card.hint, number=stored.number, tag=card.tag, suffix=card.suffix)


def _require_reference(contents: Contents, stored: StoredResult, asked: Reference) -> None:
    # Whoever can write the database could move a number from one row to another; the card cannot be moved.
    if _reference(contents, stored) != asked:
        raise ResultCorrupt
