"""
The reference a model sees: `<hint>-<number>-<random>.<suffix>`, at most 39 ASCII characters.

The hint is a few letters of the tool's name, the number counts up in the session, the random part (50 bits) keeps a
reference of one session from naming anything in another, and the suffix is the key's when that is a plain one. A
reference is only ever compared with hashes of references that were given out; no part of it becomes a path.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import field
from typing import Final

from stores.names import mint_letters
from tenancy.records import record

#: ASCII digits and letters only, and `\Z`: no look-alike, no other case, no trailing newline is a reference. Nothing in
#: it is repeated without bound, so it gives up on a long text at once.
_REFERENCE: Final = re.compile(r"([a-z]{1,8})-([1-9][0-9]{0,9})-([a-z2-7]{10})(?:\.([a-z0-9]{1,8}))?\Z")
#: Whatever a reader might take for one, wherever it stands.
_ALIKE: Final = re.compile(
    r"(?<![A-Za-z0-9])[a-z]{1,8}-[1-9][0-9]{0,9}-[a-z2-7]{10}(?:\.[a-z0-9]{1,8})?(?![A-Za-z0-9])"
)
#: A hyphen to whoever reads it (U+2011), and in no reference.
_OTHER_HYPHEN: Final = "\u2011"
_SUFFIX: Final = re.compile(r"\.([A-Za-z0-9]{1,8})\Z")
_WORDS: Final = re.compile(r"[a-z]+")
_HINT_CHARS: Final = 8
_TAG_CHARS: Final = 10
_DEFAULT_HINT: Final = "result"


@record
class Reference:
    """A reference taken apart. `str()` puts it together again; the repr shows no letter of it."""

    hint: str = field(repr=False)
    number: int
    tag: str = field(repr=False)
    suffix: str = field(repr=False)

    def __str__(self) -> str:
        tail = f".{self.suffix}" if self.suffix else ""
        return f"{self.hint}-{self.number}-{self.tag}{tail}"


def parse_reference(text: object) -> Reference | None:
    """
    Take a reference apart.

    :param text: Anything a model or a caller may send.
    :returns: The parts, or `None` if this is not exactly a reference. Costs nothing, however long the text is.
    """
    found = _REFERENCE.match(text) if type(text) is str else None
    if found is None:
        return None
    hint, number, tag, suffix = found.groups()
    return Reference(hint=hint, number=int(number), tag=tag, suffix=suffix or "")


def without_references(text: str, *, is_known: Callable[[str], bool]) -> str:
    """
    Take away what makes a reference, so that nobody else's words can pass for a pointer of ours.

    :param text: A text with something in it that a tool returned.
    :param is_known: Whether a reference leads somewhere, and so may stay: a tool may pass on one of the session's own.
    :returns: The text, in which each other one has hyphens that no reference has. It reads the same, and is as long.
    """

    def broken(found: re.Match[str]) -> str:
        whole = found.group()
        return whole if is_known(whole) else whole.replace("-", _OTHER_HYPHEN)

    return _ALIKE.sub(broken, text)


def reference_hash(reference: Reference, *, session_id: str) -> bytes:
    """What the catalogue keeps of a reference: 16 bytes of SHA-256, since the hint must not stand there in clear."""
    text = f"haystack-tenancy reference v1\0{session_id}\0{reference}"
    return hashlib.sha256(text.encode("ascii")).digest()[:16]


def mint_tag(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Make the random part of a reference: ten characters of base32, 50 bits."""
    return mint_letters(_TAG_CHARS, random_bytes)


def hint_for(name: str) -> str:
    """
    Choose the hint: the first letters, cut between words where that helps, of a tool's name or of a hook's key.

    :param name: Hostile text. Only letters a-z survive.
    """
    chosen = ""
    for word in _WORDS.findall(name[:256].lower()):
        if chosen and len(chosen) + len(word) > _HINT_CHARS:
            break
        chosen += word
    return chosen[:_HINT_CHARS] or _DEFAULT_HINT


def suffix_of(key: str) -> str:
    """Return a key's plain suffix in lower case and without its dot, or `""`."""
    found = _SUFFIX.search(key[-9:])
    return found.group(1).lower() if found else ""
