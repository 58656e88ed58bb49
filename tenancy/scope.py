"""Who is asking. The one place where identifiers are checked."""

import hashlib
import unicodedata
from dataclasses import dataclass
from typing import Self

from tenancy.errors import ConfigurationError, ScopeError

MAX_IDENTIFIER_CHARS = 255


@dataclass(frozen=True, slots=True)
class Scope:
    """
    A tenant, one of its users and one of that user's sessions.

    Build it with `Scope.of`. The texts are taken exactly as they come: no case folding, no Unicode normalisation, no
    stripping, no decoding. They are values in bound SQL parameters and nothing else, and never part of a path.
    """

    tenant: str
    user: str
    #: The session's name, or `""` for the user's own room.
    session: str

    @classmethod
    def of(cls, *, tenant: str, user: str, session: str | None = None) -> Self:
        """
        Check three identifiers and bind them together.

        :param session: `None` is the user's own room.
        :raises ScopeError: If one is not a string of 1 to 255 characters, or is blank, or has a control character or a
            lone surrogate.
        """
        return cls(
            tenant=require_identifier(tenant, "tenant"),
            user=require_identifier(user, "user"),
            session="" if session is None else require_identifier(session, "session"),
        )

    @property
    def short_hash(self) -> str:
        """Twelve hex digits that stand for this scope in a log line; the texts cannot be read from them."""
        parts = "".join(f"{len(text)}:{text}" for text in (self.tenant, self.user, self.session))
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"Scope({self.short_hash})"


def require_identifier(value: str, field: str) -> str:
    """
    Return `value` unchanged, or refuse it. The error names the field and never the value.

    :param field: What the identifier is, for the message.
    :raises ScopeError: See `Scope.of`.
    """
    if type(value) is not str:
        raise ScopeError(f"The {field} must be a string.")
    if not 1 <= len(value) <= MAX_IDENTIFIER_CHARS:
        raise ScopeError(f"The {field} must have 1 to {MAX_IDENTIFIER_CHARS} characters.")
    if value.isspace():
        raise ScopeError(f"The {field} must not be blank.")
    # Cc: control characters, NUL among them; Cs: lone surrogates, which no UTF-8 database can hold.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise ScopeError(f"The {field} must not contain control characters or lone surrogates.")
    return value


def require_owner(tenant: str, user: str | None, session: str | None) -> str:
    """
    Check the names of one tenant, user or session and say which of them it is.

    :returns: `"tenant"`, `"user"` or `"session"`.
    :raises ScopeError: If a name is not acceptable.
    :raises ConfigurationError: If a session is given without its user.
    """
    if session is not None and user is None:
        raise ConfigurationError("A session is named within a user: give user too.")
    require_identifier(tenant, "tenant")
    if user is None:
        return "tenant"
    require_identifier(user, "user")
    if session is None:
        return "user"
    require_identifier(session, "session")
    return "session"
