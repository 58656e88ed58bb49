"""Searching what lies on disk, byte for byte, for what must not be there."""

import base64
import binascii
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenancy.demo.canaries import disguises_of, occurring

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: How a zstd frame begins (RFC 8878, 3.1.1). What is only compressed is not encrypted.
_FRAME_START: Final = b"\x28\xb5\x2f\xfd"
#: Inflated from each frame at most: more than a segment of the library holds.
_INFLATED_BYTES: Final = 256 * 1024
_KEY_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class Found:
    """
    What a directory consists of. The repr shows none of it: one of the files holds keys.

    :param names: Its files' and directories' names below it.
    :param contents: Each file's bytes, by its path inside the directory.
    """

    names: bytes = field(repr=False)
    contents: dict[str, bytes] = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self.contents.values()))

    def holds(self, pieces: Iterable[bytes], *, but_in: str | None = None) -> bool:
        """
        Whether any of the pieces occurs: plainly, written in another form, or compressed.

        :param pieces: What to look for.
        :param but_in: A file that may hold them.
        """
        forms = [form for piece in pieces for form in disguises_of(piece)]
        searched = [data for path, data in self.contents.items() if path != but_in]
        return any(occurring(forms, each) for data in (self.names, *searched) for each in (data, *_inflated(data)))


def read_everything(folder: Path) -> Found:
    """
    Read every file below a directory, whatever it is: database, write-ahead log, results, keys.

    :param folder: The directory. What is removed meanwhile is left out.
    """
    names, contents = [], {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        names.append(relative)
        if path.is_file() and not path.is_symlink():
            with suppress(FileNotFoundError):
                contents[relative] = path.read_bytes()
    return Found("\n".join(names).encode("utf-8", "surrogateescape"), contents)


@dataclass(frozen=True, slots=True)
class Search:
    """
    A search of a directory as it was at several moments, and of a log.

    :param empty: The directory before anything was stored. What occurs there belongs to the software.
    :param states: The directory at those moments.
    :param log: What was logged.
    """

    empty: Found
    states: tuple[Found, ...]
    log: bytes = field(repr=False)

    def finds_none_of(self, pieces: Iterable[bytes]) -> bool:
        """
        Whether none of the pieces occurs anywhere.

        :param pieces: What to look for; there must be something.
        """
        telling = [piece for piece in pieces if not self.empty.holds([piece])]
        places = (*self.states, Found(b"", {"log": self.log}))
        return bool(telling) and all(state.size_bytes for state in self.states) and not _any_holds(places, telling)

    def finds_keys_only_in(self, key_file: str) -> bool:
        """
        Whether key material occurs in the key file and nowhere else.

        :param key_file: Its path inside the directory.
        """
        keys = keys_in(self.states[0].contents[key_file])
        places = (*self.states, Found(b"", {"log": self.log}))
        # Found where it must be, so that the search is known to find.
        return self.states[0].holds(keys) and not _any_holds(places, keys, but_in=key_file)


def keys_in(key_file: bytes) -> list[bytes]:
    """
    Return the key material in a key file: whatever decodes to as many bytes as a key has.

    :param key_file: The file's bytes.
    """
    keys = []
    for text in _strings(json.loads(key_file)):
        with suppress(binascii.Error, ValueError):
            decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) if len(text) > _KEY_CHARS else b""
            if len(decoded) >= 32:
                keys.append(decoded)
    return keys


def _any_holds(places: Iterable[Found], pieces: list[bytes], *, but_in: str | None = None) -> bool:
    return any(place.holds(pieces, but_in=but_in) for place in places)


def _inflated(data: bytes) -> Iterator[bytes]:
    start = data.find(_FRAME_START)
    while start >= 0:
        # In a database page a frame may be cut short; what comes before the cut counts as well.
        decompressor = zstd.ZstdDecompressor()
        with suppress(zstd.ZstdError, EOFError):
            yield decompressor.decompress(data[start : start + _INFLATED_BYTES], _INFLATED_BYTES)
        start = data.find(_FRAME_START, start + 1)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)
