"""Tables for people: boxed and as wide as the window on a terminal, plain text anywhere else."""

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

#: How wide plain text is unless COLUMNS says otherwise.
_PLAIN_COLUMNS: Final = 100
_GAP: Final = "  "


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, wraps: bool = True) -> None:
    """
    Print a table on stdout.

    :param columns: The headings; none are printed if all are empty.
    :param rows: The cells, one for each column.
    :param wraps: Whether long cells may be broken between words where there is no terminal. A word is never broken.
    """
    if sys.stdout.isatty():
        _print_boxed(columns, rows)
    else:
        _print_plain([columns, *rows] if any(columns) else list(rows), wraps=wraps)


def _print_boxed(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    laid_out = Table(*columns, box=SIMPLE_HEAD, show_header=any(columns), header_style="bold")
    for row in rows:
        # Text, not str: an identifier that looks like markup is an identifier.
        laid_out.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console(file=sys.stdout).print(laid_out)


def _print_plain(rows: Sequence[Sequence[str]], *, wraps: bool) -> None:
    from rich.cells import cell_len

    if not rows:
        return
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    if wraps:
        longest_words = [
            max(cell_len(word) for cell in cells for word in (cell.split() or [""]))
            for cells in zip(*rows, strict=True)
        ]
        widths = _narrowed(widths, at_least=longest_words)
    for row in rows:
        cells = [
            _lines(cell, width) if cell_len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)
        ]
        for number in range(max(map(len, cells))):
            line = [lines[number] if number < len(lines) else "" for lines in cells]
            padded = (text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True))
            sys.stdout.write(_GAP.join(padded).rstrip() + "\n")


def _narrowed(widths: Sequence[int], *, at_least: Sequence[int]) -> list[int]:
    """Take from the widest columns first, until the table fits or no column can become narrower."""
    written = os.environ.get("COLUMNS", "")
    available = int(written) if written.isdecimal() and int(written) > 0 else _PLAIN_COLUMNS
    narrowed = list(widths)
    while sum(narrowed) + len(_GAP) * (len(narrowed) - 1) > available:
        wide = [number for number, width in enumerate(narrowed) if width > at_least[number]]
        if not wide:
            break
        narrowed[max(wide, key=narrowed.__getitem__)] -= 1
    return narrowed


def _lines(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]
