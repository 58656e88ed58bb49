"""Work on many segments, shared with a second thread where that pays."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")

#: Fewer segments are done sooner than a thread is started: that takes as long as one or two of them.
_WORTH_SHARING: Final = 8


def in_two_threads(work: Callable[[Sequence[In]], list[Out]], parts: Sequence[In]) -> list[Out]:
    """
    Do what can be done to a sequence part by part, the second half of a long one in a thread of its own.

    The compressor lets other threads run. The thread is started for this call and has ended when it returns: a pool
    would be gone after a fork, and whoever waits for it would wait for ever.

    :param work: Does it to some of the parts, and returns what becomes of each.
    :raises Exception: What `work` raises, of the first half if both do.
    """
    if len(parts) < _WORTH_SHARING or (os.cpu_count() or 1) < 2:
        return work(parts)
    middle = len(parts) // 2
    second: list[Out] = []
    failure: list[BaseException] = []

    def do_second() -> None:
        try:
            second.extend(work(parts[middle:]))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failure.append(error)

    helper = threading.Thread(target=do_second, name="tenancy-segments", daemon=True)
    try:
        helper.start()
    except RuntimeError:
        # There may be no further thread, here or at the end of the process: then this one does it all.
        return work(parts)
    try:
        first = work(parts[:middle])
    finally:
        helper.join()
    if failure:
        raise failure.pop()
    return first + second
