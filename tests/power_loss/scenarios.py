"""What is recorded: each operation on a directory that was made ready for it, and what it promises on its way."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final, NoReturn
from unittest.mock import patch

from stores.connections import Durability
from tenancy import Lifetime, Session, SessionManager
from tenancy.catalogue.results import ResultTable
from tenancy.cleanup import Cleaner
from tests.power_loss.promises import Key, Promises, Who
from tests.power_loss.recorder import Tell
from tests.power_loss.seeing import digest_of

DATA: Final = "data"
ANN: Final[Who] = ("acme", "ann", "chat")
ANN_TOO: Final[Who] = ("acme", "ann", "notes")
BOB: Final[Who] = ("acme", "bob", "chat")
EVE: Final[Who] = ("globex", "eve", "chat")

INLINE: Final = "a small result"
#: Nothing that could be compressed to less than what still goes inline.
FILE: Final = Random(1).randbytes(40_000)

_EXPIRY: Final = timedelta(days=2)
#: After so long nobody is at anything any more that has not gone on.
_LEASE: Final = timedelta(minutes=3)
#: Outlives what expires in these tests.
_LONG: Final = Lifetime(idle=timedelta(days=20), maximum=timedelta(days=30))
_LONG_WITH_SHORT_RESULTS: Final = Lifetime(idle=_LONG.idle, maximum=_LONG.maximum, result=timedelta(days=1))


class Teller:
    """Says in a recording what the program is at and what it has promised."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def started(self) -> None:
        """The first start has finished."""
        self._tell({"mark": "started"})

    def write(self, session: Session, content: str | bytes) -> Key:
        """Store a result: before, it is coming; afterwards it is kept."""
        who, digest = _who(session), digest_of(content)
        written = {"who": who, "digest": digest, "in_file": int(content is FILE)}
        self._tell({"mark": "writes", **written})
        reference = session.write(content)
        self._tell({"mark": "wrote", "reference": reference, **written})
        return (*who, reference)

    @contextmanager
    def deleting(self, keys: Iterable[Key]) -> Iterator[None]:
        """Something is done that makes these unreadable, all in one step; afterwards they are gone."""
        self._tell({"mark": "deletes", "keys": list(keys)})
        yield
        self._tell({"mark": "deleted"})

    def expire(self, manager: SessionManager, keys: Iterable[Key], *, after: timedelta) -> None:
        """Time goes on, and these have expired."""
        manager.clock.advance(after)
        self._tell({"mark": "expired", "keys": list(keys), "offset_us": manager.clock.offset_us})


@dataclass(frozen=True, slots=True)
class Stage:
    """
    Where an operation is performed.

    :param promises: What held before.
    """

    folder: Path
    durability: Durability
    teller: Teller
    promises: Promises

    def open(self) -> SessionManager:
        """Start a manager."""
        return SessionManager.local(self.folder / DATA, durability=self.durability)

    def keys(self, *whos: Who) -> list[Key]:
        """The results of these sessions."""
        return [key for key in self.promises.kept if key[:3] in whos]


@dataclass(frozen=True, slots=True)
class Scenario:
    """
    An operation.

    :param prepare: Makes the directory ready and returns what holds then. It is not recorded.
    :param work: What a manager then does. It is recorded from the start of that manager to its end.
    """

    name: str
    prepare: Callable[[Path], Promises]
    work: Callable[[SessionManager, Stage], None]

    def perform(self, stage: Stage) -> None:
        """Do what is to be recorded."""
        with stage.open() as manager:
            stage.teller.started()
            self.work(manager, stage)


def _empty(folder: Path) -> Promises:
    return Promises(started=False)


def _started(folder: Path) -> Promises:
    SessionManager.local(folder / DATA, durability="process").close()
    return Promises()


def _with_an_empty_session(folder: Path) -> Promises:
    with SessionManager.local(folder / DATA, durability="process") as manager:
        _session(manager, ANN)
    return Promises()


def _furnished(folder: Path) -> Promises:
    """Two sessions of one user and one of another, each with a small result and a file."""
    return _with_sessions(folder, {ANN: _LONG, ANN_TOO: _LONG, BOB: _LONG})


def _with_expiring_sessions(folder: Path) -> Promises:
    return _with_sessions(folder, {ANN: None, ANN_TOO: None, BOB: _LONG})


def _with_expiring_results(folder: Path) -> Promises:
    return _with_sessions(folder, {ANN: _LONG_WITH_SHORT_RESULTS, BOB: _LONG})


def _interrupted(folder: Path) -> Promises:
    """A write that stopped before its commit, and a delete and an erasure before anything was removed."""
    promises = _furnished(folder)
    deleted = next(key for key, digest in promises.kept.items() if key[:3] == ANN and digest == digest_of(FILE))
    with SessionManager.local(folder / DATA, durability="process") as manager:
        session = _session(manager, ANN)
        for owner, name, work in (
            (ResultTable, "commit", lambda: session.write(FILE)),
            (Cleaner, "finish", lambda: session.delete(deleted[3])),
            (Cleaner, "carry_out", lambda: manager.erase_user(tenant="acme", user="bob")),
        ):
            # Nor does it clear up behind itself.
            with suppress(_Stopped), patch.object(owner, name, _stop), patch.object(ResultTable, "abandon", _stop):
                work()
    gone = {key for key in promises.kept if key == deleted or key[:3] == BOB}
    kept = {key: digest for key, digest in promises.kept.items() if key not in gone}
    return Promises(kept=kept, gone=frozenset(gone))


class _Stopped(BaseException):
    """The process has ended here."""


def _stop(*_: object) -> NoReturn:
    raise _Stopped


def _with_sessions(folder: Path, lifetimes: dict[Who, Lifetime | None]) -> Promises:
    kept = {}
    with SessionManager.local(folder / DATA, durability="process") as manager:
        for who, lifetime in lifetimes.items():
            session = _session(manager, who, lifetime)
            for content in (INLINE, FILE):
                kept[(*who, session.write(content))] = digest_of(content)
    return Promises(kept=kept)


def _session(manager: SessionManager, who: Who, lifetime: Lifetime | None = _LONG) -> Session:
    tenant, user, session = who
    return manager.session(tenant=tenant, user=user, session=session, lifetime=lifetime)


def _who(session: Session) -> Who:
    scope = session.scope
    return scope.tenant, scope.user, scope.session


def _open(manager: SessionManager, stage: Stage) -> None:
    _session(manager, EVE)


def _write(content: str | bytes) -> Callable[[SessionManager, Stage], None]:
    def work(manager: SessionManager, stage: Stage) -> None:
        stage.teller.write(_session(manager, ANN), content)

    return work


def _write_beside_the_first(manager: SessionManager, stage: Stage) -> None:
    # The first one has made the write-ahead log and written nothing to it yet.
    with stage.open() as second:
        for content in (INLINE, FILE):
            stage.teller.write(_session(second, ANN), content)


def _delete(content: str | bytes) -> Callable[[SessionManager, Stage], None]:
    def work(manager: SessionManager, stage: Stage) -> None:
        (key,) = [key for key in stage.keys(ANN) if stage.promises.kept[key] == digest_of(content)]
        session = _session(manager, ANN)
        with stage.teller.deleting([key]):
            session.delete(key[3])

    return work


def _delete_session(manager: SessionManager, stage: Stage) -> None:
    with stage.teller.deleting(stage.keys(ANN)):
        manager.delete_session(tenant="acme", user="ann", session="chat")


def _erase_user(manager: SessionManager, stage: Stage) -> None:
    with stage.teller.deleting(stage.keys(ANN, ANN_TOO)):
        manager.erase_user(tenant="acme", user="ann")


def _cleanup(*expiring: Who, after: timedelta = _EXPIRY) -> Callable[[SessionManager, Stage], None]:
    def work(manager: SessionManager, stage: Stage) -> None:
        stage.teller.expire(manager, stage.keys(*expiring), after=after)
        manager.cleanup()

    return work


SCENARIOS: Final = (
    Scenario("first start and write", _empty, _write(INLINE)),
    Scenario("open session", _started, _open),
    Scenario("write inline", _furnished, _write(INLINE)),
    Scenario("write file", _furnished, _write(FILE)),
    Scenario("write file, new room", _with_an_empty_session, _write(FILE)),
    Scenario("write beside a second process", _furnished, _write_beside_the_first),
    Scenario("delete inline", _furnished, _delete(INLINE)),
    Scenario("delete file", _furnished, _delete(FILE)),
    Scenario("delete session", _furnished, _delete_session),
    Scenario("cleanup of sessions", _with_expiring_sessions, _cleanup(ANN, ANN_TOO)),
    Scenario("cleanup of results", _with_expiring_results, _cleanup(ANN)),
    Scenario("cleanup of leftovers", _interrupted, _cleanup(after=_LEASE)),
    Scenario("erase user", _furnished, _erase_user),
)
