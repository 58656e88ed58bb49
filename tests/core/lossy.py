"""A way to a server that can vanish as a network does: nothing comes through any more, and nobody says so."""

import ctypes
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

#: Linux, `asm-generic/socket.h`; a classic BPF program (`linux/filter.h`) of one instruction: "return 0", drop it.
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_DROP_EVERYTHING: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
_PIECE: Final = 65_536


class LossyWay:
    """
    Forwards connections to a socket in the file system.

    While it is `vanished`, this machine's end of each connection drops what comes, acknowledgements included: to who is
    connected, the other side is switched off.

    :param target: PostgreSQL's socket.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        port: int = self._listener.getsockname()[1]
        return port

    def vanish(self) -> None:
        """Let nothing through from now on, not even a new connection."""
        instructions = ctypes.create_string_buffer(_DROP_EVERYTHING, len(_DROP_EVERYTHING))
        program = struct.pack("HP", 1, ctypes.addressof(instructions))
        for end in (self._listener, *self._ends):
            with suppress(OSError):  # it has been closed
                end.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def come_back(self) -> None:
        """Take new connections again."""
        self._listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._target))
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._forward, args=(source, sink), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
