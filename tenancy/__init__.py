"""
Isolated, encrypted, quota-bound tool-result stores for multi-user Haystack agents.

Begin with `SessionManager` (one per process; `local(path)` or `from_settings(Settings.load(file))`), which opens a
`Session` per tenant, user and chat. `session_hooks(...)` and `SessionToolset()` go into an `Agent` once;
`agent.run(..., hook_context=session.hook_context)` says for each run whose it is. `RoutedStore()` is what a plain
`ToolResultOffloadHook` of Haystack's takes as its own store. `Limits` and `Lifetime` bound what is stored.
"""

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
    from tenancy.listing import SessionInfo
    from tenancy.manager import SessionManager
    from tenancy.reading import Page, Result
    from tenancy.receipts import Receipt
    from tenancy.seam.binding import RoutedStore
    from tenancy.seam.hooks import session_hooks
    from tenancy.seam.tools import SessionToolset
    from tenancy.session import Session
    from tenancy.settings import Settings
    from tenancy.verify import Finding, VerifyReport

#: Loaded when first asked for, so that `tenancy --help` loads neither Haystack nor SQLAlchemy.
_HOMES: Final = {
    "CleanupReport": "tenancy.cleanup",
    "Finding": "tenancy.verify",
    "Page": "tenancy.reading",
    "Receipt": "tenancy.receipts",
    "Result": "tenancy.reading",
    "RoutedStore": "tenancy.seam.binding",
    "Session": "tenancy.session",
    "SessionInfo": "tenancy.listing",
    "SessionManager": "tenancy.manager",
    "SessionToolset": "tenancy.seam.tools",
    "Settings": "tenancy.settings",
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
    "RoutedStore",
    "SchemaOutdated",
    "Scope",
    "ScopeError",
    "Session",
    "SessionInfo",
    "SessionManager",
    "SessionNotFound",
    "SessionToolset",
    "Settings",
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


def __dir__() -> list[str]:
    """List the public face, loaded or not."""
    return sorted({*globals(), *__all__})
