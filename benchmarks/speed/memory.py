"""How much memory a page of a large result takes, and the write of one. Linux only, which tells peaks."""

from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from benchmarks.place import Place, sqlite_place
from benchmarks.processes import hear_from, start_process
from benchmarks.speed.rows import Row
from benchmarks.speed.texts import sample_texts
from benchmarks.speed.works import INLINE_BYTES, PAGE_CHARS
from tenancy import SessionManager

_LARGE_BYTES: Final = 100 * 10**6
_MIB: Final = 2**20
_SELF: Final = Path("/proc/self")


def memory_rows(_: int = 0, *, size_bytes: int = _LARGE_BYTES) -> Iterator[Row]:
    """
    Measure each in a process of its own, after it has done the same once with a small result.

    What is told is the peak of its resident memory during the call less what was resident before it. A write's content
    was there before, so that a figure of 1 means one more copy of it.
    """
    size = f"{size_bytes // 10**6} MB"
    with sqlite_place(files_from=INLINE_BYTES) as place:
        write = _in_a_child(_write, place, size_bytes)
        page = _in_a_child(_page, place, write["reference"], size_bytes)
    yield Row(f"4 KB page of {size}", "peak memory", 16, figure=page["grown_bytes"] / _MIB, unit="MiB")
    yield Row(f"write {size}", "peak, in contents", 2.5, figure=write["grown_bytes"] / size_bytes)


def _in_a_child(work: Any, *arguments: Any) -> dict[str, Any]:
    process, hear = start_process(work, *arguments)
    told: dict[str, Any] = hear_from(process, hear)
    process.join()
    return told


def _write(place: Place, size_bytes: int, tell: Connection) -> None:
    # Without what is no ASCII, so that a character is a byte here, there and everywhere.
    part = sample_texts(_MIB)[0].encode("ascii", "replace").decode()
    content = (part * (size_bytes // len(part) + 1))[:size_bytes]
    with SessionManager.from_settings(place.settings(durability="process")) as manager:
        session = manager.session(tenant="acme", user="u", session="chat")
        session.write(part)
        before = _from_here()
        reference = session.write(content)
        tell.send({"grown_bytes": _peak() - before, "reference": reference})


def _page(place: Place, reference: str, size_bytes: int, tell: Connection) -> None:
    with SessionManager.from_settings(place.settings(durability="process")) as manager:
        session = manager.session(tenant="acme", user="u", session="chat")
        session.read_page(session.write("line\n" * PAGE_CHARS), max_chars=PAGE_CHARS)
        before = _from_here()
        page = session.read_page(reference, offset=size_bytes // 2, max_chars=PAGE_CHARS)
        grown_bytes = _peak() - before
    assert len(page.text) == PAGE_CHARS
    tell.send({"grown_bytes": grown_bytes})


def _from_here() -> int:
    """Have the kernel forget the peak, as proc(5) says, and return what is resident now."""
    (_SELF / "clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    (line,) = (line for line in (_SELF / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
