"""
Blobs as files: `root/OUTER/INNER/NAME`.

Every step is relative to a held descriptor and never follows a symbolic link, so whatever is moved, swapped or linked
below the root, nothing outside of it is read, written or removed.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from stores.blob import BlobInfo
from stores.connections import Durability
from stores.descriptors import Directories, Directory
from stores.entries import (
    QUARANTINE,
    directories_in,
    exists,
    names_in,
    new_file,
    open_directory,
    opened_directory,
    read_file,
    regular_file,
    unlink,
    write_all,
)
from stores.errors import BlobExists, BlobNotFound, StoreError, StoreUnavailable
from stores.names import is_name, mint_name, require_name
from stores.ranges import require_ranges
from stores.roots import open_root
from stores.system_errors import is_full, translated
from stores.trash import Trash

_ROOM_GONE: Final = "The room was destroyed while it was written to."
#: How often a room is made again when its outer directory, being empty, is removed at the same moment.
_ATTEMPTS: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FilesystemStore:
    """
    A store below one directory that belongs to the user of this process alone.

    Safe for threads, for several processes at once and after a fork.

    :param path: The root. It is made if it is missing; its parent must exist.
    :param durability: `"power"`: what a call has done survives power loss. `"process"`: it survives the death of this
        process only, and nothing is ever synced.
    :param open_directories: How many rooms stay open between calls.
    :param random_bytes: Where names in the trash and, if need be, in the quarantine come from.
    :param sleep: What `destroy` pauses with.
    :raises StoreDenied: If the root is a symbolic link, is open to others or belongs to another user, or if the
        platform cannot open files relative to a directory.
    """

    joins_transactions = False
    sets_aside = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        open_directories: int = 256,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._syncs = durability == "power"
        self._directories = Directories(open_root(path, sync=self._syncs), limit=open_directories)
        # The root belongs to whom this process runs as, or it would not be open.
        self._owner = os.geteuid()
        self._random_bytes = random_bytes
        self._trash = Trash(owner=self._owner, random_bytes=random_bytes, sleep=sleep)

    def namespace(self, outer: str, inner: str) -> "FilesystemNamespace":
        """Return the handle of one room."""
        return FilesystemNamespace(self, require_name(outer), require_name(inner))

    def namespaces(self) -> Iterator[tuple[str, str]]:
        """
        Go through the rooms that hold a blob or cannot be listed. Directories with other names are left out.

        :raises StoreError: At the end, if an outer directory cannot be listed.
        """
        refused = None
        for outer in self._below_root():
            try:
                inners = self._below(outer)
            except StoreError as error:
                # One directory that somebody closed must not hide all the others.
                refused = refused or error
                continue
            for inner in inners:
                if self._may_hold_blobs(outer, inner):
                    yield outer, inner
        if refused is not None:
            raise refused

    def sweep(self) -> None:
        """
        Empty the trash: rooms whose destruction was interrupted.

        :raises StoreError: If something in it cannot be removed. The rest is tried again by the next call.
        """
        with translated(), self._directories.root() as root:
            self._trash.empty(root.descriptor)

    def close(self) -> None:
        """Close every directory as soon as no call uses it. Later calls raise `StoreUnavailable`."""
        self._directories.close()

    def _below_root(self) -> list[str]:
        with translated(), self._directories.root() as root:
            return directories_in(root.descriptor)

    def _below(self, outer: str) -> list[str]:
        with translated(), self._directories.root() as root:
            try:
                with opened_directory(root.descriptor, outer, owner=self._owner) as above:
                    return directories_in(above)
            except FileNotFoundError:
                return []

    def _may_hold_blobs(self, outer: str, inner: str) -> bool:
        try:
            return next(self.namespace(outer, inner).list(), None) is not None
        except StoreError:
            return True


class FilesystemNamespace:
    """One room of a `FilesystemStore`: a directory, held open while it is in use."""

    __slots__ = ("_inner", "_outer", "_store")

    def __init__(self, store: FilesystemStore, outer: str, inner: str) -> None:
        self._store = store
        self._outer = outer
        self._inner = inner

    def put(self, name: str, data: bytes) -> None:
        """
        Create a blob.

        :raises StoreUnavailable: Also if the room was destroyed meanwhile. The blob is gone with it.
        """
        require_name(name)
        with translated(), self._room(create=True) as (root, room), self._new_file(room, name) as descriptor:
            write_all(descriptor, data)
            if self._store._syncs:
                # A sync that failed is never tried again: the kernel may have dropped the pages and call them clean.
                os.fsync(descriptor)
                os.fsync(room.descriptor)
                self._anchor(root, room)
            # Last of all: a room that was moved to the trash takes files as willingly as one that is in its place.
            if not self._is_current(root, room):
                raise StoreUnavailable(_ROOM_GONE)

    def get(self, name: str, *, size_bytes: int) -> bytes:
        """Return a whole blob."""
        return self.get_ranges(name, ((0, size_bytes),), size_bytes=size_bytes)[0]

    def get_range(self, name: str, *, start: int, length: int, size_bytes: int) -> bytes:
        """Return a part of a blob. Only that part is read."""
        return self.get_ranges(name, ((start, length),), size_bytes=size_bytes)[0]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]], *, size_bytes: int) -> Sequence[bytes]:
        """Return parts of a blob. Its file is opened once, and only they are read."""
        require_name(name)
        require_ranges(ranges, size_bytes=size_bytes)
        # A kept directory may be one that another process has destroyed and made again: what is missing is looked for
        # once more. What is there is right, since names are never used twice.
        for trusts_kept in (True, False):
            room_as_it_is = self._room(trusts_kept=trusts_kept)
            with translated(reading=True), suppress(FileNotFoundError), room_as_it_is as (_, room):
                return read_file(room.descriptor, name, ranges, size_bytes=size_bytes, owner=self._store._owner)
        raise BlobNotFound("There is no such blob.")

    def delete(self, name: str) -> None:
        """Make sure there is no blob of this name, nor anything else that somebody put in its place."""
        require_name(name)
        with translated(), suppress(FileNotFoundError), self._room() as (root, room):
            if not unlink(room.descriptor, name):
                moved = self._store._trash.take(root.descriptor, directory=room.descriptor, name=name)
                self._store._trash.empty(root.descriptor, name=moved)
            if self._store._syncs:
                # Also if there was nothing to remove: whoever removed it may not have come to this line.
                os.fsync(room.descriptor)

    def list(self) -> Iterator[BlobInfo]:
        """Go through the blobs that were there at the beginning and still are."""
        with translated(), suppress(FileNotFoundError), self._room() as (_, room):
            for name in filter(is_name, names_in(room.descriptor)):
                status = regular_file(room.descriptor, name)
                if status is not None:
                    modified_at = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
                    yield BlobInfo(name, status.st_size, modified_at)

    def set_aside(self, name: str) -> bool:
        """Move a blob to `root/quarantine/OUTER/INNER/NAME`."""
        require_name(name)
        store = self._store
        with translated(), suppress(FileNotFoundError), self._room() as (root, room), ExitStack() as opened:
            place = root.descriptor
            for part in (QUARANTINE, self._outer, self._inner):
                inside = opened.enter_context(opened_directory(place, part, owner=store._owner, create=True))
                if store._syncs:
                    os.fsync(place)
                place = inside
            # A copy of the same blob may be there already: somebody restored it twice.
            target = mint_name(store._random_bytes) if exists(place, name) else name
            os.rename(name, target, src_dir_fd=room.descriptor, dst_dir_fd=place)
            if store._syncs:
                # The new place first: after power loss it may be in both, and never in neither.
                os.fsync(place)
                os.fsync(room.descriptor)
            return True
        return False

    def destroy(self) -> None:
        """
        Remove the room and all in it, also what somebody planted there; a symbolic link itself, never its target.

        One rename makes all of it unreachable. What an interruption leaves in the trash, a later call removes.
        """
        store = self._store
        with translated(), store._directories.root() as root:
            moved = self._move_to_trash(root)
            store._directories.forget((self._outer, self._inner))
            if moved is not None:
                store._trash.empty(root.descriptor, name=moved, and_others=True)
                return
            # What others left behind must not make this call fail. `sweep` is where it is reported.
            with suppress(OSError, StoreError):
                store._trash.empty(root.descriptor)

    def _move_to_trash(self, root: Directory) -> str | None:
        moved = None
        with suppress(FileNotFoundError), self._opened_outer(root) as outer:
            with suppress(FileNotFoundError):
                moved = self._take(root, outer)
            with suppress(OSError):  # there are other rooms in it; or it stays, empty
                os.rmdir(self._outer, dir_fd=root.descriptor)
            if self._store._syncs:
                os.fsync(outer)
        if self._store._syncs:
            os.fsync(root.descriptor)
        return moved

    def _take(self, root: Directory, outer: int) -> str | None:
        try:
            return self._store._trash.take(root.descriptor, directory=outer, name=self._inner)
        except OSError as error:
            if not is_full(error):
                raise
        # Not even room for the trash or for one more name in it: then file by file, where the room is.
        self._store._trash.empty_in_place(outer, name=self._inner)
        return None

    @contextmanager
    def _room(self, *, create: bool = False, trusts_kept: bool = False) -> Iterator[tuple[Directory, Directory]]:
        directories, key = self._store._directories, (self._outer, self._inner)

        with directories.root() as root:

            def open_room() -> int:
                return self._open(root, create=create)

            def is_current(kept: Directory) -> bool:
                return trusts_kept or self._is_current(root, kept)

            with directories.hold(key, open_room, is_current=is_current) as room:
                yield root, room

    def _open(self, root: Directory, *, create: bool) -> int:
        for _ in range(_ATTEMPTS):
            try:
                with self._opened_outer(root, create=create) as outer:
                    return open_directory(outer, self._inner, owner=self._store._owner, create=create)
            except FileNotFoundError:
                # When creating: the last other room in `outer` was destroyed just now, and `outer` with it.
                if not create:
                    raise
        raise StoreUnavailable("The room was destroyed again and again while it was made.")

    @contextmanager
    def _new_file(self, room: Directory, name: str) -> Iterator[int]:
        try:
            with new_file(room.descriptor, name, owner=self._store._owner) as descriptor:
                yield descriptor
        except FileExistsError:
            raise BlobExists("A blob of this name is there already.") from None
        except FileNotFoundError:
            # Nothing can be made in a directory that has been removed.
            raise StoreUnavailable(_ROOM_GONE) from None

    def _anchor(self, root: Directory, room: Directory) -> None:
        # Once for each room and process, whoever made it and perhaps died: a file is as safe as the way to it.
        if not room.anchored:
            with self._opened_outer(root) as outer:
                os.fsync(outer)
            os.fsync(root.descriptor)
            room.anchored = True

    def _is_current(self, root: Directory, room: Directory) -> bool:
        """Tell whether `room` is still what the names of this room lead to."""
        try:
            with self._opened_outer(root) as outer:
                found = os.stat(self._inner, dir_fd=outer, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == room.identity

    def _opened_outer(self, root: Directory, *, create: bool = False) -> AbstractContextManager[int]:
        return opened_directory(root.descriptor, self._outer, owner=self._store._owner, create=create)
