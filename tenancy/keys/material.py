"""A secret key in memory. The one class whose instances hold key bytes."""

import hmac
import os
from typing import Final, NoReturn, Self, final

from stores.locks import ProcessLock
from tenancy.errors import KeyUnavailable

KEY_BYTES: Final = 32


class _Exposed:
    """The block in which the bytes of a key are lent out. A class, since every seal and every opening enters one."""

    __slots__ = ("_key", "_view")

    def __init__(self, key: "SecretKey") -> None:
        self._key = key
        self._view: memoryview | None = None

    def __enter__(self) -> memoryview:
        if self._view is not None:
            raise RuntimeError("This block was entered already.")
        self._view = self._key._lend()
        return self._view

    def __exit__(self, *_: object) -> None:
        if self._view is not None:
            self._view.release()
            self._view = None
            self._key._take_back()

    def __repr__(self) -> str:
        return "SecretKey(…)"


@final
class SecretKey:
    """
    32 secret bytes that are overwritten when their holder is done with them.

    An instance belongs to one holder, who closes it; an instance that is dropped without is overwritten when it is
    collected. Closing while another thread is inside `exposed` overwrites when the last of them leaves, so that nobody
    ever seals with half a key. It shows itself in no repr, is not copied by accident (`duplicate` does it on purpose)
    and is never pickled.

    What Python cannot promise: the `bytes` a key was made from (chance, a decoded setting, an opened wrapped key) and
    the copies inside the cryptographic library are freed, not overwritten; memory may be swapped out or end up in a
    core dump; whoever can run code in this process or read its memory can read the key.

    :param data: 32 bytes, copied. A caller that owns a mutable buffer overwrites its own.
    :raises ValueError: If there are not exactly 32.
    """

    __slots__ = ("_closed", "_lock", "_users", "_view")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        # A view, since the repr of what a slot holds may be printed by a tool that shows attributes; and by way of
        # `memoryview`, since `bytearray(32)` would be a key of zeros.
        self._view = memoryview(bytearray(memoryview(data)))
        # A plain lock that another thread holds at the moment of a fork would hang the child at its first key.
        self._lock = ProcessLock()
        self._users = 0
        self._closed = False
        if len(self._view) != KEY_BYTES:
            raise ValueError(f"A key has {KEY_BYTES} bytes.")

    @classmethod
    def generate(cls) -> Self:
        """Make a new key out of the operating system's chance."""
        return cls(os.urandom(KEY_BYTES))

    def exposed(self) -> "_Exposed":
        """
        Lend the bytes out, read-only, until the block is left; the view is of no use afterwards.

        :raises KeyUnavailable: If the key is closed.
        """
        return _Exposed(self)

    def _lend(self) -> memoryview:
        with self._lock:
            if self._closed:
                raise KeyUnavailable("This key was closed; what it belonged to is closed too.")
            self._users += 1
            return self._view.toreadonly()

    def _take_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._closed and not self._users:
                self._overwrite()

    def duplicate(self) -> "SecretKey":
        """
        Make a second key of the same bytes, for a second holder.

        :raises KeyUnavailable: If this one is closed.
        """
        with self.exposed() as view:
            return SecretKey(view)

    def equals(self, other: "SecretKey") -> bool:
        """Compare with another key, in a time that does not tell how much of it was right."""
        with self.exposed() as mine, other.exposed() as theirs:
            return hmac.compare_digest(mine, theirs)

    def close(self) -> None:
        """Overwrite the bytes: at once, or when the last `exposed` block is left. May be repeated."""
        with self._lock:
            self._closed = True
            if not self._users:
                self._overwrite()

    def _overwrite(self) -> None:
        self._view[:] = bytes(len(self._view))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody is inside `exposed` any more: its frame would hold this instance.
        if hasattr(self, "_view"):
            self._overwrite()

    def __repr__(self) -> str:
        return "SecretKey(…)"

    def __copy__(self) -> NoReturn:
        raise TypeError("A secret key is not copied.")

    def __deepcopy__(self, _: object) -> NoReturn:
        raise TypeError("A secret key is not copied.")

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("A secret key is not serialised.")

    def __getstate__(self) -> NoReturn:
        raise TypeError("A secret key is not serialised.")
