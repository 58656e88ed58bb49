"""What the demo has to say in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tenancy.demo.checks import CHECKS
from tenancy.demo.conversation_checks import pages_of
from tenancy.demo.conversations import Conversation

Figure = int | float | str

#: Which figure is missing if a check was never reached, because a step before it raised: the one that the same part of
#: the demo counts.
_COUNTED_WITH: Final[Mapping[str, str]] = {
    "conversations_stay_small": "context_window",
    "pages_equal_the_originals": "context_window",
    "search_and_list_find_results": "context_window",
    "nothing_of_another_user": "context_window",
    "foreign_reference_is_not_found": "context_window",
    "quota_refusal_is_a_bounded_notice": "context_window",
    "no_plaintext_at_rest": "pieces_searched_for",
    "no_tool_names_at_rest": "pieces_searched_for",
    "no_keys_at_rest": "pieces_searched_for",
    "readable_after_reopening": "disk_bytes",
    "expired_session_is_gone": "reclaimed_bytes",
    "expired_session_is_reclaimed": "reclaimed_bytes",
    "erased_user_is_gone": "erased_bytes",
    "usage_is_exact_and_zero_afterwards": "erased_bytes",
}

#: The figures for people.
FIGURES: Final[Mapping[str, str]] = {
    "tenants": "tenants",
    "users": "users, each with a conversation",
    "results": "results stored",
    "result_bytes": "bytes in these results",
    "tool_calls": "tool calls answered",
    "pages_read": "pages of results the model read",
    "tokens_with": "tokens when results had come in, with offloading",
    "tokens_without": "tokens when results had come in, without",
    "peak_tokens": "most tokens sent at once, reading included",
    "context_window": "tokens the model's window holds",
    "runs_at_once": "conversations at the same moment, at most",
    "disk_bytes": "bytes on disk before anything ended",
    "files": "files of results on disk",
    "reclaimed_bytes": "bytes that cleanup reclaimed",
    "erased_bytes": "bytes erased with one user",
    "pieces_searched_for": "pieces of content and names searched for at rest",
    "log_records": "log records searched",
    "model": "model",
    "seconds": "seconds it took",
}


@dataclass(frozen=True, slots=True)
class Report:
    """
    The outcome.

    :param checks: Each of `CHECKS`, and whether it held.
    :param figures: Numbers with their units in their names.
    :param problems: What kind of error stood in the way, by check or step.
    """

    checks: Mapping[str, bool]
    figures: Mapping[str, Figure]
    problems: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether every check held, and nothing stood in the way of anything else either."""
        return all(self.checks.values()) and not self.problems

    @property
    def document(self) -> dict[str, Any]:
        """What `--output json` prints. Its keys are pinned."""
        return {"ok": self.ok, "checks": dict(self.checks), "figures": dict(self.figures)}

    @property
    def check_rows(self) -> list[tuple[str, str, str]]:
        """The checks for people: outcome, name, what it says."""
        return [(self._outcome(name, held=held), name, CHECKS[name]) for name, held in self.checks.items()]

    @property
    def figure_rows(self) -> list[tuple[str, str]]:
        """The figures for people."""
        return [
            (FIGURES[name], f"{value:,}" if not isinstance(value, str) else value)
            for name, value in self.figures.items()
        ]

    def _outcome(self, name: str, *, held: bool) -> str:
        if held:
            return "ok"
        # A step before it raised. To a program that is a check that does not hold; a person looks for the cause.
        return "FAILED" if _COUNTED_WITH[name] in self.figures else "not run"


def figures_of(conversations: Sequence[Conversation]) -> dict[str, Figure]:
    """
    Count what happened in the conversations.

    :param conversations: All of them.
    """
    stored = [(each, reference, document) for each in conversations for reference, document in each.stored.items()]
    answers = [answer for each in conversations for answer in (*each.reading.answers, *each.finding.answers)]
    peaks = [max(each.reading.peak_tokens, each.finding.peak_tokens) for each in conversations]
    return {
        "tenants": len({each.person.tenant for each in conversations}),
        "users": len(conversations),
        "results": len(stored),
        "result_bytes": sum(len(document.data) for _, _, document in stored),
        "tool_calls": len(answers),
        "pages_read": sum(len(pages_of(each, reference)) for each, reference, _ in stored),
        "tokens_with": sum(each.tokens_with for each in conversations),
        "tokens_without": sum(each.tokens_without for each in conversations),
        "peak_tokens": max(peaks),
    }
