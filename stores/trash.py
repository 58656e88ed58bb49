"""Destroyed rooms: moved aside in one rename, then emptied at a pace."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from stores.entries import TRASH, opened_as_found, opened_directory, unlink, unlink_each
from stores.errors import StoreError, StoreUnavailable
from stores.names import mint_name

#: Ten thousand unlinks in a row keep an ext4 journal busy for a minute: so many, then a pause.
UNLINKS_AT_ONCE: Final = 200
PAUSE_SECONDS: Final = 0.01
#: 160 random bits are never used twice; whoever can foresee them could still put something in the way.
_ATTEMPTS: Final = 3


class Trash:
    """
    The directory in a store's root where rooms end.

    Several threads and processes may empty it at once; each takes what another has already removed as done.

    :param owner: The uid it must belong to.
    """

    def __init__(self, *, owner: int, random_bytes: Callable[[int], bytes], sleep: Callable[[float], object]) -> None:
        self._owner = owner
        self._random_bytes = random_bytes
        self._sleep = sleep

    def take(self, root: int, *, directory: int, name: str) -> str:
        """
        Move an entry of `directory`, whatever it is, into the trash. A symbolic link is moved itself.

        :returns: What it is called there.
        :raises FileNotFoundError: If there was nothing to move.
        """
        with opened_directory(root, TRASH, owner=self._owner, create=True) as trash:
            return self._move(trash, directory=directory, name=name)

    def empty(self, root: int, *, name: str | None = None, and_others: bool = False) -> None:
        """
        Remove what is in the trash.

        :param name: One entry, as `take` returned it; without it, all of them.
        :param and_others: After that one, what others have left behind, as far as that can be removed.
        """
        with suppress(FileNotFoundError), opened_directory(root, TRASH, owner=self._owner) as trash:
            self._remove_all(trash, os.listdir(trash) if name is None else [name])
            if and_others:
                # This must not make the call fail. Emptying all of the trash is where it is reported.
                with suppress(OSError, StoreError):
                    self._remove_all(trash, os.listdir(trash))

    def empty_in_place(self, directory: int, *, name: str) -> None:
        """Remove an entry of `directory` and all in it without moving it first, so that it needs no room anywhere."""
        self._remove_all(directory, [name])

    def _remove_all(self, trash: int, waiting: list[str]) -> None:
        while waiting:
            waiting += self._remove(trash, waiting.pop())

    def _remove(self, trash: int, name: str) -> list[str]:
        planted = []
        # Here and below: what is missing, another worker has removed between two steps of ours.
        with suppress(FileNotFoundError):
            try:
                with opened_as_found(trash, name) as room:
                    for entry in self._unlink_at_a_pace(room):
                        # A store makes none this deep. Moved up here it needs no recursion, however deep it goes on.
                        with suppress(FileNotFoundError):
                            planted.append(self._move(trash, directory=room, name=entry))
            except OSError as error:
                # No directory, or a link to one: some systems say the one, some the other.
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                unlink(trash, name)
            else:
                self._remove_directory(trash, name)
        return planted

    def _unlink_at_a_pace(self, room: int) -> list[str]:
        """Unlink whatever is no directory, and return what is one."""
        names, directories = os.listdir(room), []
        for start in range(0, len(names), UNLINKS_AT_ONCE):
            if start:
                self._sleep(PAUSE_SECONDS)
            directories += unlink_each(room, names[start : start + UNLINKS_AT_ONCE])
        return directories

    @staticmethod
    def _remove_directory(trash: int, name: str) -> None:
        try:
            os.rmdir(name, dir_fd=trash)
        except OSError as error:
            # A writer that still had the room open has not yet taken its file back. It will, and a later turn removes
            # the empty directory.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    def _move(self, trash: int, *, directory: int, name: str) -> str:
        for _ in range(_ATTEMPTS):
            target = mint_name(self._random_bytes)
            try:
                os.rename(name, target, src_dir_fd=directory, dst_dir_fd=trash)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                    raise
            else:
                return target
        raise StoreUnavailable("Something stands in the way in the trash of the store.")
