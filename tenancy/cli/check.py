"""What a check of `tenancy doctor` says."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """
    One line of the report.

    :param name: What was looked at; pinned.
    :param status: How it is.
    :param detail: What was found.
    :param advice: What to do; nothing if it is well.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
