"""Isolated, encrypted, quota-bound tool-result stores for multi-user Haystack agents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tenancy.errors import (
    AlreadyRunning,
    ConfigurationError,
    KeyDestroyed,
    KeyUnavailable,
    NoActiveSession,
    QuotaExceeded,
    ResultCorrupt,
    ResultNotFound,
    ResultTooLarge,
    SchemaOutdated,
    ScopeError,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    TenancyError,
)
from tenancy.quotas import UNSET, Lifetime, Limits, Usage
from tenancy.scope import Scope
from tenancy.version import __version__

if TYPE_CHECKING:
    from tenancy.cleanup import CleanupReport
    from tenancy.erase import Receipt
    from tenancy.listing import SessionInfo
    from tenancy.manager import SessionManager
    from tenancy.reading import Page, Result
    from tenancy.seam.hooks import session_hooks
    from tenancy.seam.tools import SessionToolset
    from tenancy.session import Session
    from tenancy.verify import Finding, VerifyReport

#: Loaded when first asked for, so that `tenancy --help` loads neither Haystack nor SQLAlchemy.
_HOMES: Final = {
    "CleanupReport": "tenancy.cleanup",
    "Finding": "tenancy.verify",
    "Page": "tenancy.reading",
    "Receipt": "tenancy.erase",
    "Result": "tenancy.reading",
    "Session": "tenancy.session",
    "SessionInfo": "tenancy.listing",
    "SessionManager": "tenancy.manager",
    "SessionToolset": "tenancy.seam.tools",
    "VerifyReport": "tenancy.verify",
    "session_hooks": "tenancy.seam.hooks",
}

__all__ = [
    "UNSET",
    "AlreadyRunning",
    "CleanupReport",
    "ConfigurationError",
    "Finding",
    "KeyDestroyed",
    "KeyUnavailable",
    "Lifetime",
    "Limits",
    "NoActiveSession",
    "Page",
    "QuotaExceeded",
    "Receipt",
    "Result",
    "ResultCorrupt",
    "ResultNotFound",
    "ResultTooLarge",
    "SchemaOutdated",
    "Scope",
    "ScopeError",
    "Session",
    "SessionInfo",
    "SessionManager",
    "SessionNotFound",
    "SessionToolset",
    "StorageFull",
    "StorageUnavailable",
    "TenancyError",
    "Usage",
    "VerifyReport",
    "__version__",
    "session_hooks",
]


def __getattr__(name: str) -> Any:
    """Load a part of the public face when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
