"""One session's key, the ids it is bound to, and a result sealed with it."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from tenancy.errors import ResultCorrupt
from tenancy.keys.material import SecretKey
from tenancy.keys.plugins import GROUP
from tenancy.sealing.envelope import Binding, Card, Envelope, open_card, open_whole, read_chars, seal
from tests.crypto import second_reader

BINDING = Binding(tenant_id="t" * 32, user_id="u" * 32, session_id="s" * 32, result_id="r" * 32)
CARD = Card(hint="web", tag="abcdefghij", suffix="txt", name="web_search_1.txt", tool="web_search", media_type=None)


@dataclass(frozen=True)
class Sealed:
    """A sealed result, and all that opens it."""

    envelope: Envelope
    body: bytes
    key_bytes: bytes
    binding: Binding = BINDING

    def changed(self, **columns: object) -> "Sealed":
        return replace(self, envelope=replace(self.envelope, **columns))  # type: ignore[arg-type]

    def open_whole(self) -> str | bytes:
        key = SecretKey(self.key_bytes)
        contents = open_card(self.envelope, key=key, binding=self.binding)
        return open_whole(self.envelope, contents, self.body, key=key)

    def read_chars(self, offset: int = 0, max_chars: int = 1 << 40) -> str:
        """A page, as a manager reads it: the card from the row, then ranges of the body."""
        key = SecretKey(self.key_bytes)
        contents = open_card(self.envelope, key=key, binding=self.binding)

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            return [self.body[start : start + length] for start, length in ranges]

        return read_chars(self.envelope, contents, fetch, key=key, offset=offset, max_chars=max_chars)[0]

    def require_card_corrupt(self) -> None:
        """The card is refused, and so is everything that needs it."""
        with pytest.raises(ResultCorrupt):
            open_card(self.envelope, key=SecretKey(self.key_bytes), binding=self.binding)
        self.require_corrupt()

    def require_corrupt(self) -> None:
        """Both readers refuse, and return nothing."""
        with pytest.raises(ResultCorrupt):
            self.open_whole()
        if self.envelope.kind == 0:
            with pytest.raises(ResultCorrupt):
                self.read_chars()

    def require_content_corrupt_from(self, offset: int) -> None:
        """The whole reader refuses, and so does a page that needs what is behind `offset`."""
        with pytest.raises(ResultCorrupt):
            self.open_whole()
        with pytest.raises(ResultCorrupt):
            self.read_chars(offset, 1)


@pytest.fixture
def key_bytes() -> bytes:
    return os.urandom(32)


@pytest.fixture
def sealed(key_bytes: bytes) -> Callable[..., Sealed]:
    """Seal with the library."""

    def sealed(content: str | bytes, *, binding: Binding = BINDING, card: Card = CARD, compress: bool = True) -> Sealed:
        with SecretKey(key_bytes) as key:
            envelope, body = seal(content, key=key, key_version=1, binding=binding, card=card, compress=compress)
        return Sealed(envelope, body, key_bytes, binding)

    return sealed


@pytest.fixture
def forged(key_bytes: bytes) -> Callable[..., Sealed]:
    """Seal by hand, as an attacker would who has the session's key and the page on the format."""

    def forged(
        *, content: bytes, table: bytes, size_bytes: int, kind: int = 0, codec: int = 1, names: bytes | None = None
    ) -> Sealed:
        row = {"format": 1, "suite": 1, "kind": kind, "codec": codec, "size_bytes": size_bytes, "key_version": 1}
        ids = asdict(BINDING)
        message = second_reader.seal_message(key_bytes, second_reader.content_context(row, ids), content)
        row |= {"header": message[:56]}
        inside = (second_reader.give_texts(asdict(CARD)) if names is None else names) + table
        card = second_reader.seal_message(key_bytes, second_reader.card_context(row, ids), inside)
        return Sealed(Envelope(**row, card=card, stored_bytes=len(message) - 56), message[56:], key_bytes)

    return forged


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install key providers, as `name=callable`."""

    def install(*more: tuple[str, object], **openers: object) -> None:
        listed = [Entry(name, opener) for name, opener in (*more, *openers.items())]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: listed if group == GROUP else [])

    return install


@dataclass(frozen=True)
class Entry:
    """What an installed package says it has."""

    name: str
    opener: object

    def load(self) -> object:
        if isinstance(self.opener, Exception):
            raise self.opener
        return self.opener


@pytest.fixture
def write_keyset(tmp_path: Path) -> Callable[..., Path]:
    """Write a key file by hand, with whatever is wrong with it."""

    def write_keyset(document: object, *, mode: int = 0o600) -> Path:
        path = tmp_path / f"keys-{os.urandom(4).hex()}.json"
        path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        path.chmod(mode)
        return path

    return write_keyset
