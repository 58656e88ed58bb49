"""The grammar of the setting `keys`: which provider, and what it is told. Looked at before anything is opened."""

import re
from typing import Final

BUILT_IN: Final = ("env", "file", "secret-file")
#: Names that no installed provider can take: those, and one that ours will have.
RESERVED: Final = frozenset((*BUILT_IN, "aws-kms", "awskms"))
#: What an installed provider may be called.
PROVIDER_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,31}")

#: Upper case only: what else stands there may be a key that somebody put into the wrong place, and is not repeated.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


def parse_location(text: str) -> tuple[str, str]:
    """
    Take the setting `keys` apart.

    :returns: The provider's name and the rest. Whether an installed provider has that name is not looked up.
    :raises ValueError: If it cannot be a location. The message repeats nothing of it: the likeliest mistake is the key.
    """
    name, _, rest = text.partition(":")
    if name == "file" and rest:
        return name, rest
    if name == "env" and _VARIABLE.fullmatch(rest):
        return name, rest
    if name == "secret-file" and rest.startswith("/"):
        return name, rest
    if name not in RESERVED and PROVIDER_NAME.fullmatch(name) and rest:
        return name, rest
    raise ValueError(
        "must say where the key is, file:PATH, env:NAME with NAME in upper case, secret-file:/ABSOLUTE/PATH, "
        "or NAME:REST of a provider that is installed; and not be the key"
    )
