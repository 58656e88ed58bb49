"""What an operator hears: one WARNING record for every event, with sizes and short hashes and nothing else."""

from typing import Any, Final, Literal

from haystack import logging

from tenancy.errors import QuotaExceeded, ResultTooLarge

Event = Literal[
    "unbound",
    "not_stored",
    "foreign_session",
    "no_read_tools",
    "corrupt",
    "read_failed",
    "policy_failed",
    "compaction_failed",
    "binding_failed",
    "not_reclaimed",
    "not_rotated",
    "many_unknown",
    "janitor_failed",
]

_SENTENCES: Final[dict[Event, str]] = {
    "unbound": "A tool result was not stored: no session is bound to this run.",
    "not_stored": "A tool result was not stored.",
    "foreign_session": "A run was given a session other than the one it runs inside. It is treated as having none.",
    "no_read_tools": "Tool results stay in the conversation: this run has no tool that could read them back.",
    "corrupt": "A stored result is damaged. Run `tenancy verify`.",
    "read_failed": "A stored result could not be read.",
    "policy_failed": "An offload policy raised. Its result was offloaded.",
    "compaction_failed": "The conversation could not be compacted. It stays as it is.",
    "not_reclaimed": "Something that has expired could not be removed. The next cleanup tries again.",
    "not_rotated": "A key could not be opened, so it was not rotated. It is as it was.",
    "many_unknown": "Many stored files are unknown: is the catalogue an older one? Nothing was repaired.",
    "janitor_failed": "A cleanup in the background failed. The next one tries again.",
    "binding_failed": "A tool could not be bound to its session. It runs without one of its own.",
}

logger = logging.getLogger(__name__)


def emit(event: Event, *, session: str | None = None, **facts: int | str) -> None:
    """
    Log one event.

    :param event: Its fixed name, in the record's `event` attribute.
    :param session: The short hash of a scope, or `None` if there is no session.
    :param facts: Sizes, counts, class names and short hashes. Never content, a key, a path or an identifier.
    """
    fields: dict[str, Any] = {"event": event, "session": session or "none", **facts}
    details = " ".join(f"{name}={{{name}}}" for name in fields)
    logger.warning(f"{_SENTENCES[event]} {details}", **fields)


def facts_of(error: BaseException) -> dict[str, int | str]:
    """
    What may be logged about an error: its class and its sizes. Its message stays behind, whoever wrote it.

    :param error: Any exception.
    """
    facts: dict[str, int | str] = {"error": type(error).__name__}
    if isinstance(error, QuotaExceeded):
        facts |= {"level": error.level, "unit": error.unit}
        facts |= {"limit": error.limit, "used": error.used, "requested": error.requested}
    elif isinstance(error, ResultTooLarge):
        facts |= {"limit_bytes": error.limit_bytes, "requested_bytes": error.requested_bytes}
    return facts
