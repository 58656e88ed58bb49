"""
One class for every reaction: retry, tell the caller, call the operator, stop the run.

Messages and reprs hold sizes only: no content, key, path or identifier. `ConfigurationError` alone may name a local
path or a setting, never a value.
"""


class TenancyError(Exception):
    """The root of everything this library raises on purpose."""

    #: Whether the same call may succeed later without anybody changing anything.
    retryable: bool = False


class ScopeError(TenancyError, ValueError):
    """A tenant, user or session identifier is not acceptable. Nothing was looked up."""


class SessionNotFound(TenancyError, LookupError):
    """There is no such live session, or this handle is closed. Missing, expired, erased and foreign look the same."""

    def __init__(self, message: str = "There is no such live session. Open it with manager.session(...).") -> None:
        super().__init__(message)


class ResultNotFound(TenancyError, LookupError):
    """There is no such result in this session. Missing, expired, deleted and foreign look the same."""

    def __init__(self, message: str = "There is no such result in this session.") -> None:
        super().__init__(message)


class QuotaExceeded(TenancyError):
    """
    A limit does not allow this. Nothing was written and nothing is charged.

    :param level: Which limit refused: `"session"`, `"user"` or `"tenant"`.
    :param unit: What is limited: `"bytes"`, `"results"` or `"sessions"`.
    :param limit: The limit, in that unit.
    :param used: What is in use, in that unit.
    :param requested: What was asked for, in that unit.
    """

    def __init__(self, *, level: str, unit: str, limit: int, used: int, requested: int) -> None:
        super().__init__(
            f"The {level}'s limit of {limit} {unit} is reached: {used} in use, {requested} more requested."
        )
        self.level = level
        self.unit = unit
        self.limit = limit
        self.used = used
        self.requested = requested

    @property
    def limit_bytes(self) -> int | None:
        """The limit in bytes, or `None` if a count refused."""
        return self.limit if self.unit == "bytes" else None

    @property
    def used_bytes(self) -> int | None:
        """The bytes in use, or `None` if a count refused."""
        return self.used if self.unit == "bytes" else None

    @property
    def requested_bytes(self) -> int | None:
        """The bytes asked for, or `None` if a count refused."""
        return self.requested if self.unit == "bytes" else None

    def __reduce__(self) -> tuple[object, ...]:
        return (_quota_exceeded, (self.level, self.unit, self.limit, self.used, self.requested))


def _quota_exceeded(level: str, unit: str, limit: int, used: int, requested: int) -> QuotaExceeded:
    return QuotaExceeded(level=level, unit=unit, limit=limit, used=used, requested=requested)


class ResultTooLarge(TenancyError):
    """
    One result is larger than `max_result_bytes` allows. Nothing was written and nothing is charged.

    :param limit_bytes: The limit.
    :param requested_bytes: The size of the result.
    """

    def __init__(self, *, limit_bytes: int, requested_bytes: int) -> None:
        super().__init__(f"The result has {requested_bytes} bytes; one result may have {limit_bytes}.")
        self.limit_bytes = limit_bytes
        self.requested_bytes = requested_bytes

    def __reduce__(self) -> tuple[object, ...]:
        return (_result_too_large, (self.limit_bytes, self.requested_bytes))


def _result_too_large(limit_bytes: int, requested_bytes: int) -> ResultTooLarge:
    return ResultTooLarge(limit_bytes=limit_bytes, requested_bytes=requested_bytes)


class ResultCorrupt(TenancyError):
    """What is stored is not what was written. Nothing is returned; `tenancy verify` tells more."""

    def __init__(self, message: str = "The stored result is damaged or was tampered with.") -> None:
        super().__init__(message)


class KeyUnavailable(TenancyError):
    """The key service or key file did not answer. Nothing is lost; the same call may succeed later."""

    retryable = True


class KeyDestroyed(TenancyError):
    """The key of this data was destroyed on purpose. The data cannot be read by anybody; it can be deleted."""


class NoActiveSession(TenancyError):
    """Nothing binds this run to a session, so nothing is written. Pass `hook_context=session.hook_context`."""

    def __init__(
        self, message: str = "No session is bound to this run. Pass hook_context=session.hook_context to agent.run()."
    ) -> None:
        super().__init__(message)


class SchemaOutdated(TenancyError):
    """The database's schema is not the one this version works with. Run `tenancy db upgrade`, or upgrade the code."""


class ConfigurationError(TenancyError):
    """A setting is missing, wrong or unsafe. The message names the setting or a local path, never a value."""


class StorageUnavailable(TenancyError):
    """The catalogue or the store is down, or locked for too long. Nothing is half-written."""

    retryable = True


class StorageFull(TenancyError):
    """The disk or the database has no room. Nothing was written; reads, deletes and cleanup still work."""


class AlreadyRunning(TenancyError):
    """Another process holds this work (a migration, a rotation). Nothing was changed."""
