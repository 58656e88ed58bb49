"""The demo's checks: their names, which are pinned, and how each comes to its verdict."""

from collections.abc import Callable, Mapping
from typing import Final

#: What `tenancy demo` promises, in the order in which it is shown.
CHECKS: Final[Mapping[str, str]] = {
    "conversations_stay_small": "conversations stay small, and within the model's window",
    "pages_equal_the_originals": "pages read back put together are the originals, exactly",
    "search_and_list_find_results": "the model finds results by searching and listing",
    "nothing_of_another_user": "no user sees or holds anything of another's",
    "foreign_reference_is_not_found": "a reference of somebody else's is not found, whatever asks",
    "quota_refusal_is_a_bounded_notice": "the model reads a short notice where a quota refuses",
    "no_plaintext_at_rest": "no content on disk or in the log",
    "no_tool_names_at_rest": "no tool name or reference on disk or in the log",
    "no_keys_at_rest": "no key on disk but in the key file, and none in the log",
    "readable_after_reopening": "everything is readable after closing and opening again",
    "expired_session_is_gone": "an expired session is gone at once, before any cleanup",
    "expired_session_is_reclaimed": "cleanup gives back what it took",
    "erased_user_is_gone": "an erased user is gone, with a receipt, and nobody else is",
    "usage_is_exact_and_zero_afterwards": "usage is exact to the byte, and zero in the end",
}


class Verdicts:
    """Collects what the checks came to. A check that was never reached, or that raised, has failed."""

    def __init__(self) -> None:
        self._outcomes = dict.fromkeys(CHECKS, False)
        self.problems: dict[str, str] = {}

    @property
    def outcomes(self) -> dict[str, bool]:
        """Each check and whether it held."""
        return dict(self._outcomes)

    @property
    def all_hold(self) -> bool:
        """Whether every one held."""
        return all(self._outcomes.values())

    def judge(self, name: str, check: Callable[[], bool]) -> None:
        """
        Carry out a check.

        :param name: One of `CHECKS`.
        :param check: Says whether it holds. What it raises is a failure, and noted without its message, in which there
            might be content.
        """
        if name not in CHECKS:
            raise KeyError(name)
        try:
            self._outcomes[name] = check()
        except Exception as error:  # noqa: BLE001 - the other checks must still have their say
            self.note(name, error)

    def note(self, name: str, error: Exception) -> None:
        """Remember what kind of error stood in the way of a check or a step."""
        self.problems[name] = type(error).__name__
