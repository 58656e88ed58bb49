"""What is no stored name: one of each kind that has broken a store somewhere."""

from typing import Any, Final

HOSTILE_NAMES: Final[tuple[Any, ...]] = (
    "",
    ".",
    "..",
    "/",
    "~",
    "../" + "a" * 29,
    "/" + "a" * 31,
    "a" * 30 + "/.",
    "a" * 15 + "/" + "a" * 16,
    "a" * 15 + "\\" + "a" * 16,
    "a" * 15 + "\0" + "a" * 16,
    "a" * 15 + " " + "a" * 16,
    "a" * 15 + "%" + "a" * 16,
    "a" * 15 + "_" + "a" * 16,
    "%2e%2e%2f" + "a" * 23,
    "/etc/passwd",
    "/proc/self/fd/3",
    "C:\\x",
    "nul.txt",
    "a" * 31,
    "a" * 33,
    "a" * 31 + "\n",
    "a" * 32 + "\n",
    "\n" + "a" * 32,
    "A" * 32,
    "1" * 32,
    "a" * 31 + "\u0430",  # Cyrillic
    "a" * 31 + "\uff41",  # full width
    "a" * 31 + "e\u0301",
    "a" * 31 + "\ud800",  # a lone surrogate
    "a" * 10_000_000,
    b"a" * 32,
    None,
    7,
    ["a"] * 32,
)
