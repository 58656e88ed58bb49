"""The front door: open sessions, ask for usage, set limits, erase, clean up."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from stores.connections import Durability
from tenancy.awaiting import OpeningSession
from tenancy.choices import Compression, require_compression, require_inline_bytes, require_kinds
from tenancy.cleanup import Cleaner
from tenancy.clock import Clock, to_datetime
from tenancy.erase import erase_session, erase_tenant, erase_user
from tenancy.errors import ConfigurationError, SessionNotFound
from tenancy.housekeeping import Housekeeping
from tenancy.listing import SessionInfo, list_sessions
from tenancy.opening import open_session
from tenancy.quotas import DEFAULT_LIMITS, Lifetime, Limits, Usage
from tenancy.receipts import Receipt, find_receipt
from tenancy.scope import Scope, require_identifier, require_owner
from tenancy.session import Session
from tenancy.startup import Parts, assemble, prepare_local, prepare_settings
from tenancy.translation import translated

if TYPE_CHECKING:
    from tenancy.settings import Settings

DEFAULT_INLINE_BYTES: Final = 32768


class SessionManager(Housekeeping):
    """
    Opens isolated sessions for many tenants and users, and keeps house.

    Make one per process with `local` or `from_settings` and share it between all threads. Several may live side by
    side; nothing global remembers one. Close it, or use it in a `with` block.

    Admin calls (everything but `session` and `session_async`) are synchronous.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        limits: Limits | None = None,
        lifetime: Lifetime | None = None,
        inline_bytes: int = DEFAULT_INLINE_BYTES,
        compression: Compression = "zstd",
        clock: Clock | None = None,
    ) -> None:
        """
        Put a manager together from its parts. Most callers want `local` or `from_settings`.

        :param parts: Database, keys and where the store is.
        :param limits: The manager's own limits; fields left `UNSET` take the defaults.
        :param clock: For tests that move time by hand.
        :raises ConfigurationError: If the store cannot be opened or the key is not this catalogue's.
        :raises SchemaOutdated: If the database's schema is another version's.
        """
        self.clock = clock or Clock()
        self.lifetime = lifetime or Lifetime()
        defaults = (limits or Limits()).over(DEFAULT_LIMITS)
        self._backend = assemble(
            parts, clock=self.clock, defaults=defaults, inline_bytes=inline_bytes, compression=compression
        )
        self._cleaner = Cleaner(self._backend)

    @classmethod
    def local(
        cls,
        path: str | Path,
        *,
        limits: Limits | None = None,
        lifetime: Lifetime | None = None,
        durability: Durability = "power",
        inline_bytes: int = DEFAULT_INLINE_BYTES,
        compression: Compression = "zstd",
    ) -> Self:
        """
        Work in one directory, without a server or configuration: SQLite catalogue, encrypted files and a key file.

        :param path: The directory. Created with mode 0700 if it is missing.
        :param limits: The manager's own limits; fields left `UNSET` take the defaults.
        :param lifetime: Of sessions opened without one; 24 hours idle and 30 days by default.
        :param durability: `"power"`: a result survives power loss. `"process"`: it survives the death of this process.
        :param inline_bytes: Sealed results up to this many bytes go into the catalogue's database; 0 for none.
        :param compression: `"zstd"`: text is compressed where that makes it shorter. `"none"`: it takes the room it
            takes. Of what is stored each result knows how it was.
        :raises ConfigurationError: If the directory cannot be used, or its key file is missing, unsafe or another's.
        :raises SchemaOutdated: If its catalogue is of an older or newer version.
        """
        # Before anything is made.
        inline_bytes, compression = require_inline_bytes(inline_bytes), require_compression(compression)
        require_kinds(limits=limits, lifetime=lifetime)
        parts = prepare_local(Path(path), durability=durability)
        return cls(parts, limits=limits, lifetime=lifetime, inline_bytes=inline_bytes, compression=compression)

    @classmethod
    def from_settings(cls, settings: "Settings") -> Self:
        """
        Work as the settings say. The schema must be there: `tenancy init` or `tenancy db upgrade` makes it.

        :raises ConfigurationError: If a setting names something that cannot be used.
        :raises SchemaOutdated: If the schema is missing, older or newer.
        """
        how: dict[str, Any] = {
            "inline_bytes": require_inline_bytes(settings.inline_bytes),
            "compression": require_compression(settings.compression),
        }
        parts = prepare_settings(settings)
        return cls(parts, limits=settings.limits, lifetime=settings.lifetime, **how)

    def session(
        self,
        *,
        tenant: str,
        user: str,
        session: str | None = None,
        lifetime: Lifetime | None = None,
        limits: Limits | None = None,
    ) -> Session:
        """
        Open the live session of that name of that user of that tenant, or create it.

        The application vouches for tenant and user: they come from its authentication, never from a request's body or
        a model. The returned session is open at once and is itself a context manager.

        :param session: `None` is the user's own room.
        :param lifetime: Applies only if the session is created.
        :param limits: Likewise; fields of the session's level only.
        :raises ScopeError: If an identifier is not acceptable.
        :raises QuotaExceeded: If the user or the tenant may have no further session.
        :raises StorageUnavailable: If the catalogue is away.
        """
        scope = Scope.of(tenant=tenant, user=user, session=session)
        require_kinds(limits=limits, lifetime=lifetime)
        asked = (limits or Limits()).require_level("session")
        self._require_open()
        with translated():
            opened = open_session(self._backend, scope, lifetime=lifetime or self.lifetime, limits=asked)
        return Session(self._backend, opened, scope)

    def session_async(
        self,
        *,
        tenant: str,
        user: str,
        session: str | None = None,
        lifetime: Lifetime | None = None,
        limits: Limits | None = None,
    ) -> OpeningSession:
        """`session` for coroutines: `await` it, or use it in `async with`."""
        opener = partial(self.session, tenant=tenant, user=user, session=session, lifetime=lifetime, limits=limits)
        return OpeningSession(opener)

    def sessions(self, *, tenant: str | None = None, user: str | None = None) -> Iterator[SessionInfo]:
        """
        Go through the live sessions, of all tenants, of one tenant or of one user. Read in pages, in no promised order.

        :raises ConfigurationError: If a user is given without a tenant; or on PostgreSQL, if no tenant is given and
            there is no `maintenance_url`.
        """
        if user is not None and tenant is None:
            raise ConfigurationError("A user is named within a tenant: give tenant too.")
        for field, name in (("tenant", tenant), ("user", user)):
            if name is not None:
                require_identifier(name, field)
        self._require_open()
        if tenant is None:
            self._backend.across.access.require_across()
        return list_sessions(self._backend, tenant=tenant, user=user)

    def usage(self, *, tenant: str, user: str | None = None, session: str | None = None) -> Usage:
        """
        Return what a tenant, a user or a session has in use and may have. Zero for what does not exist.

        :raises ConfigurationError: If a session is given without a user.
        """
        require_owner(tenant, user, session)
        self._require_open()
        with translated():
            return self._backend.catalogue.administration.usage(tenant=tenant, user=user, session=session)

    def limits(self, *, tenant: str, user: str | None = None, session: str | None = None) -> Limits:
        """
        Return the limits that are set exactly there; `UNSET` where nothing is.

        :raises SessionNotFound: If there is no such tenant, user or session.
        :raises ConfigurationError: If a session is given without a user.
        """
        require_owner(tenant, user, session)
        self._require_open()
        with translated():
            found = self._backend.catalogue.administration.limits(tenant=tenant, user=user, session=session)
        if found is None:
            raise SessionNotFound("There is no such tenant, user or session.")
        return found

    def set_limits(self, limits: Limits, *, tenant: str, user: str | None = None, session: str | None = None) -> None:
        """
        Replace the limits set at a tenant, a user or a session. They hold from the next write on.

        A limit below what is in use refuses writes and allows reads and deletes.

        :param limits: Fields left `UNSET` inherit again.
        :raises ConfigurationError: If a field belongs to a wider level, or a session is given without a user. Nothing
            was changed.
        :raises SessionNotFound: If there is no such tenant, user or session.
        """
        if not isinstance(limits, Limits):
            raise ConfigurationError("limits must be a tenancy.Limits.")
        limits.require_level(require_owner(tenant, user, session))
        self._require_open()
        with translated():
            if not self._backend.catalogue.administration.set_limits(limits, tenant=tenant, user=user, session=session):
                raise SessionNotFound("There is no such tenant, user or session.")

    def delete_session(self, *, tenant: str, user: str, session: str | None) -> Receipt:
        """
        End a session for good: its keys are destroyed at once, then its bytes and rows are removed.

        :param session: `None` is the user's own room. It has no default: a forgotten name must not delete that room.
        :returns: What was removed; nothing if there was no such session.
        """
        scope = Scope.of(tenant=tenant, user=user, session=session)
        self._require_open()
        with translated():
            return erase_session(self._backend, self._cleaner, scope, now=to_datetime(self.clock.now_us()))

    def erase_user(self, *, tenant: str, user: str) -> Receipt:
        """
        Erase a user: keys first, which takes effect at once in every process, then bytes, then rows.

        Interrupted, it resumes under the same receipt when it is called again, or with the next cleanup.

        :returns: A receipt without identifiers; it counts nothing if there was no such user.
        """
        require_identifier(tenant, "tenant")
        require_identifier(user, "user")
        self._require_open()
        with translated():
            return erase_user(self._backend, self._cleaner, tenant=tenant, user=user)

    def erase_tenant(self, *, tenant: str) -> Receipt:
        """Erase a tenant with all its users. See `erase_user`."""
        require_identifier(tenant, "tenant")
        self._require_open()
        with translated():
            return erase_tenant(self._backend, self._cleaner, tenant=tenant)

    def receipt(self, receipt_id: str) -> Receipt | None:
        """
        Tell the receipt of an erasure again, with what has become of the key-encryption keys since.

        :returns: `None` if there is no such receipt.
        :raises ConfigurationError: On PostgreSQL, without `maintenance_url`.
        """
        self._require_open()
        with translated():
            return find_receipt(self._backend, receipt_id)

    def close(self) -> None:
        """Close the database, the store and the keys. May be repeated; open sessions then raise `SessionNotFound`."""
        if not self._backend.closed:
            self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # Also of a manager whose making failed: a traceback may be printed with its variables.
        return f"SessionManager({'closed' if getattr(getattr(self, '_backend', None), 'closed', True) else 'open'})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Pipelines copy their inputs, and what a tool of theirs may hold.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A SessionManager cannot be pickled. Make one in each process.")
