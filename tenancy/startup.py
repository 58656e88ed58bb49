"""What a manager needs before it can start: a database of this schema, the catalogue's own key, a store."""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from stores import system_errors
from stores.connections import Durability
from stores.database import DatabaseStore
from stores.errors import Conflict, StoreDenied, StoreError
from stores.location import open_store
from stores.roots import sync_names
from stores.sql import Database
from tenancy.backend import Backend
from tenancy.catalogue import Catalogue
from tenancy.catalogue.identity import RootKey
from tenancy.catalogue.row_security import maintenance_problem, runtime_problem, version_problem
from tenancy.choices import Compression
from tenancy.clock import Clock
from tenancy.errors import ConfigurationError
from tenancy.keys.files import remove_leftovers
from tenancy.keys.keyring import Keyring
from tenancy.keys.opening import open_keyring
from tenancy.keys.providers import WrappedKey, create_key_file
from tenancy.known_keys import remember
from tenancy.quotas import Limits
from tenancy.translation import as_tenancy_error, translated
from tenancy.upgrade import require_current, upgrade_if_empty

if TYPE_CHECKING:
    from tenancy.settings import Settings

CATALOGUE_FILE: Final = "catalogue.sqlite3"
KEY_FILE: Final = "keys.json"
RESULTS_FOLDER: Final = "results"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a manager is put together from."""

    database: Database
    store_url: str = field(repr=False)
    keyring: Keyring
    maintenance: Database | None = None


def prepare_local(path: Path, *, durability: Durability) -> Parts:
    """
    Make or open a data directory. See `SessionManager.local`.

    The key file comes before the catalogue, so that no catalogue is ever without its key; a directory that holds a
    catalogue or results but no key file is refused, never given a new key.
    """
    require_durability(durability)
    if not _is_text(os.path.abspath(path)):
        raise ConfigurationError("The name of the data directory is not valid text; give it another name.")
    with _in_our_words():
        return _prepare_local(path, durability=durability)


def _prepare_local(path: Path, *, durability: Durability) -> Parts:
    _make_private(path)
    folder = Path(os.path.realpath(path))
    if durability == "power":
        # No file is safe before the directories that lead to it are. Also for one that was there before: whoever made
        # it may not have come to this line.
        sync_names(folder.parent)
    catalogue, keys, results = folder / CATALOGUE_FILE, folder / KEY_FILE, folder / RESULTS_FOLDER
    # In the reverse order of their making, so that the first start of another process is never half seen.
    has_store, has_catalogue = _is_there(results), catalogue.exists()
    if not keys.exists():
        if has_catalogue or has_store:
            raise ConfigurationError(
                f"The key file {keys} is missing. Put it back: without it nothing in this directory can be read."
            )
        # Two processes may start at once: the one that comes second takes the first one's key.
        with contextlib.suppress(FileExistsError):
            create_key_file(keys)
    remove_leftovers(keys)
    if has_store and not has_catalogue:
        raise ConfigurationError(
            f"The catalogue {catalogue} is missing although it was there before. Restore it before starting."
        )
    # Quoted: a directory may be called "a?b" or "100%".
    url = f"sqlite:///{quote(str(catalogue))}"
    # Opened before there is a catalogue: an unsafe key file is refused with nothing made.
    with _closed_on_failure(open_keyring(f"file:{keys}")) as keyring:
        # Results have a folder only after the catalogue was complete: one without a schema has lost it.
        upgrade_if_empty(url, was_complete=has_store)
        return Parts(Database(url, durability=durability), f"file://{quote(str(results))}", keyring)


def prepare_settings(settings: "Settings") -> Parts:
    """Open what the settings name. See `SessionManager.from_settings`."""
    with _closed_on_failure(open_keyring(settings.keys, settings.other_keys)) as keyring:
        database = _open("database_url", settings.database_url, settings.durability)
        maintenance = None
        if settings.maintenance_url is not None and not database.is_sqlite:
            maintenance = _open("maintenance_url", settings.maintenance_url, settings.durability)
        return Parts(database, settings.store_url, keyring, maintenance)


def assemble(parts: Parts, *, clock: Clock, defaults: Limits, inline_bytes: int, compression: Compression) -> Backend:
    """
    Check that the parts belong together and put them together. If they do not, what is open is closed again.

    :raises ConfigurationError: If the key is another catalogue's, or the store is unsafe or not allowed.
    :raises SchemaOutdated: If the database's schema is not this version's.
    """
    database, maintenance, keyring = parts.database, parts.maintenance, parts.keyring
    try:
        with _in_our_words():
            require_schema(database)
        require_roles(database, maintenance)
        catalogue = across = Catalogue(database, clock=clock, defaults=defaults)
        if maintenance is not None:
            across = Catalogue(maintenance, clock=clock, defaults=defaults, across=True)
        require_key(catalogue, keyring)
        require_same(catalogue, across)
        inline = DatabaseStore(database, overseer=maintenance)
        if parts.store_url == "database:":
            return Backend(catalogue, across, inline, inline, keyring, inline_bytes, compression == "zstd")
        store = open_store(parts.store_url, durability=database.durability)
        return Backend(catalogue, across, store, inline, keyring, inline_bytes, compression == "zstd")
    except BaseException as error:
        keyring.close()
        database.close()
        if maintenance is not None:
            maintenance.close()
        if isinstance(error, StoreDenied):
            raise ConfigurationError(str(error)) from None
        if isinstance(error, StoreError):
            raise as_tenancy_error(error) from None
        if type(error) is ValueError:
            raise ConfigurationError(f"store_url: {error}") from None
        raise


def require_schema(database: Database) -> None:
    """
    Refuse a database whose schema is not this version's.

    :raises SchemaOutdated: Says whether to upgrade the database or the code.
    """
    path = database.sqlite_path
    if path is not None and not path.exists():
        raise ConfigurationError(f"There is no database at {path}. Run `tenancy init` to make one.")
    require_current(database)


def require_roles(database: Database, maintenance: Database | None) -> None:
    """
    Refuse roles that PostgreSQL's row-level security does not hold back, and tables without it. SQLite has no roles.

    :raises ConfigurationError: Says which setting is concerned and what is the matter.
    """
    for problem in [] if database.is_sqlite else _role_problems(database, maintenance):
        raise ConfigurationError(problem)


def role_problems(database_url: str, maintenance_url: str | None) -> list[str]:
    """
    Return what `require_roles` would refuse, all of it.

    :param database_url: PostgreSQL with the current schema.
    """
    with contextlib.ExitStack() as opened, translated():
        database = opened.enter_context(contextlib.closing(_open("database_url", database_url, "power")))
        maintenance = None
        if maintenance_url is not None:
            maintenance = opened.enter_context(contextlib.closing(_open("maintenance_url", maintenance_url, "power")))
        return list(_role_problems(database, maintenance))


def server_problem(database_url: str) -> str | None:
    """Return which known holes the row-level security of a PostgreSQL server has, or `None`."""
    with contextlib.closing(_open("database_url", database_url, "power")) as database, translated():
        return version_problem(database)


def _role_problems(database: Database, maintenance: Database | None) -> Iterator[str]:
    if (problem := runtime_problem(database)) is not None:
        yield f"database_url: {problem}"
    if maintenance is not None and (problem := maintenance_problem(maintenance)) is not None:
        yield f"maintenance_url: {problem}"


def require_key(catalogue: Catalogue, keyring: Keyring) -> None:
    """
    Refuse a key that is not the one this catalogue was made with. A new catalogue takes the key it is opened with.

    A key that is away now is refused or not when it is needed: what only removes needs none.

    :raises ConfigurationError: If it is another's, or the catalogue is new and there is none.
    :raises KeyUnavailable: If the catalogue is new and the key is away.
    :raises KeyDestroyed: If the catalogue is new and the key is gone for good.
    """
    identity = catalogue.identity
    catalogue_id = identity.catalogue_id()
    known = identity.root_keys()
    if not known:
        if keyring.is_keyless:
            raise ConfigurationError(
                "The setting keys is none:, and this catalogue has never been opened with a key; do that first."
            )
        check = keyring.check_value(catalogue_id=catalogue_id)
        with contextlib.suppress(Conflict):
            identity.add_root_key(RootKey(provider=keyring.provider_name, check=check))
        known = identity.root_keys()

    def read_known() -> list[tuple[str, WrappedKey]]:
        return [(key.provider, key.check) for key in identity.root_keys()]

    keyring.hold_to(read_known, catalogue_id=catalogue_id)
    if not keyring.is_keyless and keyring.provider_name not in {key.provider for key in known}:
        # A successor. What new tenants hang on is known from here on.
        remember(identity, keyring, keyring.provider_name)


def require_same(catalogue: Catalogue, across: Catalogue) -> None:
    """
    Refuse a maintenance role of another database: cleanup would be at work there and find nothing to do here.

    :raises ConfigurationError: If the two are not one catalogue.
    """
    if across is not catalogue and across.identity.known_id() != catalogue.identity.catalogue_id():
        raise ConfigurationError("maintenance_url: It names another database than database_url, or another schema.")


def _open(setting: str, url: str, durability: Durability) -> Database:
    try:
        return Database(url, durability=durability)
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {error}") from None


def require_durability(durability: str) -> None:
    """Refuse anything but `"power"` and `"process"`."""
    if durability not in ("power", "process"):
        raise ConfigurationError('durability must be "power" or "process".')


@contextlib.contextmanager
def _closed_on_failure(keyring: Keyring) -> Iterator[Keyring]:
    try:
        yield keyring
    except BaseException:
        keyring.close()
        raise


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    # A look at a path may fail for reasons that say nothing about it: too many open files, a disk that does not answer.
    try:
        with system_errors.translated():
            yield
    except StoreDenied as error:
        raise ConfigurationError(str(error)) from None
    except StoreError as error:
        raise as_tenancy_error(error) from None


def _is_there(path: Path) -> bool:
    # `os.path.lexists` would take every error for a no.
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _make_private(path: Path) -> None:
    try:
        # The parent is not made: a mistyped path should not grow a tree.
        path.mkdir(mode=0o700)
        path.chmod(0o700)
    except FileExistsError:
        # Whether it may be used is decided below.
        found = path.lstat()
    except OSError as error:
        if system_errors.is_full(error):
            raise
        raise ConfigurationError(
            f"The data directory {path} cannot be made; check that its parent exists and is writable."
        ) from None
    else:
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"The data directory {path} is not a directory of its own; links are not followed.")
    if found.st_uid != os.geteuid():
        raise ConfigurationError(f"The data directory {path} belongs to another user; run as that user.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(f"The data directory {path} is open to other users; run: chmod 700 {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigurationError(f"The data directory {path} is not writable.")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in path
