"""What faults are tried on: everything an operator or a user can ask of a data directory."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

# Loaded before anything counts: that Python reads the modules of a migration is nobody's data.
import alembic.autogenerate
import alembic.command
import alembic.config
import alembic.context
import alembic.runtime.environment
import alembic.script.revision

from tenancy.keys.providers import create_key_file
from tenancy.startup import KEY_FILE
from tenancy.upgrade import locked_for_migration, migrations_folder, upgrade
from tests.faults.house import LARGE, WAYS, House, World, filled_with_people
from tests.faults.leftovers import LATER, filled_with_ended, filled_with_leftovers

ANN: Final = {"tenant": "acme", "user": "ann", "session": "chat"}
NEW: Final = {"tenant": "initech", "user": "eve", "session": "new"}

#: A manager was made, a session is open: what is tried is the call and nothing else.
Tried = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """
    One thing to try.

    :param fill: Makes the data directory as it is before.
    :param ready: Opens it, in the process that is to be struck, and returns what is tried.
    :param later: How much later than it was filled all of this happens.
    :param writes: Whose session gets a result of `content` by it.
    :param opens: Which session is there when it has returned.
    :param starts: Whether this is something a program does before anything else, so that what is wrong may be called a
        matter of configuration.
    :param is_everyday: Whether a user asks for it, again and again, rather than an operator or a program that starts.
    :param must_sync: Whether it acknowledges something that has to survive the power going.
    :param repair: What has to be done again before the data directory is as it should be, if it did not return.
    """

    name: str
    fill: Callable[[House], World]
    ready: Callable[[House, World], Tried]
    ways: tuple[str, ...] = tuple(WAYS)
    later: timedelta = timedelta(0)
    writes: Mapping[str, str] | None = None
    content: str = LARGE
    opens: Mapping[str, str] | None = None
    starts: bool = False
    repair: Callable[[House], None] = lambda house: None
    is_everyday: bool = False
    must_sync: bool = False


def _nothing(house: House) -> World:
    return World()


def _folder(house: House) -> World:
    house.data.mkdir(mode=0o700)
    # As `tenancy init` does it: no catalogue is ever without its key.
    create_key_file(house.data / KEY_FILE)
    return World()


def _started(house: House, world: World) -> Tried:
    return lambda: house.open().close()


def _opened(house: House, world: World) -> Tried:
    manager = house.open()
    return lambda: manager.session(**NEW).close()


def _written(house: House, world: World) -> Tried:
    session = house.open().session(**ANN)
    return lambda: session.write(LARGE)


def _filled_with_an_empty_session(house: House) -> World:
    world = filled_with_people(house)
    with closing(house.open()) as manager:
        manager.session(**NEW).close()
    return world


def _written_first(house: House, world: World) -> Tried:
    session = house.open().session(**NEW)
    return lambda: session.write(LARGE)


def _read(house: House, world: World) -> Tried:
    session = house.open().session(**ANN)
    entry = next(entry for entry in world.entries if entry.room == ANN and entry.content == LARGE)
    return lambda: "exact" if session.read(entry.reference) == entry.content else "something else"


def _with_target(*, only_one: bool = False, user: str, session: str | None = None) -> Callable[[House], World]:
    def fill(house: House) -> World:
        world = filled_with_people(house)
        aimed_at = [
            entry
            for entry in world.entries
            if (entry.tenant, entry.user) == ("acme", user) and session in (None, entry.session)
        ]
        for entry in aimed_at[-1:] if only_one else aimed_at:
            world.entries[world.entries.index(entry)] = entry.as_target()
        return world

    return fill


def _deleted(house: House, world: World) -> Tried:
    session = house.open().session(**ANN)
    (entry,) = world.with_fate("target")
    return lambda: session.delete(entry.reference)


def _session_deleted(house: House, world: World) -> Tried:
    manager = house.open()
    return lambda: manager.delete_session(**ANN).level


def _user_erased(house: House, world: World) -> Tried:
    manager = house.open()
    return lambda: manager.erase_user(tenant="acme", user="ann").level


def _cleaned(house: House, world: World) -> Tried:
    manager = house.open(later=LATER)
    return lambda: manager.cleanup().complete


def _repaired(house: House, world: World) -> Tried:
    manager = house.open(later=LATER)
    return lambda: manager.verify(repair=True).ok


def _repair(house: House) -> None:
    with closing(house.open(later=LATER)) as manager:
        if not manager.verify(repair=True).ok:
            raise AssertionError("what was wrong before could not be repaired afterwards")


def _older(house: House) -> World:
    world = filled_with_people(house)
    config = alembic.config.Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with locked_for_migration(house.database_url) as connection:
        config.attributes["connection"] = connection
        alembic.command.downgrade(config, "0001")
    return world


def _upgraded(house: House, world: World) -> Tried:
    return lambda: upgrade(house.database_url)


def _upgrade(house: House) -> None:
    upgrade(house.database_url)


#: Where no result is at stake, it makes no difference which way results take.
_ONE_WAY: Final = ("files",)

OPERATIONS: Final = (
    Operation("first start", _nothing, _started, ways=_ONE_WAY, starts=True),
    Operation("start", filled_with_people, _started, ways=_ONE_WAY, starts=True),
    Operation("open", filled_with_people, _opened, ways=_ONE_WAY, opens=NEW, must_sync=True),
    Operation(
        "first write",
        _filled_with_an_empty_session,
        _written_first,
        writes=NEW,
        opens=NEW,
        is_everyday=True,
        must_sync=True,
    ),
    Operation("write", filled_with_people, _written, writes=ANN, is_everyday=True, must_sync=True),
    Operation("read", filled_with_people, _read, is_everyday=True),
    Operation("delete", _with_target(only_one=True, user="ann"), _deleted, is_everyday=True, must_sync=True),
    Operation("delete session", _with_target(user="ann", session="chat"), _session_deleted, must_sync=True),
    Operation("erase user", _with_target(user="ann"), _user_erased, must_sync=True),
    Operation("cleanup", filled_with_ended, _cleaned, later=LATER),
    Operation("repair", filled_with_leftovers, _repaired, later=LATER, repair=_repair),
    Operation("migrate empty", _folder, _upgraded, ways=_ONE_WAY, starts=True, repair=_upgrade),
    Operation("migrate older", _older, _upgraded, ways=_ONE_WAY, starts=True, repair=_upgrade),
)
