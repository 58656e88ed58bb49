"""Unwrapped keys that are kept for a while: bounded in number and age."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from stores.locks import ProcessLock
from tenancy.errors import KeyUnavailable
from tenancy.keys.material import SecretKey


class KeyCache:
    """
    Keeps keys by everything that decides whether they are the right ones, of which the first part says whose they are.

    Nobody shares a `SecretKey` with the cache: it keeps one of its own and hands out others (`duplicate`), so that it
    may close its own whenever it likes; the bytes go with the last. Age counts from when a key was put in, and the
    oldest leaves first; an old key is never handed out, and is closed by the next call of any kind or by `close`. Safe
    for threads.

    :param entries: How many keys at most; 0 keeps none.
    :param seconds: How old a key may be.
    :param monotonic: The time, in seconds from anywhere, never backwards.
    """

    def __init__(self, *, entries: int, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit = entries
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = ProcessLock()
        # In the order they were put in, so that the oldest are the first.
        self._kept: OrderedDict[tuple[Hashable, ...], tuple[float, SecretKey]] = OrderedDict()
        # When the first of them is too old, or earlier; never later.
        self._first_end = math.inf

    def get(self, identity: tuple[Hashable, ...]) -> SecretKey | None:
        """Hand out a copy of a key, which the caller closes; `None` if it is not here (any more)."""
        # Without the lock as long as nothing has to leave: each read and each write of a result comes by here.
        now = self._monotonic()
        if now >= self._first_end:
            with self._lock:
                self._evict(now)
        kept = self._kept.get(identity)
        if kept is None or kept[0] <= now:
            return None
        try:
            return kept[1].duplicate()
        except KeyUnavailable:
            # Put out, and closed, a moment ago.
            return None

    def put(self, identity: tuple[Hashable, ...], key: SecretKey) -> None:
        """Keep a copy of a key. The key itself stays the caller's."""
        with self._lock:
            before = self._kept.pop(identity, None)
            if before is not None:
                before[1].close()
            now = self._monotonic()
            self._kept[identity] = (now + self._seconds, key.duplicate())
            self._evict(now)

    def drop(self, whose: Hashable) -> None:
        """Overwrite and forget the keys that are somebody's."""
        with self._lock:
            for identity in [each for each in self._kept if each[0] == whose]:
                self._kept.pop(identity)[1].close()

    def close(self) -> None:
        """Overwrite and forget every key. The cache stays usable, and empty until the next `put`."""
        with self._lock:
            while self._kept:
                self._drop_oldest()

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"KeyCache({len(self)} keys)"

    def _evict(self, now: float) -> None:
        self._look_at_first()
        while len(self._kept) > self._limit or self._first_end <= now:
            self._drop_oldest()
            self._look_at_first()

    def _look_at_first(self) -> None:
        self._first_end = next(iter(self._kept.values()))[0] if self._kept else math.inf

    def _drop_oldest(self) -> None:
        _, (_, key) = self._kept.popitem(last=False)
        key.close()
