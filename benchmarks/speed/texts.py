"""Realistic results: slices of documentation, JSON and tables that the standard library and installed packages ship."""

import pydoc_data.topics
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

#: How many slices of each kind there are of one size.
_SLICES: Final = 4
#: A kind is made of files until it has so much, so that slices differ.
_ENOUGH_CHARS: Final = 4 * 2**20
_SUFFIXES: Final = {"JSON": (".json",), "HTML": (".html", ".xml"), "tables": (".csv", "RECORD")}


def sample_texts(chars: int) -> list[str]:
    """
    Return texts of one size, a share of each kind, in an order that mixes them.

    :param chars: The length of each.
    """
    kinds = [_slices(whole, chars) for whole in _wholes().values()]
    return [text for same in zip(*kinds, strict=True) for text in same]


def documentation_texts(chars: int) -> list[str]:
    """Return texts of one size that are the same wherever this Python is: documentation, and nothing else."""
    return _slices(_documentation(), chars)


def _documentation() -> str:
    return "\n".join(pydoc_data.topics.topics.values())


def _slices(whole: str, chars: int) -> list[str]:
    whole *= chars // len(whole) + 1
    return [
        whole[start : start + chars] for start in ((len(whole) - chars) * part // _SLICES for part in range(_SLICES))
    ]


_found: dict[str, str] = {}


def _wholes() -> dict[str, str]:
    if not _found:
        _found["documentation"] = _documentation()
        for kind, suffixes in _SUFFIXES.items():
            whole = "".join(_some(_files(suffixes)))
            if whole:
                _found[kind] = whole
    return _found


def _some(files: list[Path]) -> Iterator[str]:
    left = _ENOUGH_CHARS
    for file in files:
        if left <= 0:
            return
        text = file.read_text(encoding="utf-8", errors="replace")
        left -= len(text)
        yield text


def _files(suffixes: tuple[str, ...]) -> list[Path]:
    # In an order that does not depend on the machine.
    named = sorted(
        (str(file), Path(str(file.locate())))
        for package in distributions()
        for file in package.files or ()
        if str(file).endswith(suffixes)
    )
    return [path for _, path in named if path.is_file() and 4096 <= path.stat().st_size <= 2**21]
