"""Where settings come from: a TOML file, secret files, the environment. Each gives a mapping, or refuses."""

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from tenancy.errors import ConfigurationError

PREFIX: Final = "HAYSTACK_TENANCY_"
_SECTIONS: Final = ("limits", "lifetime", "other_keys")
_MAX_SECRET_BYTES: Final = 64 * 2**10


def from_toml(path: Path) -> dict[str, Any]:
    """
    Read a TOML file whose keys are the settings, with `[limits]`, `[lifetime]` and `[other_keys]` as tables.

    :raises ConfigurationError: If it cannot be read or is not TOML. The message has the path and perhaps the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The configuration file {path} {_fault(error, 'cannot be read as text')}.") from None
    line = None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Only the line: newer Pythons keep the whole document on the exception, and a message may quote it.
        line = re.search(r"at line ([0-9]+)", str(error))
    except RecursionError:
        # Brackets within brackets within brackets.
        line = None
    raise ConfigurationError(f"The configuration file {path} is not valid TOML{f' (line {line[1]})' if line else ''}.")


def from_environment(environment: Mapping[str, str], *, settings: Collection[str]) -> dict[str, Any]:
    """
    Take the variables that are a setting's name in capitals after the prefix; `LIMITS__USER_BYTES` is a field.

    An empty variable counts as not set. Others with the prefix are ignored, since orchestrators add their own
    (`…_SERVICE_HOST`), but not with `__`: a misspelt limit would be no limit.

    :raises ConfigurationError: For an unknown variable with `__`, named in the message.
    """
    given = {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name == name.upper() and value != ""
    }
    named = {name.removeprefix(PREFIX).lower(): value for name, value in given.items()}
    for name in named:
        if "__" in name and name.partition("__")[0] not in _SECTIONS:
            raise ConfigurationError(f"The environment variable {PREFIX}{name.upper()} is not a setting.")
    return _nested({name: value for name, value in named.items() if name.partition("__")[0] in settings})


def from_secret_files(directory: Path, *, settings: Collection[str]) -> dict[str, Any]:
    """
    Take the files that are named like a setting, in any case, with the prefix or without; others are left alone.

    A file's text without surrounding white space is the value. Links are followed, as Kubernetes mounts secrets so.

    :raises ConfigurationError: If the directory or such a file cannot be read, or two files name one setting.
    """
    found: dict[str, str] = {}
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"The directory of secret files {directory} {_fault(error, 'cannot be read')}."
        ) from None
    for entry in entries:
        name = entry.name.lower().removeprefix(PREFIX.lower())
        if name.partition("__")[0] not in settings:
            continue
        if name in found:
            raise ConfigurationError(f"Two secret files in {directory} are named like the setting {name}.")
        found[name] = _secret(entry)
    return _nested(found)


def _fault(error: OSError | UnicodeDecodeError, otherwise: str) -> str:
    """Say what is the matter where that is known; never what was read."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return "cannot be opened by this user" if isinstance(error, PermissionError) else otherwise


def _secret(path: Path) -> str:
    fault = otherwise = "cannot be read as a text of at most 64 KiB"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        text, fault = None, _fault(error, otherwise)
    # Outside of the handler: a decoding error holds the bytes.
    if text is None or len(content) > _MAX_SECRET_BYTES:
        raise ConfigurationError(f"The secret file {path} {fault}.")
    return text.strip()


def _nested(named: Mapping[str, str]) -> dict[str, Any]:
    nested: dict[str, Any] = {name: value for name, value in named.items() if "__" not in name}
    for name, value in named.items():
        section, divided, field = name.partition("__")
        if divided:
            fields = nested.setdefault(section, {})
            if isinstance(fields, str):
                raise ConfigurationError(f"The setting {section} is given both whole and field by field.")
            fields[field] = value
    return nested
