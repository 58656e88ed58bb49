"""
Round trips to PostgreSQL: how often an operation waits for the server.

Counted between the two, on the server's socket, by what the server says and not by who spoke when: the parts of what a
driver sends together may be answered while it is still sending.
"""

import selectors
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.engine import make_url

from benchmarks.place import started_place
from benchmarks.speed.counted import COUNTED, WARM_UPS, counted_texts, operations
from benchmarks.speed.rows import Row
from tenancy import SessionManager

#: What libpq calls the socket in the folder that it is told.
_SOCKET: Final = ".s.PGSQL.5432"
_HEAD_BYTES: Final = 5
#: What each takes now. Whoever makes one less lowers its limit.
_LIMITS: Final = {
    "write 4 KB": 2,
    "write 64 KB": 2,
    "write 1 MB": 3,
    "read 4 KB": 1,
    "read 64 KB": 1,
    "4 KB page of 1 MB": 2,
    "open an existing session": 1,
    "open a new session": 2,
}


def trip_rows(_: int = 0) -> Iterator[Row]:
    """Count the round trips of each operation, the most of a few."""
    with started_place() as place, _counting(make_url(place.database_url).query["host"]) as (folder, counter):
        url = make_url(place.database_url).update_query_dict({"host": folder})
        there = replace(place, database_url=url.render_as_string(hide_password=False))
        with SessionManager.from_settings(there.settings()) as manager:
            calls = operations(manager, counted_texts())
            for operation, call in calls.items():
                trips = []
                # Psycopg prepares what it has sent five times, which takes one more.
                for number in range(WARM_UPS + 2 * COUNTED):
                    before = counter.trips
                    call(number)
                    trips.append(counter.trips - before)
                yield Row(operation, "PostgreSQL round trips", _LIMITS[operation], figure=max(trips[-COUNTED:]))


@dataclass(slots=True)
class _Counter:
    """How often the server said that it is ready for more, which it says once after whatever was sent together."""

    trips: int = 0


@contextmanager
def _counting(host: object) -> Iterator[tuple[str, _Counter]]:
    """
    Stand between clients and a server on a Unix socket.

    :returns: The folder to connect to, and what counts.
    """
    counter = _Counter()
    with tempfile.TemporaryDirectory(prefix="tenancy-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{folder}/{_SOCKET}")
        door.listen()

        def welcome() -> None:
            with suppress(OSError):
                while True:
                    client, _ = door.accept()
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(f"{host}/{_SOCKET}")
                    threading.Thread(target=_pass_on, args=(client, server, counter), daemon=True).start()

        threading.Thread(target=welcome, daemon=True).start()
        try:
            yield folder, counter
        finally:
            # Only this wakes the one who waits at the door.
            door.shutdown(socket.SHUT_RDWR)


def _pass_on(client: socket.socket, server: socket.socket, counter: _Counter) -> None:
    answers = Answers()
    with client, server, selectors.DefaultSelector() as selector, suppress(OSError):
        selector.register(client, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, client)
        while True:
            for key, _ in selector.select():
                source = client if key.fileobj is client else server
                data = source.recv(2**18)
                if not data:
                    return
                if source is server:
                    # Before it is passed on: whoever hears it may look at the counter at once.
                    counter.trips += answers.ready(data)
                key.data.sendall(data)


class Answers:
    """
    What a server says, cut anywhere: messages of a letter, four bytes of length, and so much more.

    https://www.postgresql.org/docs/current/protocol-message-formats.html
    """

    def __init__(self) -> None:
        self._head = b""
        self._to_skip = 0

    def ready(self, data: bytes) -> int:
        """Return how many `ReadyForQuery` begin here."""
        found = at = 0
        while at < len(data):
            if self._to_skip:
                step = min(self._to_skip, len(data) - at)
                self._to_skip -= step
                at += step
                continue
            part = data[at : at + _HEAD_BYTES - len(self._head)]
            self._head += part
            at += len(part)
            if len(self._head) == _HEAD_BYTES:
                found += self._head[:1] == b"Z"
                # The length counts itself.
                self._to_skip = int.from_bytes(self._head[1:], "big") - 4
                self._head = b""
        return found
