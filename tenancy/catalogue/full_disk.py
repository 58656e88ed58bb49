"""What must go on working when the disk of the catalogue is full: whatever takes something away."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from stores.errors import StoreFull
from tenancy.catalogue.access import Access


class _Table(Protocol):
    _access: Access


_Self = TypeVar("_Self", bound=_Table)
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def even_on_a_full_disk(
    method: Callable[Concatenate[_Self, _Asked], _Answer],
) -> Callable[Concatenate[_Self, _Asked], _Answer]:
    """
    Let a method that is one transaction try again with the room of the reserve, and make the reserve again afterwards.

    Also taking something away writes to the database first. What makes it grow does not get this room, or deletes
    would find nothing left of it.
    """

    @functools.wraps(method)
    def run(table: _Self, /, *arguments: _Asked.args, **settings: _Asked.kwargs) -> _Answer:
        database = table._access.database
        while True:
            try:
                answer = method(table, *arguments, **settings)
            except StoreFull:
                # Nothing of it was kept.
                if not database.give_up_reserve():
                    raise
            else:
                database.restore_reserve()
                return answer

    return run
