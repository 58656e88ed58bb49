"""The only grammar of a stored name: 32 characters of lower-case base32, minted from 160 random bits."""

import re
import secrets
from collections.abc import Callable

#: `\Z`, not `$`: a trailing newline is not a name.
_NAME = re.compile(r"[a-z2-7]{32}\Z")

#: The letters of base32 (RFC 4648), in lower case, eight times: each byte stands for one of them, none for more bytes
#: than another.
_LETTERS = b"abcdefghijklmnopqrstuvwxyz234567" * 8

NAME_CHARS = 32


def mint_name(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """
    Make a new name that nobody can guess and that says nothing.

    :param random_bytes: Where chance comes from; called once with 32.
    :returns: 32 characters out of `a-z2-7`, which are 160 bits.
    """
    return mint_letters(NAME_CHARS, random_bytes)


def mint_letters(count: int, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """
    Make a text of so many random letters out of `a-z2-7`, five bits each.

    :param random_bytes: Where chance comes from; called once, with the count.
    """
    return random_bytes(count).translate(_LETTERS).decode("ascii")


def is_name(text: object) -> bool:
    """Tell whether `text` is exactly a stored name."""
    return isinstance(text, str) and _NAME.match(text) is not None


def require_name(text: str) -> str:
    """
    Refuse whatever is not a stored name. Every store calls this before any other step.

    :raises ValueError: If `text` is anything else. The message does not repeat it.
    """
    if not is_name(text):
        raise ValueError("A stored name has exactly 32 characters out of a-z and 2-7.")
    return text
