"""What the demo's tools return: real documents, dealt to the users so that each can be told from all others."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

from tenancy.demo.canaries import canaries_of
from tenancy.errors import TenancyError

#: Texts below this would stay in the conversation anyway.
MIN_CHARS: Final = 1000
#: Images below this likewise; as base64 they are a third longer.
MIN_IMAGE_BYTES: Final = 1000
_IMAGE_STARTS: Final = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
}


class InputRefused(TenancyError):
    """The documents or the model cannot be used. The message is one sentence for the person at the terminal."""


class Kind(StrEnum):
    """What a document is; each kind has its own tool."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class Document:
    """
    One file, or a part of one.

    :param name: By which the model asks for it.
    :param content: A `str` for everything but an image.
    :param media_type: Of an image.
    """

    name: str
    kind: Kind
    content: str | bytes = field(repr=False)
    media_type: str | None = None

    @property
    def data(self) -> bytes:
        """The content as bytes."""
        return self.content.encode() if isinstance(self.content, str) else self.content


def read_document(name: str, data: bytes, *, kind: Kind | None = None) -> Document | None:
    """
    Take a file for what it is.

    :param name: Its name; the suffix says whether it is JSON or CSV.
    :param data: Its bytes.
    :param kind: What kind of text it is, if that is known.
    :returns: The document; `None` if it is neither text nor an image, or too small to leave a conversation.
    """
    image = next((media for media, start in _IMAGE_STARTS.items() if data.startswith(start)), None)
    if image is not None:
        return Document(name, Kind.IMAGE, data, image) if len(data) >= MIN_IMAGE_BYTES else None
    try:
        # Decoded as it stands: line ends are content too.
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if len(text) < MIN_CHARS or "\0" in text:
        return None
    return Document(name, kind or _kind_of(name, text), text)


def deal(documents: Sequence[Document], *, hands: int) -> list[list[Document]]:
    """
    Deal documents out, so that everybody gets a text and nobody gets what another one has.

    Texts that are too few for everybody are cut into parts.

    :param documents: What there is.
    :param hands: How many users there are.
    :raises InputRefused: If there is not enough, or two hands could not be told from each other.
    """
    texts = [each for each in documents if each.kind is not Kind.IMAGE]
    if not texts:
        raise InputRefused(f"There is no text of at least {MIN_CHARS} characters among the files.")
    if len(texts) < hands:
        longest = max(texts, key=lambda each: len(each.content))
        documents = [*(each for each in documents if each is not longest), *_parts(longest, hands)]
    dealt: list[list[Document]] = [[] for _ in range(hands)]
    turn = 0
    for kind in Kind:
        for document in (each for each in documents if each.kind is kind):
            dealt[turn % hands].append(document)
            turn += 1
    for hand in dealt:
        if not own_canaries(hand, others=[each for other in dealt if other is not hand for each in other]):
            raise InputRefused("Two users would get the same content; give files that differ.")
    return dealt


def own_canaries(hand: Iterable[Document], *, others: Iterable[Document]) -> list[bytes]:
    """
    Return pieces by which a user's documents are told from everybody else's.

    :param hand: The user's documents.
    :param others: Everybody else's.
    """
    foreign = [each.data for each in others]
    return [piece for each in hand for piece in canaries_of(each.data, count=4, absent_from=foreign)]


def _kind_of(name: str, text: str) -> Kind:
    suffix = name.rpartition(".")[2].lower()
    if suffix == "csv":
        return Kind.CSV
    if suffix == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return Kind.TEXT
        return Kind.JSON
    return Kind.TEXT


def _parts(document: Document, count: int) -> list[Document]:
    text = str(document.content)
    if len(text) < count * MIN_CHARS:
        raise InputRefused(
            f"The texts are too few or too short for {count} users: give {count} of at least {MIN_CHARS} characters, "
            f"or one of at least {count * MIN_CHARS}."
        )
    cuts = [len(text) * part // count for part in range(count + 1)]
    return [
        Document(f"{document.name} (part {number} of {count})", Kind.TEXT, text[start:end])
        for number, (start, end) in enumerate(pairwise(cuts), start=1)
    ]
