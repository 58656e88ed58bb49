"""
Settings, from four places and no other: arguments, the environment, secret files, one TOML file.

Each overrides the next, field by field, in `limits`, `lifetime` and `other_keys` too. No file is ever found by chance:
the TOML file is the one that was named, the directory of secret files the one in `HAYSTACK_TENANCY_SECRETS_DIR`.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PlainValidator, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from tenancy.errors import ConfigurationError
from tenancy.keys.locations import parse_location
from tenancy.quotas import DEFAULT_LIMITS, Lifetime, Limits
from tenancy.settings.other_keys import OtherKeys, other_keys_of
from tenancy.settings.sources import PREFIX, from_environment, from_secret_files, from_toml
from tenancy.settings.values import lifetime_of, limits_of, parse_amount

#: A row that holds more than this is slow to update around; the store is the place for it.
MAX_INLINE_BYTES: Final = 2**20
DEFAULT_INLINE_BYTES: Final = 32 * 2**10

Durability = Literal["power", "process"]
Compression = Literal["zstd", "none"]


def _database_url(value: object) -> str:
    # Here, not above: settings are read by commands that need no database.
    from stores.connections import parse_url

    try:
        parse_url(_text(value))
    except ValueError:
        raise ValueError("database_url must look like sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME") from None
    return _text(value)


def _other_role_url(value: object) -> str | None:
    if value is None:
        return None
    try:
        is_postgres = _text(value).startswith("postgresql") and bool(_database_url(value))
    except ValueError:
        is_postgres = False
    if not is_postgres:
        raise ValueError("owner_url and maintenance_url must look like postgresql+psycopg://USER@HOST/NAME")
    return _text(value)


def _store_url(value: object) -> str:
    text = _text(value)
    if text in ("database:", "memory:") or (text.startswith("file:///") and len(text) > len("file:///")):
        return text
    raise ValueError("store_url must be one of file:///ABSOLUTE/PATH, database: and memory:")


def _keys(value: object) -> str:
    try:
        parse_location(_text(value))
    except ValueError as error:
        raise ValueError(f"keys {error}") from None
    return _text(value)


def _durability(value: object) -> str:
    if value in ("power", "process"):
        return _text(value)
    raise ValueError('durability must be "power" or "process"')


def _inline_bytes(value: object) -> int:
    try:
        amount = parse_amount(value, suffixes=True)
    except ValueError:
        amount = None
    if amount is None or amount > MAX_INLINE_BYTES:
        raise ValueError(f"inline_bytes must be a whole number from 0 to {MAX_INLINE_BYTES}")
    return amount


def _compression(value: object) -> str:
    if value in ("zstd", "none"):
        return _text(value)
    raise ValueError('compression must be "zstd" or "none"')


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


class Settings(BaseSettings):
    """
    What a manager needs to know. Frozen; its repr shows no URL, which may hold a password, and no path.

    `Settings(…)` reads the environment, the secret files and the TOML file in `HAYSTACK_TENANCY_CONFIG` for what is not
    passed. In all of them an unlimited limit is written `"unlimited"`, sizes may have a suffix (`"64MiB"`), and
    durations are ISO 8601 (`"P30D"`), a number with a unit (`"24h"`, `"30d"`; s, m, h, d, w) or seconds.

    :raises ConfigurationError: If a setting is missing, wrong or unknown. The message names each such setting and shows
        no value.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    #: `sqlite:///PATH` or `postgresql+psycopg://…`. On PostgreSQL its role must not own the tables.
    database_url: Annotated[str, PlainValidator(_database_url)] = Field(repr=False)
    #: PostgreSQL only: the role that owns the tables. `tenancy init` and `tenancy db` work as it, nothing else does.
    owner_url: Annotated[str | None, PlainValidator(_other_role_url)] = Field(default=None, repr=False)
    #: PostgreSQL only: the role that works on all tenants. Without it calls across tenants raise `ConfigurationError`.
    maintenance_url: Annotated[str | None, PlainValidator(_other_role_url)] = Field(default=None, repr=False)
    #: `file:///ABSOLUTE/PATH`, `database:` or `memory:`.
    store_url: Annotated[str, PlainValidator(_store_url)] = Field(repr=False)
    #: Where the key is: `file:PATH`, `env:NAME`, `secret-file:/PATH`, `aws-kms:KEY`, or `NAME:REST` of an installed
    #: provider; `none:` for a job that only removes.
    keys: Annotated[str, PlainValidator(_keys)] = Field(repr=False)
    #: Keys of tenants that were moved to one of their own, by a name of 1 to 32 characters that stands with their keys
    #: from then on; see `SessionManager.move_keys`.
    other_keys: Annotated[OtherKeys, PlainValidator(other_keys_of)] = Field(default_factory=OtherKeys, repr=False)
    #: The manager's own limits. A field that is not given has its default, 64 MiB a result and 1 GiB a user.
    limits: Annotated[Limits, PlainValidator(limits_of)] = DEFAULT_LIMITS
    #: What a session lives when it is opened without a lifetime of its own.
    lifetime: Annotated[Lifetime, PlainValidator(lifetime_of)] = Lifetime()
    #: `"power"`: a commit survives power loss. `"process"`: it survives the death of this process.
    durability: Annotated[Durability, PlainValidator(_durability)] = "power"
    #: Sealed results of at most this size stand in the catalogue's own database; 0 turns that off.
    inline_bytes: Annotated[int, PlainValidator(_inline_bytes)] = DEFAULT_INLINE_BYTES
    #: `"zstd"`: text is compressed where that makes it shorter. `"none"`: it is stored as it is.
    compression: Annotated[Compression, PlainValidator(_compression)] = "zstd"

    def __init__(self, **values: Any) -> None:
        message = None
        try:
            super().__init__(**values)
        except ValidationError as error:
            message = _sentence(error)
        # Raised out here, where the validation error, which holds every value, is not even its context.
        if message is not None:
            raise ConfigurationError(message)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse. pydantic would too, with an error that shows the value."""
        raise AttributeError(f"Settings do not change, {name} neither.")

    @classmethod
    def load(cls, config: Path | None = None) -> Self:
        """
        Read the settings of this process.

        :param config: The TOML file; `None` takes the one in `HAYSTACK_TENANCY_CONFIG`, or none.
        :raises ConfigurationError: See `Settings`; also if a file that was named cannot be read.
        """
        return cls(_config=config)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put our sources in the place of pydantic's, which ignore a misspelt limit and take any case."""
        values = dict(init_settings())
        # The only way by which one instance can tell its sources something.
        config = values.pop("_config", None) or os.environ.get(f"{PREFIX}CONFIG") or None
        secrets_dir = os.environ.get(f"{PREFIX}SECRETS_DIR") or None
        given = [
            values,
            from_environment(os.environ, settings=cls.model_fields),
            from_secret_files(Path(secrets_dir), settings=cls.model_fields) if secrets_dir else {},
            from_toml(Path(config)) if config else {},
        ]
        return tuple(InitSettingsSource(settings_cls, init_kwargs=each) for each in given)


def _sentence(error: ValidationError) -> str:
    parts = []
    for each in error.errors(include_url=False, include_input=False):
        field = ".".join(str(part) for part in each["loc"])
        if each["type"] == "missing":
            parts.append(f"{field} is missing (environment: {PREFIX}{field.upper()})")
        elif each["type"] == "extra_forbidden":
            parts.append(f"{field} is not a setting")
        else:
            # Our own validators' sentences. pydantic's would be no secret either, but are not ours to promise.
            parts.append(str(each.get("ctx", {}).get("error") or f"{field} is wrong"))
    return f"The settings are not usable: {'; '.join(parts)}."
