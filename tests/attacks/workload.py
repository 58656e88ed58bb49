"""
Everything a manager does to files, in two runs: the program whose system calls are audited.

    python -m tests.attacks.workload fill FOLDER
    python -m tests.attacks.workload empty FOLDER

In between somebody may put in the way what he likes. What goes wrong is done too, since the way back out of a failure
opens and removes files as well.
"""

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from stores.errors import StoreError
from stores.filesystem import FilesystemStore
from stores.names import mint_name
from tenancy import SessionManager, TenancyError
from tenancy.startup import RESULTS_FOLDER

_LARGE = "a line of text\n" * 20_000


def fill(folder: Path) -> None:
    """Make a data directory in `folder`, write and read, and leave results in several rooms."""
    with SessionManager.local(folder / "data", inline_bytes=0) as manager:
        use_sessions(manager)
        share_with_threads(manager)
        share_with_a_child(manager)
        assert manager.verify().ok


def empty(folder: Path) -> None:
    """Open it again, go on, fail on the way, and remove everything in each way there is."""
    with SessionManager.local(folder / "data", inline_bytes=0) as manager:
        # Hardly a directory stays open, so that most calls find their way from the root.
        manager._backend.store.close()
        manager._backend.store = FilesystemStore(folder / "data" / RESULTS_FOLDER, open_directories=1)
        meet_strangers(manager)
        use_sessions(manager)
        fail(manager)
        end(manager)
    use_store(folder / "data" / RESULTS_FOLDER)


def use_sessions(manager: SessionManager) -> None:
    """Write, read, page, list and delete, in rooms of two tenants in turn."""
    sessions = [manager.session(tenant=tenant, user="ann", session="chat") for tenant in ("acme", "globex")]
    for content in ("small", b"small", _LARGE, b"x" * 200_000):
        for session in sessions:
            reference = session.write(content)
            assert session.read(reference) == content
            if isinstance(content, str):
                session.read_page(reference, offset=len(content) // 2, max_chars=100)
            assert next(session.results()).reference == reference
    for session in sessions:
        session.delete(next(session.results()).reference)


def share_with_threads(manager: SessionManager) -> None:
    """Use a room from several threads at once."""

    def use() -> None:
        manager.session(tenant="acme", user="ann", session="threads").write("from a thread")

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def share_with_a_child(manager: SessionManager) -> None:
    """Use a room from a forked child, which is traced like its parent."""
    room = manager._backend.store.namespace(mint_name(), mint_name())
    child = os.fork()
    if child == 0:
        room.put(mint_name(), b"from a child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    room.destroy()


def meet_strangers(manager: SessionManager) -> None:
    """Find something else in place of results, and remove it."""
    manager.verify()
    session = manager.session(tenant="acme", user="ann", session="chat")
    for reference in [result.reference for result in session.results()]:
        with suppress(TenancyError):
            session.read(reference)
        session.delete(reference)


def fail(manager: SessionManager) -> None:
    """Run out of disk in the middle of a file, and meet a umask under which nobody can use what he makes."""

    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    with replaced("write", write), suppress(TenancyError):
        manager.session(tenant="acme", user="ann", session="chat").write("never stored")
    before = os.umask(0o777)
    with suppress(TenancyError):
        manager.session(tenant="initech", user="ann").write("never stored")
    os.umask(before)


def end(manager: SessionManager) -> None:
    """End sessions in every way: deleted, erased, expired; and look for what is left."""
    for tenant in ("acme", "globex"):
        manager.session(tenant=tenant, user="bob").write("of bob")
    manager.delete_session(tenant="acme", user="ann", session="chat")
    manager.erase_user(tenant="acme", user="ann")
    manager.erase_tenant(tenant="globex")
    manager.clock.advance(timedelta(days=60))
    manager.cleanup()
    assert manager.verify(repair=True).ok


def use_store(root: Path) -> None:
    """What a store can do that no manager asks for."""
    store = FilesystemStore(root, durability="process")
    room, name = store.namespace(mint_name(), mint_name()), mint_name()
    room.put(name, b"x")
    with suppress(StoreError):
        room.put(name, b"x")
    with suppress(StoreError):
        room.get(name, size_bytes=2)
    list(room.list())
    list(store.namespaces())
    room.destroy()
    room.destroy()
    store.sweep()
    store.close()


@contextmanager
def replaced(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let a function of `os` be another one."""
    real = getattr(os, name)
    setattr(os, name, function)
    try:
        yield
    finally:
        setattr(os, name, real)


if __name__ == "__main__":
    {"fill": fill, "empty": empty}[sys.argv[1]](Path(sys.argv[2]))
