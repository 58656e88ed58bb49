"""`tenancy init`: everything an empty installation needs, once."""

import os
from contextlib import closing, suppress
from pathlib import Path

from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, note
from tenancy.cli.place import MAKE_A_KEY, Place
from tenancy.errors import ConfigurationError, SchemaOutdated


def init(invocation: Invocation) -> None:
    """Create what is missing: key file, schema, directories. May be repeated; overwrites nothing."""
    place = invocation.place()
    created = _init_directory(place) if place.settings is None else _init_settings(place)
    note("Created what was missing." if created else "Everything was there already.")
    # Not the database's URL, which may hold a password.
    where = {
        "database": "postgresql" if place.sqlite_file() is None else "sqlite",
        "store": place.store_url(),
        "keys": place.keys(),
    }
    invocation.output.show(
        {"created": created, **where}, Table.of_fields({"created": ", ".join(created) or "nothing", **where})
    )


def _init_directory(place: Place) -> list[str]:
    parts = {"schema": place.sqlite_file(), "key file": place.key_file(), "store": place.store_directory()}
    missing = [name for name, path in parts.items() if path is not None and not path.exists()]
    place.open(create=True).close()
    return missing


def _init_settings(place: Place) -> list[str]:
    from tenancy.keys.files import remove_leftovers
    from tenancy.keys.locations import require_distinct
    from tenancy.keys.opening import open_other
    from tenancy.keys.providers import create_key_file, open_key_provider
    from tenancy.upgrade import check, upgrade

    key_file = place.key_file()
    created = []
    # Whatever can refuse does so before the first change; the database, which is the likeliest to, changes first.
    if place.lacks_key_variable():
        name = place.keys().removeprefix("env:")
        raise ConfigurationError(
            f"The environment variable {name} should hold the key and is not set; "
            f"make one for a new installation with `{MAKE_A_KEY}`."
        )
    known = _known_providers(place)
    if place.is_keyless() and not known:
        raise ConfigurationError(
            "The setting keys is none:, and a new installation needs a key. Run this with the key first; nothing was "
            "changed."
        )
    if key_file is None or os.path.lexists(key_file):
        open_key_provider(place.keys()).close()
    else:
        _require_makeable(key_file, is_known=bool(known))
    missing = {"key file": key_file}
    require_distinct(place.other_keys(), default=place.keys())
    for name, location in {} if place.is_keyless() else place.other_keys().items():
        missing[f"key file {name}"] = own = place.key_file(name)
        if own is None or os.path.lexists(own):
            open_other(name, location).close()
        else:
            _require_makeable(own, is_known=name in known)
    _require_store(place)
    place.require_roles()
    owner_url, setting = place.owner_url(), place.owner_setting()
    try:
        check(owner_url, setting=setting)
    except SchemaOutdated:
        upgrade(owner_url, setting=setting)
        created.append("schema")
    created += place.prepare_roles()
    for name, path in missing.items():
        if path is None:
            continue
        # Somebody else's `init` may be faster, and theirs is as good.
        with suppress(FileExistsError):
            create_key_file(path)
            created.append(name)
        remove_leftovers(path)
    store = place.store_directory()
    if store is not None and not store.exists():
        created.append("store")
    # Makes the store's directory, and the catalogue remembers the key.
    place.open().close()
    return created


def _require_store(place: Place) -> None:
    """Refuse a directory of results that is unsafe, or that could not be made."""
    from stores.errors import StoreDenied, StoreError
    from stores.location import open_store
    from tenancy.translation import as_tenancy_error

    path = place.store_directory()
    if path is None:
        return
    if not os.path.lexists(path):
        if not _may_write(path.parent):
            raise ConfigurationError(f"store_url: the directory {path} is missing and cannot be made there.")
        return
    try:
        open_store(place.store_url()).close()
    except StoreDenied as error:
        raise ConfigurationError(f"store_url: {error}") from None
    except StoreError as error:
        raise as_tenancy_error(error) from None


def _require_makeable(key_file: Path, *, is_known: bool) -> None:
    if is_known:
        # A new key would open none of what is there, and would hide that the old one is lost.
        raise ConfigurationError(
            f"The key file {key_file} is missing, and the catalogue was made with its key. Restore it; "
            "nothing was changed."
        )
    if not _may_write(key_file.parent):
        raise ConfigurationError(f"The key file {key_file} is missing and cannot be made there.")


def _known_providers(place: Place) -> set[str]:
    """The providers whose keys the catalogue was ever opened with; none if there is no catalogue yet."""
    from stores.errors import StoreError
    from stores.sql import Database
    from tenancy.catalogue import Catalogue
    from tenancy.clock import Clock
    from tenancy.quotas import DEFAULT_LIMITS
    from tenancy.upgrade import check

    # Missing, or of another version; in the latter the keys are there to be asked for all the same.
    with suppress(SchemaOutdated):
        check(place.owner_url(), setting=place.owner_setting())
    with closing(Database(place.owner_url())) as database:
        try:
            identity = Catalogue(database, clock=Clock(), defaults=DEFAULT_LIMITS).identity
            return {key.provider for key in identity.root_keys()}
        except StoreError:
            # It answered a moment ago, so what is missing is the table, or the SQLite file.
            return set()


def _may_write(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
