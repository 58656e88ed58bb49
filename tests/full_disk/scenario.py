"""
What an operator goes through with a disk that fills up: the program behind `test_full_disk.py`.

    python -m tests.full_disk.scenario WHAT INLINE_BYTES FOLDER

WHAT is `bytes` or `inodes`. It ends with 0 if everything that must work did, and says on the way what it saw.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from stores.reserve import RESERVE_FILES
from tenancy import Lifetime, SessionManager, StorageFull
from tenancy.cli import app
from tests.full_disk.mounts import NO_DISK, NoSmallDisk, mount_small_disk

OPTIONS: Final = {"bytes": "size=64m,nr_inodes=20000", "inodes": "size=256m,nr_inodes=260"}
_HOUR: Final = timedelta(hours=1)
_SHORT, _LONG = Lifetime(idle=_HOUR), Lifetime(idle=100 * _HOUR, maximum=200 * _HOUR)
_CONTENT: Final = os.urandom(120_000)
_SMALL: Final = os.urandom(3_000)


class Disk:
    """A small disk, and what somebody else has filled it with."""

    def __init__(self, at: Path, what: str) -> None:
        self.at = at
        self.what = what
        self._others = at / "others"
        self._others.mkdir()

    def fill(self) -> None:
        """Take all that is left, to the last page or the last inode."""
        for number in range(10**6):
            try:
                with (self._others / f"{number}-{os.urandom(4).hex()}").open("xb", buffering=0) as file:
                    while self.what == "bytes":
                        file.write(bytes(4096))
            except OSError:
                if self._is_full():
                    return

    def empty(self) -> None:
        """Somebody makes room."""
        for path in self._others.iterdir():
            path.unlink()

    def _is_full(self) -> bool:
        found = os.statvfs(self.at)
        return (found.f_bavail if self.what == "bytes" else found.f_favail) == 0


class House:
    """A data directory on a small disk, and what must be in it."""

    def __init__(self, disk: Disk, *, inline_bytes: int) -> None:
        self.data = disk.at / "data"
        self.disk = disk
        self._inline_bytes = inline_bytes
        self.contents: dict[tuple[str, str, str], bytes] = {}
        self.offset_us = 0

    @contextmanager
    def manager(self) -> Iterator[SessionManager]:
        """Open it, as a process that has just started."""
        with SessionManager.local(self.data, inline_bytes=self._inline_bytes) as manager:
            manager.clock.offset_us = self.offset_us
            yield manager

    def write(self, manager: SessionManager, tenant: str, name: str, content: bytes, **settings: Any) -> None:
        session = manager.session(tenant=tenant, user="ann", session=name, **settings)
        self.contents[tenant, name, session.write(content)] = content

    def require_all(self, manager: SessionManager) -> None:
        """Everything that was acknowledged is there, and nothing else is charged."""
        for (tenant, name, reference), content in self.contents.items():
            session = manager.session(tenant=tenant, user="ann", session=name)
            assert session.read(reference) == content
        for tenant in ("acme", "globex"):
            sizes = [len(content) for (owner, _, _), content in self.contents.items() if owner == tenant]
            usage = manager.usage(tenant=tenant)
            assert (usage.used_bytes, usage.results) == (sum(sizes), len(sizes))

    def forget(self, tenant: str, *, except_session: str = "") -> None:
        """No longer expect what a tenant had."""
        self.contents = {
            key: value for key, value in self.contents.items() if key[0] != tenant or key[1] == except_session
        }

    def reserve(self) -> int:
        return len(list(self.data.glob("*-reserve*")))


def begin(house: House) -> None:
    """A first start says that the disk is full, and leaves nothing that the next one would stumble over."""
    house.disk.fill()
    for _ in range(2):
        until_refused(lambda: SessionManager.local(house.data).close())
        assert not house.data.exists() or list(house.data.iterdir()) == []
        house.disk.empty()
        house.data.mkdir(mode=0o700, exist_ok=True)
        house.disk.fill()
    house.disk.empty()


def fill_up(house: House) -> None:
    """Live and expiring sessions of two tenants; then write until the disk refuses."""
    with house.manager() as manager:
        for number in range(12):
            house.write(manager, "acme", f"short-{number}", _CONTENT, lifetime=_SHORT)
            house.write(manager, "acme", f"short-{number}", _SMALL)
            house.write(manager, "globex", f"long-{number}", _CONTENT, lifetime=_LONG)
        assert house.reserve() == RESERVE_FILES
        refused = until_refused(lambda: house.write(manager, "globex", "long-0", _CONTENT))
        house.disk.fill()
        until_refused(lambda: house.write(manager, "globex", "long-1", _CONTENT))
        if house.disk.what == "bytes":
            until_refused(lambda: house.write(manager, "globex", "long-1", _SMALL))
        print(f"{len(house.contents)} results; then: {refused}")
        house.require_all(manager)
        # Whatever is due for a longer life because it is read gets it if there is room, and is read in any case.
        manager.clock.advance(_HOUR / 2)
        house.require_all(manager)


def until_refused(write: Callable[[], None]) -> StorageFull:
    """Go on until there is no room. Any other error ends the program."""
    for _ in range(100_000):
        try:
            write()
        except StorageFull as error:
            return error
    raise AssertionError("This disk never fills up.")


def read(house: House) -> None:
    """A process that starts on the full disk reads, lists and counts everything, also from the command line."""
    house.disk.fill()
    with house.manager() as manager:
        house.require_all(manager)
        listed = sum(
            len(list(manager.session(tenant=row.tenant, user="ann", session=row.session).results()))
            for row in manager.sessions()
        )
        assert listed == len(house.contents)
        house.disk.fill()
        refused = until_refused(lambda: house.write(manager, "acme", "short-0", _SMALL))
        print(f"after the start: {refused}")
    house.disk.fill()
    for command in (["usage", "--tenant", "acme"], ["cleanup", "--dry-run"], ["sessions", "list"], ["verify"]):
        assert run(house, *command) == 0, command
    # It finds something to warn of, at most; it does not break down.
    assert run(house, "doctor") in (0, 1)


def delete(house: House) -> None:
    """A result, a session and a user go, each on a disk that has filled up again."""
    with house.manager() as manager:
        for number in range(6):
            house.disk.fill()
            tenant, name, reference = next(key for key in house.contents if key[1] == f"long-{number}")
            manager.session(tenant=tenant, user="ann", session=name).delete(reference)
            del house.contents[tenant, name, reference]
        house.disk.fill()
        receipt = manager.delete_session(tenant="globex", user="ann", session="long-11")
        assert receipt.finished_at is not None
        house.contents = {key: value for key, value in house.contents.items() if key[1] != "long-11"}
        house.require_all(manager)


def clean(house: House) -> None:
    """Cleanup reclaims all that has expired, and erasure a whole tenant."""
    house.disk.fill()
    house.offset_us = 2 * 3600 * 1_000_000
    # Nothing has expired yet by the clock of this command. It has little to do and must be able to say so.
    assert run(house, "cleanup") == 0
    house.forget("acme")
    with house.manager() as manager:
        report = manager.cleanup()
        assert report.complete
        print(f"cleanup: {report.sessions} sessions, {report.results} results")
        assert report.sessions == 12
        house.require_all(manager)
        house.disk.fill()
        assert manager.erase_user(tenant="globex", user="ann").finished_at is not None
        house.forget("globex")
        house.require_all(manager)
        assert manager.verify().ok


def recover(house: House) -> None:
    """Somebody makes room: the reserve comes back by itself, and writes go on."""
    house.disk.empty()
    with house.manager() as manager:
        house.write(manager, "acme", "new", _CONTENT)
        assert house.reserve() == RESERVE_FILES
        house.require_all(manager)
        assert manager.verify().ok
    assert not list(house.data.rglob("trash/*"))


def run(house: House, *command: str) -> int:
    """The exit code of a command line."""
    try:
        app(["--data", str(house.data), *command], prog_name="tenancy")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def go_through(what: str, inline_bytes: int, folder: Path) -> None:
    """All of it, in the order in which it happens."""
    mount_small_disk(folder, options=OPTIONS[what])
    house = House(Disk(folder, what), inline_bytes=inline_bytes)
    for step in (begin, fill_up, read, delete, clean, recover):
        step(house)
        print(f"{step.__name__}: done", flush=True)


if __name__ == "__main__":
    try:
        go_through(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    except NoSmallDisk as error:
        print(error)
        sys.exit(NO_DISK)
