"""What the demo has to say in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.demo.checks import CHECKS
from tenancy.demo.conversation_checks import pages_of
from tenancy.demo.conversations import Conversation

Figure = int | float | str


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
        return [("ok" if held else "FAILED", name, CHECKS[name]) for name, held in self.checks.items()]

    @property
    def figure_rows(self) -> list[tuple[str, str]]:
        """The figures for people."""
        return [
            (name.replace("_", " "), f"{value:,}" if not isinstance(value, str) else value)
            for name, value in self.figures.items()
        ]


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
