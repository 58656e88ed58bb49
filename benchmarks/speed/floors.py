"""
What the bare steps of an operation take: the same statements by the driver, the same messages of the cipher, the same
frames, and nothing of ours around them. No library that promises as much, in this language, takes less.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from unittest import mock

from benchmarks.place import Place, sqlite_place
from benchmarks.speed.peers import HaystackStore
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import documentation_texts
from benchmarks.speed.timing import Call, interleaved
from benchmarks.speed.works import INLINE_BYTES, SIZES, own_folder
from stores.names import mint_name
from stores.transactions import Transaction
from tenancy import SessionManager
from tenancy.references import parse_reference
from tenancy.sealing.cipher import HEADER_BYTES, open_message, seal_message
from tenancy.sealing.segments import SEGMENT_BYTES, zstd
from tenancy.session import Session

#: What stands in the catalogue. A larger result is in a file, which has steps of its own.
_SIZES: Final = ("4 KB", "64 KB")
Said = tuple[str, Mapping[str, Any]]


def floor_rows(rounds: int) -> Iterator[Row]:
    """Reads and writes beside their bare steps, and those beside Haystack's own store."""
    with (
        sqlite_place(files_from=INLINE_BYTES) as place,
        SessionManager.from_settings(place.settings(durability="process")) as manager,
        own_folder() as folder,
    ):
        session, haystack = manager.session(tenant="acme", user="u", session="chat"), HaystackStore(folder)
        for size in _SIZES:
            # One that goes into the catalogue whatever its size.
            text = documentation_texts(SIZES[size])[0]
            reference, other = session.write(text), haystack.write(text)
            works: dict[str, tuple[Call, Call, Call]] = {
                "write": (
                    lambda _, text=text: session.write(text),  # type: ignore[misc]
                    _bare_write(place, session, text),
                    lambda _, text=text: haystack.write(text),  # type: ignore[misc]
                ),
                "read": (
                    lambda _, reference=reference: session.read(reference),  # type: ignore[misc]
                    _bare_read(place, session, reference, text),
                    lambda _, other=other: haystack.read(other),  # type: ignore[misc]
                ),
            }
            for work, (ours, bare, theirs) in works.items():
                calls = {"ours": ours, "bare": bare, "theirs": theirs}
                times = interleaved(calls, rounds=rounds, block=16)
                yield Row(f"{work} {size}", "its bare steps", None, times["ours"], times["bare"])
                yield Row(f"bare steps of {work} {size}", "H", None, times["bare"], times["theirs"])


def _bare_read(place: Place, session: Session, reference: str, text: str) -> Call:
    (statement,) = _said_in(lambda: session.read(reference))
    backend, ids = session._backend, session._opened.ids
    parsed = parse_reference(reference)
    assert parsed is not None
    found = backend.catalogue.results.find(ids, parsed, body_up_to=2**20)
    assert found.result is not None
    assert found.body is not None
    frames = [len(frame) for frame in _compressed(text)]
    # Sealed with keys and contexts of the same lengths: what they are makes no difference to how long it takes.
    key, context, card = _sealed_alike(found.result.envelope.card)
    content_key, content_context, content = _sealed_alike(found.body, _compressed(text))
    connection = backend.catalogue.database.pool.take()

    def read(_: int) -> None:
        os.stat(place.key_file)
        connection.execute(*statement).fetchone()
        open_message(card[:HEADER_BYTES], card[HEADER_BYTES:], key=key, context=context)
        packed = memoryview(
            open_message(content[:HEADER_BYTES], content[HEADER_BYTES:], key=content_key, context=content_context)
        )
        pieces, at = [], 0
        for length in frames:
            plain = zstd.ZstdDecompressor().decompress(packed[at : at + length])
            pieces.append(str(plain, "utf-8", "surrogatepass"))
            at += length
        if len("".join(pieces)) != len(text):
            raise RuntimeError("The bare steps do not give the text.")

    return read


def _bare_write(place: Place, session: Session, text: str) -> Call:
    said = _said_in(lambda: session.write(text))
    connection = session._backend.catalogue.database.pool.take()
    key, context, card = _sealed_alike(bytes(300))
    inside = bytes(len(card) - HEADER_BYTES - 16)

    def write(_: int) -> None:
        frames = _compressed(text)
        header, body = seal_message(frames, key=key, context=context)
        sealed_card = b"".join(seal_message((inside,), key=key, context=context))
        os.stat(place.key_file)
        name, number = mint_name(), 0
        connection.execute("BEGIN IMMEDIATE")
        for statement, given in said:
            new = {"result_id": name, "name": name, "data": body, "header": header, "card": sealed_card}
            changed = {**given, **{field: value for field, value in new.items() if field in given}}
            if "number" in given:
                changed["number"] = number
            found = connection.execute(statement, changed).fetchall()
            if "add_results" in given:
                number = dict(found)[given["session_id"]]
        connection.execute("COMMIT")

    return write


def _said_in(act: Callable[[], object]) -> list[Said]:
    """Return what is said to the database meanwhile."""
    said: list[Said] = []
    run = Transaction._run

    def listening(self: Transaction, statement: Any, parameters: Mapping[str, Any]) -> Any:
        text, constants = statement.compiled(self._dialect)
        said.append((text, {**constants, **parameters}))
        return run(self, statement, parameters)

    with mock.patch.object(Transaction, "_run", listening):
        act()
    return said


def _sealed_alike(message: bytes, parts: Sequence[bytes] = ()) -> tuple[memoryview, bytes, bytes]:
    """Seal as much as a sealed message holds; return key, context and header with chunks."""
    key, context = memoryview(os.urandom(32)), os.urandom(260)
    inside = parts or [bytes(len(message) - HEADER_BYTES - 16)]
    header, body = seal_message(inside, key=key, context=context)
    return key, context, header + body


def _compressed(text: str) -> list[bytes]:
    data, compressor = text.encode(), zstd.ZstdCompressor(level=1)
    return [
        compressor.compress(data[at : at + SEGMENT_BYTES], zstd.ZstdCompressor.FLUSH_FRAME)
        for at in range(0, len(data), SEGMENT_BYTES)
    ]
