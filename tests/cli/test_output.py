"""Tables for people, JSON for programs."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tenancy.cli.output import Output, OutputFormat, Table, count, moment, size, text

ROWS = [{"name": f"row {number}", "used_bytes": number} for number in range(1200)]
COLUMNS = {"name": text, "used_bytes": size}


def test_a_listing_is_one_json_document_also_when_it_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    for rows in (ROWS, ROWS[:1], []):
        Output(OutputFormat.JSON).stream("sessions", iter(rows), columns=COLUMNS, nothing="No rows.")
        streamed = capsys.readouterr()
        assert json.loads(streamed.out) == {"sessions": rows}
        # Of the same shape as an answer that is printed at once.
        Output(OutputFormat.JSON).show({"sessions": rows})
        assert streamed == capsys.readouterr()


def test_people_are_told_that_a_listing_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    Output(OutputFormat.TABLE).stream("sessions", iter([]), columns=COLUMNS, nothing="No rows.")
    assert capsys.readouterr() == ("", "No rows.\n")
    Output(OutputFormat.TABLE).stream("sessions", iter(ROWS), columns=COLUMNS, nothing="No rows.")
    assert capsys.readouterr().err == ""


def test_a_listing_does_not_wait_for_its_last_row(capsys: pytest.CaptureFixture[str]) -> None:
    def endless() -> Iterator[dict[str, object]]:
        yield from ROWS
        raise RuntimeError("the database went away")

    for form in OutputFormat:
        with pytest.raises(RuntimeError):
            Output(form).stream("sessions", endless(), columns=COLUMNS, nothing="No rows.")
        assert "row 999" in capsys.readouterr().out


def test_a_refusal_before_the_first_row_leaves_stdout_empty(capsys: pytest.CaptureFixture[str]) -> None:
    def refusing() -> Iterator[dict[str, object]]:
        raise RuntimeError("no such thing")
        yield {}

    for form in OutputFormat:
        with pytest.raises(RuntimeError):
            Output(form).stream("sessions", refusing(), columns=COLUMNS, nothing="No rows.")
        assert capsys.readouterr().out == ""


def test_a_row_in_a_pipe_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    name = "n" * 255
    Output(OutputFormat.TABLE).stream(
        "sessions", [{"name": name, "used_bytes": 2048}], columns=COLUMNS, nothing="No rows."
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].split() == [name, "2.0", "KiB"]


PROSE = "Everything that was stored is gone, and its keys are; what a backup holds stays there until that is gone."
PATH = "/srv/" + "long/" * 30 + "keys.json"


@pytest.mark.parametrize(("columns", "width"), [(None, 100), ("60", 60), ("", 100), ("wide", 100), ("0", 100)])
def test_prose_in_a_pipe_is_wrapped_between_words(
    columns: str | None, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table(columns=("check", "detail", "what to do"), rows=[("key", PROSE, PROSE), ("store", "short", "")])
    Output(OutputFormat.TABLE).show({}, table)
    lines = capsys.readouterr().out.splitlines()
    assert width - 20 < max(map(len, lines)) <= width
    assert lines == [line.rstrip() for line in lines]
    assert sorted(" ".join(lines).split()) == sorted(f"check detail what to do key {PROSE} {PROSE} store short".split())


def test_a_path_in_a_pipe_is_in_one_piece(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    Output(OutputFormat.TABLE).show({}, Table.of_fields({"keys": PATH, "statement": PROSE}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"keys       {PATH}"


def test_columns_line_up_also_where_characters_are_wide(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "\N{CJK UNIFIED IDEOGRAPH-4E2D}", "used_bytes": 1}, {"name": "ab", "used_bytes": 2}]
    Output(OutputFormat.TABLE).stream("sessions", rows, columns=COLUMNS, nothing="No rows.")
    assert capsys.readouterr().out == "name  used bytes\n\N{CJK UNIFIED IDEOGRAPH-4E2D}    1 B\nab    2 B\n"


def test_an_identifier_that_looks_like_markup_is_an_identifier(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("[bold]x[/bold]", "[/]", ":smile:", "\N{HEBREW LETTER ALEF}"):
        Output(OutputFormat.TABLE).show({}, Table.of_fields({"tenant": name}))
        assert name in capsys.readouterr().out


def test_moments_are_iso_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 3, 1, 14, 30, tzinfo=timezone(timedelta(hours=2)))
    Output(OutputFormat.JSON).show({"at": at, "never": None, "name": "ä"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"at": "2026-03-01T12:30:00.000000Z", "never": None, "name": "ä"}
    assert printed.isascii()
    assert moment(at) == "2026-03-01 12:30:00Z"
    assert moment(None) == "never"
    assert moment(datetime(2026, 1, 1, tzinfo=UTC)).startswith("2026-01-01")


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (64 * 2**20, "64.0 MiB"),
        (2**63 - 1, "8.0 EiB"),
        (None, "unlimited"),
    ],
)
def test_sizes_are_said_as_people_say_them(amount: int | None, said: str) -> None:
    assert size(amount) == said
    assert count(amount) == ("unlimited" if amount is None else str(amount))
