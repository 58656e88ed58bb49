"""What is attacked: a manager, the store below it, and Haystack's own store. Operations on each, for `hammering`."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from haystack.hooks.tool_result_offloading import FileSystemToolResultStore

from stores.filesystem import FilesystemStore
from stores.names import mint_name
from tenancy import Session, SessionManager
from tenancy.startup import RESULTS_FOLDER
from tests.attacks.hammering import DONE, Operation

#: Fewer than there are rooms, so that most calls find their way from the root anew.
_OPEN_DIRECTORIES: Final = 2
#: A page of the last one is read as a range, the others whole.
_SIZES: Final = (100, 500, 2_000, 90_000)
#: Where a file is: the two directories above it, and its name.
Place = tuple[str, str, str]


@contextmanager
def opened_manager(data: Path) -> Iterator[SessionManager]:
    """A manager with all results in files and hardly a directory kept open."""
    with SessionManager.local(data, inline_bytes=0, durability="process") as manager:
        manager._backend.store.close()
        manager._backend.store = opened_store(data)
        yield manager


def opened_store(data: Path) -> FilesystemStore:
    """The store below that manager, opened once more."""
    return FilesystemStore(data / RESULTS_FOLDER, durability="process", open_directories=_OPEN_DIRECTORIES)


def fill_manager(data: Path) -> None:
    """Write the results that stay for the whole attack."""
    with opened_manager(data) as manager:
        for session in lasting_sessions(manager):
            for size in _SIZES:
                session.write(content_of(session, size), name=str(size))


def lasting_sessions(manager: SessionManager) -> list[Session]:
    """Open the sessions whose results stay."""
    return [
        manager.session(tenant=tenant, user=user, session=name)
        for tenant in ("acme", "globex")
        for user in ("ann", "bob")
        for name in ("one", "two")
    ]


def content_of(session: Session, size: int) -> str:
    """Return what such a result holds."""
    line = "/".join(map(str, (session.scope.tenant, session.scope.user, session.scope.session))) + "\n"
    return (line * (size // len(line) + 1))[:size]


class ManagerUser:
    """
    Does everything that a manager offers.

    :param number: Tells this user from the others of the same manager.
    """

    def __init__(self, manager: SessionManager, number: int) -> None:
        self._manager = manager
        self._chance = random.Random(number)
        self._name = f"passing {number}"
        self._written: list[str] = []
        self._lasting = [
            (session, result.reference, content_of(session, int(result.name)))
            for session in lasting_sessions(manager)
            for result in session.results()
        ]
        self.operations: dict[Operation, int] = {
            self.read: 200,
            self.page: 60,
            self.listing: 10,
            self.write: 20,
            self.delete: 10,
            self.delete_session: 2,
            # These look at everything there is.
            self.cleanup: 1,
            self.verify: 1,
        }

    def read(self) -> tuple[object, object]:
        session, reference, content = self._chance.choice(self._lasting)
        return session.read(reference), content

    def page(self) -> tuple[object, object]:
        session, reference, content = self._chance.choice(self._lasting)
        offset = self._chance.randrange(len(content))
        return session.read_page(reference, offset=offset, max_chars=100).text, content[offset : offset + 100]

    def listing(self) -> tuple[object, object]:
        session, _, _ = self._chance.choice(self._lasting)
        return {int(result.name) for result in session.results()}, set(_SIZES)

    def write(self) -> tuple[object, object]:
        self._written.append(self._passing().write("of no importance"))
        return DONE

    def delete(self) -> tuple[object, object]:
        if not self._written:
            return self.write()
        self._passing().delete(self._written.pop())
        return DONE

    def delete_session(self) -> tuple[object, object]:
        self._written.clear()
        self._manager.delete_session(tenant="acme", user="carl", session=self._name)
        return DONE

    def cleanup(self) -> tuple[object, object]:
        self._manager.cleanup(max_seconds=0.05)
        return DONE

    def verify(self) -> tuple[object, object]:
        self._manager.verify()
        return DONE

    def _passing(self) -> Session:
        return self._manager.session(tenant="acme", user="carl", session=self._name)


class StoreUser:
    """
    Does everything that a store offers, on the files of a manager and in a room of its own.

    :param files: What is in the files that stay.
    """

    def __init__(self, store: FilesystemStore, files: dict[Place, bytes], number: int) -> None:
        self._store = store
        self._chance = random.Random(number)
        self._files = list(files.items())
        self._rooms: dict[tuple[str, str], set[tuple[str, int]]] = {}
        for (outer, inner, name), data in self._files:
            self._rooms.setdefault((outer, inner), set()).add((name, len(data)))
        self._own = store.namespace("o" * 32, mint_name())
        self._put: list[str] = []
        self.operations: dict[Operation, int] = {
            self.get: 500,
            self.get_range: 100,
            self.listing: 20,
            self.put: 20,
            self.delete: 15,
            self.destroy: 5,
            self.sweep: 2,
            # This looks at everything there is.
            self.rooms: 1,
        }

    def get(self) -> tuple[object, object]:
        (outer, inner, name), data = self._chance.choice(self._files)
        return self._store.namespace(outer, inner).get(name, size_bytes=len(data)), data

    def get_range(self) -> tuple[object, object]:
        (outer, inner, name), data = self._chance.choice(self._files)
        start = self._chance.randrange(len(data))
        part = data[start : start + 100]
        room = self._store.namespace(outer, inner)
        return room.get_range(name, start=start, length=len(part), size_bytes=len(data)), part

    def listing(self) -> tuple[object, object]:
        room, blobs = self._chance.choice(list(self._rooms.items()))
        # What is a link at this moment is not listed.
        return {(blob.name, blob.size_bytes) for blob in self._store.namespace(*room).list()} - blobs, set()

    def rooms(self) -> tuple[object, object]:
        lasting = {inner for _, inner in self._rooms}
        # Rooms come and go, but none of these ever stands in another place.
        return {room for room in self._store.namespaces() if room[1] in lasting} - self._rooms.keys(), set()

    def put(self) -> tuple[object, object]:
        name = mint_name()
        self._own.put(name, b"of no importance")
        self._put.append(name)
        return self._own.get(name, size_bytes=16), b"of no importance"

    def delete(self) -> tuple[object, object]:
        if not self._put:
            return self.put()
        self._own.delete(self._put.pop())
        return DONE

    def destroy(self) -> tuple[object, object]:
        self._put.clear()
        self._own.destroy()
        return DONE

    def sweep(self) -> tuple[object, object]:
        self._store.sweep()
        return DONE


def fill_haystack(store: FileSystemToolResultStore) -> dict[str, str]:
    """Write results that stay, in directories as deep as ours, and return them by their references."""
    contents = {
        f"{tenant}/{session}/{size}": f"{tenant} {session}\n" * (size // 10)
        for tenant in ("acme", "globex")
        for session in ("one", "two", "three", "four")
        for size in _SIZES
    }
    return {store.write(key=key, content=content): content for key, content in contents.items()}


class HaystackUser:
    """
    Does what Haystack's store offers, which is to read and to write.

    :param results: What stays, by its references.
    """

    def __init__(self, store: FileSystemToolResultStore, results: dict[str, str], number: int) -> None:
        self._store = store
        self._chance = random.Random(number)
        self._results = list(results.items())
        self._number = number
        self.operations: dict[Operation, int] = {self.read: 100, self.write: 10}

    def read(self) -> tuple[object, object]:
        reference, content = self._chance.choice(self._results)
        return self._store.read(reference), content

    def write(self) -> tuple[object, object]:
        # A few names again and again, as steps and tools give them.
        key = f"acme/passing/{self._number}_{self._chance.randrange(20)}"
        self._store.write(key=key, content="of no importance")
        return DONE
