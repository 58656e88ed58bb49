"""The user's own files as documents."""

import os
from collections import Counter
from pathlib import Path
from typing import Final

from tenancy.demo.documents import Document, InputRefused, Kind, read_document

#: Of each kind; more would only make the demo longer.
_FILES_OF_A_KIND: Final = 24
_MAX_FILE_BYTES: Final = 8 * 2**20
#: Looked at before the demo stops looking: a home directory given by mistake must not be read whole.
_MAX_FILES: Final = 2000


def documents_in(folder: Path) -> list[Document]:
    """
    Read the files of a directory and of those below it: texts, JSON, CSV and images.

    Others are left out, and so are hidden ones, links, copies, what is larger than 8 MiB, and of each kind what comes
    after the first 24.

    :param folder: The directory.
    :raises InputRefused: If it cannot be read.
    """
    found: list[Document] = []
    kinds: Counter[Kind] = Counter()
    contents: set[str | bytes] = set()
    for path in _files(folder):
        try:
            document = read_document(path.relative_to(folder).as_posix(), path.read_bytes())
        except OSError:
            raise InputRefused(f"--input: the file {path} cannot be read.") from None
        if document is None or document.content in contents or kinds[document.kind] == _FILES_OF_A_KIND:
            continue
        contents.add(document.content)
        kinds[document.kind] += 1
        found.append(document)
    return found


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputRefused(f"--input: {folder} is not a directory.")
    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
                continue
            files.append(path)
            if len(files) == _MAX_FILES:
                return files
    return files


def _refuse(error: OSError) -> None:
    raise InputRefused(f"--input: the directory {error.filename} cannot be read.") from None
