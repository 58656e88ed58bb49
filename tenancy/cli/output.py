"""Data on stdout: tables for people, JSON for programs. Everything else goes to stderr."""

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import typer

from tenancy.cli.tables import print_table

#: Rows of a listing that are laid out together; a listing of a million sessions must not wait for the last.
_PAGE_ROWS: Final = 500


class OutputFormat(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Table:
    """
    A table for people.

    :param columns: The headings.
    :param rows: The cells, one for each column.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]

    @classmethod
    def of_fields(cls, fields: Mapping[str, str]) -> "Table":
        """Make a table without headings that has one line for each field."""
        return cls(columns=("", ""), rows=list(fields.items()))


@dataclass(frozen=True, slots=True)
class Output:
    """Stdout of one command, which prints one JSON object, or tables."""

    format: OutputFormat

    def show(self, document: Mapping[str, Any], *tables: Table) -> None:
        """
        Print one finished answer.

        :param document: What `--output json` prints. Its keys are pinned: scripts rely on them.
        :param tables: The same for people.
        """
        if self.format is OutputFormat.JSON:
            _write(json.dumps(document, default=_plain, indent=2) + "\n")
            return
        for table in tables:
            print_table(table.columns, table.rows)

    def stream(
        self,
        key: str,
        items: Iterable[Mapping[str, Any]],
        *,
        columns: Mapping[str, Callable[[Any], str]],
        nothing: str,
    ) -> None:
        """
        Print a listing as it comes, `{KEY: [...]}` or tables of at most 500 rows.

        :param key: What the list is called.
        :param items: The items, with pinned keys.
        :param columns: Which keys people see, and how.
        :param nothing: What they are told if there is no item.
        """
        remaining = iter(items)
        if self.format is OutputFormat.JSON:
            # What is refused is refused when the first item is asked for; then nothing may stand on stdout yet.
            opening, item = f'{{\n  "{key}": [', next(remaining, None)
            separator = f"{opening}\n"
            while item is not None:
                _write(separator + textwrap.indent(json.dumps(item, default=_plain, indent=2), "    "))
                separator, item = ",\n", next(remaining, None)
            _write("\n  ]\n}\n" if separator.startswith(",") else f"{opening}]\n}}\n")
            return
        headings = [name.replace("_", " ") for name in columns]
        while page := list(islice(remaining, _PAGE_ROWS)):
            nothing = ""
            rows = [[show(item[name]) for name, show in columns.items()] for item in page]
            # One line for each item, however long: what stands here are names, and scripts count and cut lines.
            print_table(headings, rows, wraps=False)
        if nothing:
            note(nothing)


def note(text: str) -> None:
    """Tell the person at the terminal something that is not data."""
    flush()
    typer.echo(text, err=True)


def flush() -> None:
    """
    Have the data out, so that what is said next on stderr also stands behind it where both go to one place.

    :raises OSError: If it cannot be written. It is dropped then, and so is what is printed later.
    """
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes once more when it ends, and would fail with a code of its own.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """
    Show a bar on stderr while something runs, if that is a terminal.

    :returns: To be called with how many are done and how many there are, `None` if that is unknown.
    """
    if not sys.stderr.isatty():
        yield _no_progress
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def size(amount: int | None) -> str:
    """Say bytes as people do; `None` is no limit."""
    if amount is None:
        return "unlimited"
    value, units = float(amount), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = "B"
    while value >= 1024 and (larger := next(units, None)):
        value, unit = value / 1024, larger
    return f"{amount} B" if unit == "B" else f"{value:.1f} {unit}"


def count(amount: int | None) -> str:
    """Say a number; `None` is no limit."""
    return "unlimited" if amount is None else str(amount)


def moment(value: datetime | None) -> str:
    """Say a moment to the second, in UTC; `None` is never."""
    return "never" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def text(value: str | None) -> str:
    """Say a text as it is; `None` is nothing."""
    return value or ""


def room(session: str | None) -> str:
    """Say which of a user's sessions it is; the one without a name is the own room."""
    return "(own room)" if session is None else session


def _no_progress(_done: int, _total: int | None) -> None:
    return


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _write(data: str) -> None:
    # ASCII (json's default) and no rich: what a program reads depends on no terminal and no locale.
    sys.stdout.write(data)
