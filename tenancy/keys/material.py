"""A secret key in memory. The one class whose instances hold key bytes."""

import hmac
import os
from typing import Final, NoReturn, Self, final

from tenancy.errors import KeyUnavailable

KEY_BYTES: Final = 32


class _Memory:
    """
    The bytes of a key, overwritten when the last of those who refer to this is done: who holds it, or borrows it.

    Counted by the interpreter, which counts in any case, without a lock, and also for who was interrupted.
    """

    __slots__ = ("view",)

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        # A view, since the repr of what a slot holds may be printed by a tool that shows attributes; and by way of
        # `memoryview`, since `bytearray(32)` would be a key of zeros.
        self.view = memoryview(bytearray(memoryview(data)))

    def __del__(self) -> None:
        if hasattr(self, "view"):
            self.view[:] = bytes(len(self.view))


class _Exposed:
    """The block in which the bytes of a key are lent out. A class, since every seal and every opening enters one."""

    __slots__ = ("_key", "_memory", "_view")

    def __init__(self, key: "SecretKey") -> None:
        self._key = key
        self._memory: _Memory | None = None

    def __enter__(self) -> memoryview:
        if self._memory is not None:
            raise RuntimeError("This block was entered already.")
        self._memory = self._key._held()
        self._view = self._memory.view.toreadonly()
        return self._view

    def __exit__(self, *_: object) -> None:
        if self._memory is not None:
            self._view.release()
            self._memory = None

    def __repr__(self) -> str:
        return "SecretKey(…)"


@final
class SecretKey:
    """
    32 secret bytes that are overwritten when their holder is done with them.

    An instance belongs to one holder, who closes it; one that is dropped is closed by that. The bytes are overwritten
    when the last holder has closed his (see `duplicate`) and nobody is inside `exposed`, so that nobody ever seals with
    half a key. It shows itself in no repr, is not copied by accident and is never pickled.

    What Python cannot promise: the `bytes` a key was made from (chance, a decoded setting, an opened wrapped key) and
    the copies inside the cryptographic library are freed, not overwritten; memory may be swapped out or end up in a
    core dump; whoever can run code in this process or read its memory can read the key.

    :param data: 32 bytes, copied. A caller that owns a mutable buffer overwrites its own.
    :raises ValueError: If there are not exactly 32.
    """

    __slots__ = ("_memory",)

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._memory: _Memory | None = _Memory(data)
        if len(self._memory.view) != KEY_BYTES:
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

    def _held(self) -> _Memory:
        # One look: whoever closes this at the same moment comes before it, or behind whoever asks.
        memory = self._memory
        if memory is None:
            raise KeyUnavailable("This key was closed; what it belonged to is closed too.")
        return memory

    def duplicate(self) -> "SecretKey":
        """
        Make a second key for a second holder. Both have the same bytes, of which there still is one copy.

        :raises KeyUnavailable: If this one is closed.
        """
        second = SecretKey.__new__(SecretKey)
        second._memory = self._held()
        return second

    def equals(self, other: "SecretKey") -> bool:
        """Compare with another key, in a time that does not tell how much of it was right."""
        with self.exposed() as mine, other.exposed() as theirs:
            return hmac.compare_digest(mine, theirs)

    def close(self) -> None:
        """End this holder's use. The bytes are overwritten with the last one's. May be repeated."""
        self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
