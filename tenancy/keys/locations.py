"""The grammar of the setting `keys`: which provider, and what it is told. Looked at before anything is opened."""

import re
from collections.abc import Mapping
from typing import Final

from tenancy.errors import ConfigurationError

#: The provider of those who have no key.
NO_KEY: Final = "none"
#: Names that no installed provider can take. `awskms` is another spelling of `aws-kms`.
BUILT_IN: Final = ("aws-kms", "env", "file", NO_KEY, "secret-file")
_SPELLINGS: Final = {"awskms": "aws-kms"}
RESERVED: Final = frozenset((*BUILT_IN, *_SPELLINGS))
#: What an installed provider may be called.
PROVIDER_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,31}")

#: Upper case only: what else stands there may be a key that somebody put into the wrong place, and is not repeated.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
#: https://docs.aws.amazon.com/kms/latest/developerguide/concepts.html, key identifiers.
_KMS_ID = r"(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|mrk-[0-9a-f]{32})"
_KMS_ALIAS = r"alias/[A-Za-z0-9/_-]{1,250}"
_KMS_HOME = r"arn:(?P<partition>aws[a-z-]{0,24}):kms:(?P<region>[a-z0-9-]{1,32}):(?P<account>[0-9]{12}):"
#: A key as a person may write it: id, alias, or the ARN of one of the two.
KMS_KEY: Final = re.compile(rf"{_KMS_ID}|{_KMS_ALIAS}|{_KMS_HOME}(?:key/(?P<id>{_KMS_ID})|{_KMS_ALIAS})")
#: A key as the service writes it, which means the same key for ever.
KMS_KEY_ARN: Final = re.compile(rf"{_KMS_HOME}key/(?P<id>{_KMS_ID})")


def parse_location(text: str) -> tuple[str, str]:
    """
    Take the setting `keys` apart.

    :returns: The provider's name and the rest. Whether an installed provider has that name is not looked up.
    :raises ValueError: If it cannot be a location. The message repeats nothing of it: the likeliest mistake is the key.
    """
    name, _, rest = text.partition(":")
    name = _SPELLINGS.get(name, name)
    if name == "file" and rest:
        return name, rest
    if name == "env" and _VARIABLE.fullmatch(rest):
        return name, rest
    if name == "secret-file" and rest.startswith("/"):
        return name, rest
    if name == "aws-kms" and KMS_KEY.fullmatch(rest):
        return name, rest
    if text == f"{NO_KEY}:":
        return name, rest
    if name not in RESERVED and PROVIDER_NAME.fullmatch(name) and rest:
        return name, rest
    raise ValueError(
        "must say where the key is, file:PATH, env:NAME with NAME in upper case, secret-file:/ABSOLUTE/PATH, "
        "aws-kms:KEY with the id, alias/NAME or ARN of a key, NAME:REST of a provider that is installed, or none: for "
        "a job that only removes; and not be the key"
    )


def provider_of(location: str) -> str:
    """
    Return what the provider at a location calls itself.

    :raises ValueError: See `parse_location`.
    """
    name, _ = parse_location(location)
    # A keyset that moves between the two opens what it did.
    return "file" if name == "secret-file" else name


def require_distinct(names: Mapping[str, str], *, default: str) -> None:
    """
    Refuse names that could be mistaken for another provider's.

    :param names: The locations of further providers, by their names.
    :param default: The location of the one for everybody.
    :raises ConfigurationError: Says which.
    """
    for name, location in names.items():
        fault = None
        if name == provider_of(default):
            fault = "the provider of the setting keys"
        elif name in RESERVED and name != provider_of(location):
            # What was under `keys` once is called so here, while it is moved to its successor.
            fault = "a kind of provider that it is not"
        if fault is not None:
            raise ConfigurationError(f"other_keys.{name} is called like {fault}; give it another name.")
