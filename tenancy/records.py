"""What a row or a part of one is made into."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """
    Make a class that holds values, as `dataclass(frozen=True, slots=True)` does.

    That nobody sets a field is for the type checker to see. Guarded when it runs as well, each field takes six times as
    long to set, and every read makes a dozen of these.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
