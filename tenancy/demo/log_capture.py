"""What is logged while the demo runs, kept so that it can be searched like the disk."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOGGERS: Final = ("tenancy", "stores", "haystack")


class LogCapture(logging.Handler):
    """Keeps every record with all its fields. The demo provokes refusals, and their events belong here."""

    def __init__(self) -> None:
        """Make a handler that takes every level a logger lets through."""
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """
        Keep a record.

        :param record: Its message and whatever fields were attached to it.
        """
        self._lines.append(f"{record.getMessage()} {record.__dict__}")

    @property
    def text(self) -> bytes:
        """Everything so far."""
        return "\n".join(self._lines).encode("utf-8", "backslashreplace")

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self._lines)


@contextmanager
def captured_log() -> Iterator[LogCapture]:
    """Capture what this library and Haystack log inside the block. Handlers of the application stay in place."""
    capture = LogCapture()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addHandler(capture)
    try:
        yield capture
    finally:
        for logger in loggers:
            logger.removeHandler(capture)
