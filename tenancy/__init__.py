"""Isolated, encrypted, quota-bound tool-result stores for multi-user Haystack agents."""

from tenancy.cleanup import CleanupReport
from tenancy.erase import Receipt
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
from tenancy.hooks import session_hooks
from tenancy.listing import SessionInfo
from tenancy.manager import SessionManager
from tenancy.quotas import UNSET, Lifetime, Limits, Usage
from tenancy.reading import Page, Result
from tenancy.scope import Scope
from tenancy.session import Session
from tenancy.tools import SessionToolset
from tenancy.verify import Finding, VerifyReport
from tenancy.version import __version__

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
