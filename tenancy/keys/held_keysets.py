"""The keys of a keyset in memory: as they were read once, or as they stand in their file at this moment."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stores.locks import ProcessLock
from tenancy.errors import KeyUnavailable
from tenancy.keys.files import FileVersion, file_version, read_key_file
from tenancy.keys.keyset import KeyInfo, KeysetEntry, KeysetError, KeyState, key_infos, parse_keyset


class HeldKeyset:
    """
    A keyset that stays as it is.

    :param entries: With exactly one primary key. Their keys are closed with this.
    """

    def __init__(self, entries: Sequence[KeysetEntry]) -> None:
        self._entries = {entry.key_id: entry for entry in entries}
        (self._primary,) = (entry for entry in entries if entry.state is KeyState.PRIMARY)

    def generation(self) -> int:
        """Return the same as ever."""
        return 0

    def primary(self) -> KeysetEntry:
        """
        Return the primary entry. The caller closes its key.

        :raises KeyUnavailable: If this was closed.
        """
        return _for_a_caller(self._primary)

    def find(self, key_id: str) -> KeysetEntry | None:
        """
        Return an entry. The caller closes its key, if it has one.

        :raises KeyUnavailable: If this was closed.
        """
        entry = self._entries.get(key_id)
        return None if entry is None else _for_a_caller(entry)

    def infos(self) -> tuple[KeyInfo, ...]:
        """Return what may be told of the keys."""
        return key_infos(self._entries.values())

    def close(self) -> None:
        """Overwrite all keys. May be repeated."""
        for entry in self._entries.values():
            if entry.key is not None:
                entry.key.close()

    def __len__(self) -> int:
        return len(self._entries)


def _for_a_caller(entry: KeysetEntry) -> KeysetEntry:
    return replace(entry, key=None if entry.key is None else entry.key.duplicate())


@dataclass(frozen=True, slots=True)
class _Reading:
    version: FileVersion
    generation: int
    keyset: HeldKeyset


class FollowedKeyset:
    """
    A keyset in a key file, as it stands there at this moment. Safe for threads, and after a fork.

    Each call looks whether the file is still the one that was read (a `stat`), and reads it again if not: whoever calls
    after it was changed gets the new keys, and the old ones are overwritten. While the file is missing, unsafe or no
    keyset there are no keys at all; those that were read before are gone.

    :param path: A relative one counts from the working directory of now.
    :raises KeysetError: If the file is not to be used.
    """

    def __init__(self, path: str) -> None:
        # Not made absolute by the path module, which also takes ".." for what it is not behind a symbolic link.
        self._path = path if os.path.isabs(path) else os.path.join(_working_directory(), path)
        self._lock = ProcessLock()
        self._generation = 0
        self._is_closed = False
        # Replaced as a whole, so that it can be looked at without the lock.
        self._reading: _Reading | None = self._read()

    def generation(self) -> int:
        """
        Return a number that grows with each change of the file.

        :raises KeyUnavailable: If the file is not to be used.
        """
        reading = self._reading
        # Without the lock, since it is asked for whenever a key is used.
        if reading is not None and file_version(self._path) == reading.version:
            return reading.generation
        with self._lock:
            return self._current().generation

    def primary(self) -> KeysetEntry:
        """
        Return the primary entry. The caller closes its key.

        :raises KeyUnavailable: If the file is not to be used, or this was closed.
        """
        # Within the lock, since nobody's key may be closed between being found and being copied.
        with self._lock:
            return self._current().keyset.primary()

    def find(self, key_id: str) -> KeysetEntry | None:
        """
        Return an entry. The caller closes its key, if it has one.

        :raises KeyUnavailable: If the file is not to be used, or this was closed.
        """
        with self._lock:
            return self._current().keyset.find(key_id)

    def infos(self) -> tuple[KeyInfo, ...]:
        """
        Return what may be told of the keys.

        :raises KeyUnavailable: If the file is not to be used, or this was closed.
        """
        with self._lock:
            return self._current().keyset.infos()

    def close(self) -> None:
        """Overwrite all keys, and read the file no more. May be repeated."""
        with self._lock:
            self._is_closed = True
            self._forget()

    def __len__(self) -> int:
        reading = self._reading
        return 0 if reading is None else len(reading.keyset)

    def _current(self) -> _Reading:
        if self._is_closed:
            raise KeyUnavailable("The key file was closed; what it belonged to is closed too.")
        reading = self._reading
        if reading is not None and file_version(self._path) == reading.version:
            return reading
        self._forget()
        self._generation += 1
        try:
            reading = self._reading = self._read()
        except KeysetError as error:
            fault = str(error)
        else:
            return reading
        # Out of the handler, whose frames hold the document: a traceback may be printed with its variables.
        raise KeyUnavailable(f"The key file was changed since it was opened, and now it {fault}.")

    def _forget(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.keyset.close()

    def _read(self) -> _Reading:
        found = read_key_file(self._path)
        return _Reading(found.version, self._generation, HeldKeyset(parse_keyset(found.document)))


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise KeysetError("is looked for in a working directory that does not exist") from None
