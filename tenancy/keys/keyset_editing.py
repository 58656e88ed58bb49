"""
Changes of a keyset file: a new primary key, and the states of the others.

Each takes place as a whole or not at all, whenever the process dies or the power fails: a complete new file takes the
old one's name. Editors wait for each other, so that no change gets lost; processes that follow the file see the change
at their next use of a key.

What is overwritten, and what that cannot promise: the bytes of the file that was replaced are overwritten with zeros
where they were, also those of files that editors left behind. Out of reach are a process that dies in the moment
between replacing and overwriting, a file that has another name (a hard link) or that its owner may not write, copies in
backups and snapshots, the journal of the file system, and disks and file systems that write what is new to another
place, as SSDs, btrfs and ZFS do.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from stores.system_errors import is_full
from tenancy.errors import ConfigurationError, StorageFull
from tenancy.keys.files import KeyFile, file_version, read_key_file
from tenancy.keys.keyset import (
    KeyInfo,
    KeysetEntry,
    KeysetError,
    KeyState,
    key_infos,
    new_entry,
    parse_keyset,
    render_keyset,
)
from tenancy.keys.private_files import locked_directory, overwritten, remove_unfinished, temporary_name, write_private

#: How long an editor waits for others. Each takes milliseconds.
WAIT_SECONDS: Final = 10.0

_Entries = tuple[KeysetEntry, ...]
#: From which state to which no key goes, and why.
_REFUSALS: Final[Mapping[tuple[KeyState, KeyState], str]] = {
    (KeyState.PRIMARY, KeyState.DISABLED): "has this key as its primary one; make another one primary first",
    (KeyState.PRIMARY, KeyState.DESTROYED): "has this key as its primary one; make another one primary first",
    (KeyState.DESTROYED, KeyState.DISABLED): "has this key no more; it was destroyed",
    (KeyState.DESTROYED, KeyState.ENABLED): "has this key no more; it was destroyed",
}


def list_keys(path: Path) -> tuple[KeyInfo, ...]:
    """
    List the keys of a key file, in order.

    :raises ConfigurationError: If the file is missing, unsafe or no keyset.
    """
    try:
        entries = parse_keyset(read_key_file(path).document)
    except KeysetError as error:
        fault = str(error)
    else:
        _close(entries)
        return key_infos(entries)
    # Out of the handler, whose frames hold the document: a traceback may be printed with its variables.
    raise ConfigurationError(f"The key file {path} {fault}.")


def add_primary_key(path: Path, *, wait_seconds: float = WAIT_SECONDS) -> str:
    """
    Make a new key, which wraps from now on. The primary key there was stays enabled: it goes on unwrapping.

    :param wait_seconds: How long to wait for other editors.
    :returns: The id of the new key.
    :raises ConfigurationError: If the file is missing, unsafe or no keyset, or cannot be changed.
    :raises AlreadyRunning: If other editors kept the file for too long. Nothing was changed.
    :raises StorageFull: If there is no room for a new file. Nothing was changed.
    """
    new = new_entry(now=datetime.now(UTC))

    def added(entries: _Entries) -> _Entries:
        return (*(_in_state(entry, KeyState.ENABLED) if _is_primary(entry) else entry for entry in entries), new)

    try:
        _edit(path, added, wait_seconds=wait_seconds)
    finally:
        _close((new,))
    return new.key_id


def disable_key(path: Path, key_id: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
    """
    Have a key open nothing until it is enabled again. One that is disabled already stays so.

    :param wait_seconds: How long to wait for other editors.
    :raises ConfigurationError: See `add_primary_key`; or if there is no such key, or it is the primary one, or
        destroyed. Nothing was changed.
    :raises AlreadyRunning: See `add_primary_key`.
    :raises StorageFull: See `add_primary_key`.
    """
    _change_state(path, key_id, KeyState.DISABLED, wait_seconds)


def enable_key(path: Path, key_id: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
    """
    Have a disabled key unwrap again. One that can already, the primary one too, stays as it is.

    :param wait_seconds: How long to wait for other editors.
    :raises ConfigurationError: See `add_primary_key`; or if there is no such key, or it is destroyed. Nothing was
        changed.
    :raises AlreadyRunning: See `add_primary_key`.
    :raises StorageFull: See `add_primary_key`.
    """
    _change_state(path, key_id, KeyState.ENABLED, wait_seconds)


def destroy_key(path: Path, key_id: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
    """
    Remove a key for good. What it wrapped is opened by nobody again, unless there is a copy of the file somewhere: what
    is overwritten here and what is not stands at the top of this module. One that is destroyed already stays so.

    :param wait_seconds: How long to wait for other editors.
    :raises ConfigurationError: See `add_primary_key`; or if there is no such key, or it is the primary one. Nothing was
        changed.
    :raises AlreadyRunning: See `add_primary_key`.
    :raises StorageFull: See `add_primary_key`.
    """
    _change_state(path, key_id, KeyState.DESTROYED, wait_seconds)


def _change_state(path: Path, key_id: str, state: KeyState, wait_seconds: float) -> None:
    def changed(entries: _Entries) -> _Entries:
        found = next((entry for entry in entries if entry.key_id == key_id), None)
        if found is None:
            raise KeysetError("has no key of this id")
        refusal = _REFUSALS.get((found.state, state))
        if refusal is not None:
            raise KeysetError(refusal)
        if state is KeyState.ENABLED and _is_primary(found):
            return entries
        return tuple(_in_state(entry, state) if entry is found else entry for entry in entries)

    _edit(path, changed, wait_seconds=wait_seconds)


def _is_primary(entry: KeysetEntry) -> bool:
    return entry.state is KeyState.PRIMARY


def _in_state(entry: KeysetEntry, state: KeyState) -> KeysetEntry:
    return replace(entry, state=state, key=None if state is KeyState.DESTROYED else entry.key)


def _edit(path: Path, change: Callable[[_Entries], _Entries], *, wait_seconds: float) -> None:
    try:
        with locked_directory(path.parent, wait_seconds=wait_seconds) as directory:
            return _edit_in(directory, path.name, change)
    except KeysetError as error:
        fault = str(error)
    except OSError as error:
        if is_full(error):
            raise StorageFull("The disk is full, so the key file was not changed; make room and try again.") from None
        fault = "cannot be changed there"
    except ValueError:
        fault = "cannot be opened"
    # Out of the handlers, whose frames hold the document: a traceback may be printed with its variables.
    raise ConfigurationError(f"The key file {path} {fault}.")


def _edit_in(directory: int, name: str, change: Callable[[_Entries], _Entries]) -> None:
    found = read_key_file(name, directory=directory)
    entries = parse_keyset(found.document)
    try:
        changed = change(entries)
        # Before the first change, and also if there is none to be made: they hold keys that were destroyed since.
        remove_unfinished(directory, name)
        if changed != entries:
            _replace(directory, name, found, render_keyset(changed))
    finally:
        _close(entries)


def _replace(directory: int, name: str, found: KeyFile, document: bytes) -> None:
    # What is written is what can be read, and no larger.
    _close(parse_keyset(document))
    temporary = temporary_name(name)
    with overwritten(directory, name):
        try:
            write_private(directory, temporary, document, after_ns=found.written_ns)
            _require_unchanged(directory, name, found)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        try:
            os.fsync(directory)
        except OSError:
            # And the old one is not overwritten: after a power failure it may be the only one.
            raise KeysetError("was changed, but the disk did not confirm it; the old one may come back") from None


def _require_unchanged(directory: int, name: str, found: KeyFile) -> None:
    # Whoever changes it by hand does not know the lock.
    if file_version(name, directory=directory) != found.version:
        raise KeysetError("was changed by somebody else at the same time; nothing was changed here")


def _close(entries: _Entries) -> None:
    for entry in entries:
        if entry.key is not None:
            entry.key.close()
