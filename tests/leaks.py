"""
Everything by which a secret could get out of this library without anybody asking for it, and a search of it.

What is emitted: records of every logger, errors with all that hangs on them, representations, span tags. Content that
a caller asked for is not emitted, and neither is what Haystack or an application prints of its own.
"""

import base64
import gc
import logging
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from sqlalchemy.sql.expression import ClauseElement

import stores
import tenancy
from tenancy import KeyUnavailable
from tenancy.keys.material import SecretKey
from tenancy.references import Reference

#: Part of every identifier, content, name and password of these tests, and of nothing else.
CANARY: Final = "canary"
TENANT: Final = "canary-tenant"
USER: Final = "canary-user"
SESSION: Final = "canary-session"
WHO: Final = {"tenant": TENANT, "user": USER, "session": SESSION}
CONTENT: Final = "canary content, " * 5000
#: As a hook's key: step, tool, call id and a suffix. Its hint is the first letters of the tool's name.
NAME: Final = "0_canary_tool_canary_call_id.canary"
TOOL: Final = "canary_tool"
MEDIA_TYPE: Final = "text/canary"
#: In the URL of the database.
PASSWORD: Final = "canary-password"


_OURS: Final = ("tenancy", "stores")
_FOLDERS: Final = tuple(str(Path(module.__file__ or "").parent) for module in (tenancy, stores))


class Log(logging.Handler):
    """Every record of every logger, with its message, its fields and its exception."""

    def __init__(self) -> None:
        super().__init__(level=logging.NOTSET)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def events(self) -> list[str]:
        """The names of our events, in order."""
        return [record.event for record in self.records if hasattr(record, "event")]

    def texts(self, *, but_of: tuple[str, ...] = ()) -> list[str]:
        """
        Everything that was logged.

        :param but_of: Loggers that are somebody else's and may say what they like.
        """
        return [_logged(record) for record in self.records if not record.name.startswith(but_of or ("\0",))]


@contextmanager
def everything_logged() -> Iterator[Log]:
    """Have all loggers there are log from DEBUG up."""
    log = Log()
    root = logging.getLogger()
    loggers = [root, *(one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger))]
    before = [(one, one.level, one.disabled) for one in loggers]
    for one in loggers:
        one.setLevel(logging.DEBUG)
        one.disabled = False
    root.addHandler(log)
    try:
        yield log
    finally:
        root.removeHandler(log)
        for one, level, disabled in before:
            one.setLevel(level)
            one.disabled = disabled


def _logged(record: logging.LogRecord) -> str:
    trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
    return f"{record.getMessage()} {vars(record)} {trace}"


def shown_by_error(error: BaseException) -> list[str]:
    """What an error says in its texts and attributes, and what all errors say that it hangs on, hidden ones too."""
    shown = []
    for one in _chain(error):
        shown += [str(one), repr(one), repr(one.args), repr(vars(one)), repr(getattr(one, "__notes__", []))]
    return shown


def objects_behind(error: BaseException) -> list[object]:
    """The objects of ours that the frames of its tracebacks hold, which printed variables show."""
    return [value for one in _chain(error) for value in _locals_of_ours(one.__traceback__)]


def locals_shown_by(error: BaseException) -> str:
    """A traceback as it is printed with the variables of our frames. These hold what the callers passed."""
    shown = ""
    for one in _chain(error):
        printed = traceback.TracebackException.from_exception(one, capture_locals=True)
        printed.stack[:] = [frame for frame in printed.stack if frame.filename.startswith(_FOLDERS)]
        shown += "".join(printed.format(chain=False))
    return shown


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]


def _locals_of_ours(trace: TracebackType | None) -> Iterator[object]:
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
            yield from _ours_in(trace.tb_frame.f_locals.values())
        trace = trace.tb_next


def _ours_in(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if is_ours(value):
            yield value
        elif isinstance(value, Mapping):
            yield from _ours_in([*value.keys(), *value.values()])
        elif isinstance(value, list | tuple | set | frozenset):
            yield from _ours_in(value)


def is_ours(value: object) -> bool:
    """Whether an object's class is one of this library's. A piece of SQL is left out: it is text without values."""
    home = getattr(type(value), "__module__", "")
    return isinstance(home, str) and home.partition(".")[0] in _OURS and not isinstance(value, ClauseElement)


def _texts_of(value: object) -> Iterator[str]:
    yield repr(value)
    # To put a reference together is what the `str` of one is for.
    if not isinstance(value, Reference):
        yield str(value)


def living_objects() -> list[object]:
    """Every object of this library's classes that there is in this process, whoever may have forgotten it."""
    return [one for one in gc.get_objects() if is_ours(one)]


def keys_in_memory(living: Iterable[object] | None = None) -> list[bytes]:
    """
    Every key that this process holds in the clear.

    :param living: What `living_objects` returned, where somebody has looked already.
    """
    found = []
    for one in living_objects() if living is None else living:
        if isinstance(one, SecretKey):
            with suppress(KeyUnavailable), one.exposed() as view:
                found.append(bytes(view))
    return sorted(set(found))


def key_forms(keys: Iterable[bytes]) -> list[str]:
    """The ways in which a key may stand in a text."""
    forms: list[str] = []
    for key in keys:
        # Without the last character: what base64 says of the last bits depends on what follows.
        encoded = base64.b64encode(key).decode().rstrip("=")[:-1]
        forms += [repr(key)[2:-1], key.hex(), key.hex().upper(), str(list(key))[1:-1], key.decode("latin-1")]
        forms += [encoded, encoded.replace("+", "-").replace("/", "_")]
    return forms


def leaks_in(texts: Iterable[str], secrets: Iterable[str]) -> list[tuple[str, str]]:
    """
    Search texts.

    :returns: Each secret that was found, with its surroundings.
    """
    wanted = [secret for secret in secrets if secret]
    found: list[tuple[str, str]] = []
    for text in texts:
        for secret in wanted:
            at = text.lower().find(secret.lower())
            if at >= 0:
                found.append((secret, text[max(0, at - 150) : at + len(secret) + 150]))
    return found


def shown_by(values: Iterable[object]) -> list[str]:
    """What objects show of themselves."""
    return [text for value in values for text in _texts_of(value)]
