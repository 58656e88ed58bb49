"""The grammar of the setting `keys`: which provider, and what it is told. Looked at before anything is opened."""

import re

#: Upper case only: what else stands there may be a key that somebody put into the wrong place, and is not repeated.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


def parse_location(text: str) -> tuple[str, str]:
    """
    Take the setting `keys` apart.

    :returns: The provider's name and the rest.
    :raises ValueError: If it cannot be a location. The message repeats nothing of it: the likeliest mistake is the key.
    """
    name, _, rest = text.partition(":")
    if name == "file" and rest:
        return name, rest
    if name == "env" and _VARIABLE.fullmatch(rest):
        return name, rest
    if name == "secret-file" and rest.startswith("/"):
        return name, rest
    raise ValueError(
        "must say where the key is, file:PATH, env:NAME with NAME in upper case, or secret-file:/ABSOLUTE/PATH, and "
        "not be the key"
    )
