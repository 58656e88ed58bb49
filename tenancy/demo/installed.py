"""Files of installed packages as documents: licences, descriptions, schemas, tables and pictures."""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path
from typing import Final

from tenancy.demo.canaries import canaries_of
from tenancy.demo.documents import Document, InputRefused, Kind, read_document

#: Looked through with everything it requires, so that the demo finds the same files with and without extras.
_ROOT: Final = "haystack-ai"
#: Neither too small to leave a conversation nor too long to be read in a few seconds.
_BYTES: Final = {
    Kind.TEXT: range(6_000, 60_000),
    Kind.JSON: range(2_500, 130_000),
    Kind.CSV: range(6_000, 130_000),
    Kind.IMAGE: range(1_500, 300_000),
}
_SUFFIXES: Final = {".json": Kind.JSON, ".csv": Kind.CSV, ".png": Kind.IMAGE, ".jpg": Kind.IMAGE, ".gif": Kind.IMAGE}
_TEXT: Final = re.compile(r"(LICEN[CS]E|NOTICE|METADATA|README)[^/]*|.*\.(md|rst)")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
#: A document with fewer pieces of its own is as good as one of the others; many licences are the same text.
_OWN_PIECES: Final = 4

_File = tuple[str, PackagePath]


def installed_documents(*, each: int) -> list[Document]:
    """
    Choose files of the installed packages.

    :param each: How many of each kind, if there are as many.
    :raises InputRefused: If the packages hold none of a kind.
    """
    files: dict[Kind, list[_File]] = {kind: [] for kind in Kind}
    records: list[_File] = []
    for package in _packages(_ROOT):
        for file in package.files or ():
            kind = _kind_of(file)
            if kind is not None:
                files[kind].append((package.name, file))
            elif file.name == "RECORD":
                records.append((package.name, file))
    # A package's list of its files is comma-separated too; it stands in where no package ships a table.
    files[Kind.CSV] = files[Kind.CSV] or records
    chosen: list[Document] = []
    for kind in Kind:
        found = _distinct(files[kind], kind=kind, count=each, others=[document.data for document in chosen])
        if not found:
            raise InputRefused(f"The installed packages hold no {kind} file the demo can use; give your own: --input.")
        chosen += found
    return chosen


def _packages(root: str) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = [root]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            # Required on another platform or Python only.
            continue
        found[name] = package
        required = (requirement for requirement in package.requires or () if "extra ==" not in requirement)
        waiting += [match.group() for match in map(_REQUIREMENT.match, required) if match]
    return [found[name] for name in sorted(found)]


def _kind_of(file: PackagePath) -> Kind | None:
    return _SUFFIXES.get(file.suffix.lower()) or (Kind.TEXT if _TEXT.fullmatch(file.name) else None)


def _distinct(files: Sequence[_File], *, kind: Kind, count: int, others: list[bytes]) -> list[Document]:
    chosen: list[Document] = []
    for name, path in _one_package_after_the_other(files, kind=kind):
        document = read_document(name, path.read_bytes(), kind=kind)
        # What is called a picture need not be one.
        if document is None or document.kind is not kind:
            continue
        if len(canaries_of(document.data, count=_OWN_PIECES, absent_from=others)) < _OWN_PIECES:
            continue
        chosen.append(document)
        others.append(document.data)
        if len(chosen) == count:
            break
    return chosen


def _one_package_after_the_other(files: Sequence[_File], *, kind: Kind) -> Iterator[tuple[str, Path]]:
    sized: dict[str, list[tuple[int, str, Path]]] = {}
    for package, file in files:
        path = Path(str(file.locate()))
        if path.is_file() and (size := path.stat().st_size) in _BYTES[kind]:
            sized.setdefault(package, []).append((size, str(file), path))
    for candidates in sized.values():
        candidates.sort(reverse=True)
    while sized:
        for package in list(sized):
            _, name, path = sized[package].pop(0)
            yield name, path
            if not sized[package]:
                del sized[package]
