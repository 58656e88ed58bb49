"""Which installation a command works on: a data directory, or one that is configured."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, unquote

from tenancy.cli.exits import ExitCode, Refusal
from tenancy.errors import ConfigurationError
from tenancy.quotas import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from tenancy import SessionManager
    from tenancy.settings import Settings

#: Prints a key as an environment variable holds it.
MAKE_A_KEY: Final = "openssl rand -base64 32"
_PREFIX = "HAYSTACK_TENANCY_"
_NOTHING = (
    "Nothing is configured: pass --data DIR or --config FILE, or set HAYSTACK_TENANCY_DATA or HAYSTACK_TENANCY_CONFIG."
)


@dataclass(frozen=True, slots=True)
class Place:
    """
    A data directory as `SessionManager.local` knows it, or settings. Exactly one of the two.

    :param data: The directory; `None` when `settings` are given.
    :param settings: The settings; `None` when `data` is given.
    """

    data: Path | None
    settings: "Settings | None"

    @classmethod
    def find(cls, *, data: Path | None, config: Path | None, environment: Mapping[str, str] = os.environ) -> Self:
        """
        Decide between the options of the command line and the environment. An option beats any variable.

        :raises Refusal: If both options are given, or nothing is configured.
        :raises ConfigurationError: If the settings are not usable.
        """
        if data is not None and config is not None:
            raise Refusal("Pass either --data or --config, not both.", code=ExitCode.USAGE)
        if data is None and config is None and environment.get(f"{_PREFIX}DATA"):
            data = Path(environment[f"{_PREFIX}DATA"])
        if data is not None:
            return cls(data=data, settings=None)
        if config is None and not any(name.startswith(_PREFIX) and value for name, value in environment.items()):
            raise Refusal(_NOTHING, code=ExitCode.USAGE)
        from tenancy.settings import Settings

        return cls(data=None, settings=Settings.load(config))

    def require_made(self) -> None:
        """
        Refuse a data directory in which nothing was ever made: a mistyped name must not become an installation.

        Settings that name nothing are refused by what is opened with them.

        :raises Refusal: Names the directory and says to run `tenancy init`.
        """
        path = self.sqlite_file()
        if self.data is None or path is None:
            return
        try:
            path.stat()
        except PermissionError:
            raise Refusal(
                f"The data directory {self.data} cannot be entered by this user.", code=ExitCode.USAGE
            ) from None
        except OSError:
            what = "has no catalogue" if self.data.is_dir() else "is not there, or is not a directory"
            raise Refusal(
                f"The data directory {self.data} {what}; correct the name, or run `tenancy init` to make one.",
                code=ExitCode.USAGE,
            ) from None

    def database_url(self) -> str:
        """Where the catalogue is."""
        if self.settings is not None:
            return self.settings.database_url
        from tenancy.startup import CATALOGUE_FILE

        return f"sqlite:///{quote(str(self._directory() / CATALOGUE_FILE))}"

    def owner_url(self) -> str:
        """
        Where the catalogue is, as the role that owns its tables.

        :raises ConfigurationError: If PostgreSQL is configured without such a role.
        """
        if self.sqlite_file() is not None:
            return self.database_url()
        owner_url = None if self.settings is None else self.settings.owner_url
        if owner_url is None:
            raise ConfigurationError(
                "owner_url is missing: on PostgreSQL `tenancy init` and `tenancy db upgrade` work as the owner of the "
                f"tables, whom no tenant's request may ever be served as (environment: {_PREFIX}OWNER_URL)."
            )
        return owner_url

    def maintenance_url(self) -> str | None:
        """Where the catalogue is, as the role that works on all tenants, if there is one."""
        return None if self.settings is None else self.settings.maintenance_url

    def owner_setting(self) -> str:
        """Which setting `owner_url` comes from, for messages."""
        return "database_url" if self.sqlite_file() is not None else "owner_url"

    def require_roles(self) -> None:
        """
        Refuse settings that do not give PostgreSQL's three roles one each, before anything is changed.

        :raises ConfigurationError: Names the settings.
        """
        if self.settings is None or self.sqlite_file() is not None:
            return
        from tenancy.roles import require_different_roles

        require_different_roles(
            self.owner_url(), database_url=self.settings.database_url, maintenance_url=self.settings.maintenance_url
        )

    def prepare_roles(self) -> list[str]:
        """
        Make the roles of PostgreSQL that are missing, and give each its rights. Nothing on SQLite.

        :returns: What was made.
        """
        if self.settings is None or self.sqlite_file() is not None:
            return []
        from tenancy.roles import prepare_roles

        return prepare_roles(
            self.owner_url(), database_url=self.settings.database_url, maintenance_url=self.settings.maintenance_url
        )

    def keys(self) -> str:
        """Where the key is."""
        if self.settings is not None:
            return self.settings.keys
        from tenancy.startup import KEY_FILE

        return f"file:{self._directory() / KEY_FILE}"

    def other_keys(self) -> Mapping[str, str]:
        """Where the keys are of tenants that have one of their own, by the names of their providers."""
        return {} if self.settings is None else self.settings.other_keys

    def store_url(self) -> str:
        """Where the results are."""
        if self.settings is not None:
            return self.settings.store_url
        from tenancy.startup import RESULTS_FOLDER

        return f"file://{quote(str(self._directory() / RESULTS_FOLDER))}"

    def key_file(self, provider: str | None = None) -> Path | None:
        """
        The key file, if the key is in one.

        :param provider: A name in `other_keys`; `None` for the setting `keys`.
        :raises Refusal: If there is no such name.
        """
        location = self.keys()
        # A key file of that setting may be called by the name under which it is listed.
        if provider is not None and not (provider == "file" and location.startswith("file:")):
            if provider not in self.other_keys():
                raise Refusal("There is no provider of that name in other_keys.", code=ExitCode.USAGE)
            location = self.other_keys()[provider]
        kind, _, where = location.partition(":")
        return Path(where) if kind == "file" else None

    def is_keyless(self) -> bool:
        """Whether there is no key here, and none wanted."""
        return self.keys() == "none:"

    def lacks_key_variable(self) -> bool:
        """Whether the key should be in an environment variable that is not set."""
        kind, _, name = self.keys().partition(":")
        is_name = name.isascii() and name.isidentifier() and name == name.upper()
        return kind == "env" and is_name and not os.environ.get(name, "").strip()

    def sqlite_file(self) -> Path | None:
        """The file of the catalogue, if it is one."""
        scheme, _, where = self.database_url().partition(":///")
        return Path(unquote(where)) if scheme.startswith("sqlite") else None

    def store_directory(self) -> Path | None:
        """The directory of the results, if they are in one."""
        scheme, _, where = self.store_url().partition("://")
        return Path(unquote(where)) if scheme == "file" else None

    def default_limits(self) -> Limits:
        """The limits that hold where none are set."""
        return self.settings.limits if self.settings is not None else DEFAULT_LIMITS

    def open(self, *, create: bool = False) -> "SessionManager":
        """
        Open the manager. The caller closes it.

        :param create: Whether a data directory may be made, or completed.
        :raises Refusal: If nothing was made there and nothing may be.
        :raises ConfigurationError: If a file, directory or key is missing, unsafe or not of this installation.
        :raises SchemaOutdated: If the database's schema is older or newer.
        """
        from tenancy.manager import SessionManager

        if self.settings is not None:
            return SessionManager.from_settings(self.settings)
        if not create:
            self.require_made()
        return SessionManager.local(self.data or Path())

    def _directory(self) -> Path:
        return (self.data or Path()).absolute()
