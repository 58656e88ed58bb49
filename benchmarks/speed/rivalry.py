"""The suite `rivals`: a text of 64 KB written and read, beside what others sell for the same purpose."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.place import sqlite_place
from benchmarks.speed.rivals import RIVALS, Rival
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.timing import interleaved
from benchmarks.speed.works import INLINE_BYTES, SIZES, Library, opened_session, own_folder

_OURS, _OURS_DURABLE = "", "durable"
#: Write, durable write and read, where another goal is set than to be no slower. What is durable there is beside what
#: is durable here too.
_GOALS: Final = {"OpenAI EncryptedSession": (1 / 25, 1 / 14, 1 / 20)}


def rival_rows(rounds: int) -> Iterator[Row]:
    """
    Measure all of them in one interleaved run, ours with both modes of durability.

    Only the first is durable and the only one that encrypts; the others are plain files and tables. Of the others that
    are not installed there are lines that say so.
    """
    texts = sample_texts(SIZES["64 KB"])
    with ExitStack() as opened:
        ours = opened.enter_context(opened_session(sqlite_place(files_from=INLINE_BYTES)))
        durable = opened.enter_context(opened_session(sqlite_place(files_from=INLINE_BYTES), durability="power"))
        stores = {_OURS: Rival(ours.write, ours.read), _OURS_DURABLE: Rival(durable.write, durable.read)}
        missing = []
        for name, open_rival in RIVALS.items():
            try:
                stores[name] = opened.enter_context(open_rival(opened.enter_context(own_folder())))
            except ImportError as error:
                missing.append(Row("write and read 64 KB", name, None, note=f"not installed ({error.name})"))
        libraries = {
            name: Library(store.write, store.read, texts, reads_newest=store.reads_newest)
            for name, store in stores.items()
        }
        writes = interleaved({name: each.write for name, each in libraries.items()}, rounds=rounds, block=4)
        reads = interleaved({name: each.read for name, each in libraries.items()}, rounds=rounds, block=4)
    for name in stores:
        if name not in RIVALS:
            continue
        to_write, to_write_durably, to_read = _GOALS.get(name, (1.0, None, 1.0))
        yield Row("write 64 KB", name, to_write, writes[_OURS], writes[name])
        if to_write_durably is not None:
            yield Row("durable write 64 KB", name, to_write_durably, writes[_OURS_DURABLE], writes[name])
        yield Row("read 64 KB", name, to_read, reads[_OURS], reads[name])
    yield from missing
