"""Results that should not have been stored, until they are gone."""

from collections import deque
from collections.abc import Callable, Iterable

from tenancy.errors import ResultNotFound, SessionNotFound, TenancyError


class Unwanted:
    """
    Deletes results, and where the storage is away tries again later. Safe for threads.

    It lives as long as its session's handle: what is left then goes with the session.

    :param delete: Deletes one result by its reference.
    """

    def __init__(self, delete: Callable[[str], None]) -> None:
        self._delete = delete
        self._references: deque[str] = deque()

    def add(self, references: Iterable[str]) -> None:
        """Delete these now, or at a later `settle`."""
        self._references.extend(references)
        self.settle()

    def __contains__(self, reference: object) -> bool:
        return reference in self._references

    def settle(self) -> None:
        """Delete what is left, until that does not go."""
        while self._references:
            try:
                reference = self._references.popleft()
            except IndexError:
                # Another thread has taken the last one.
                return
            try:
                self._delete(reference)
            except (ResultNotFound, SessionNotFound):
                # Gone, or about to go with its session.
                continue
            except TenancyError:
                self._references.append(reference)
                return
            except BaseException:
                self._references.append(reference)
                raise
