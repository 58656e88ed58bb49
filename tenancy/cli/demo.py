"""`tenancy demo`: the main job on real input, with a verdict on every promise."""

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tenancy.cli.exits import ExitCode, Refusal, reported
from tenancy.cli.invocation import Invocation, OutputOption
from tenancy.cli.output import Output, OutputFormat, Table, note

if TYPE_CHECKING:
    from tenancy.demo.documents import Document
    from tenancy.demo.report import Report

_TERMINATED = 143


def demo(
    context: typer.Context,
    *,
    input_folder: Annotated[
        Path | None,
        typer.Option("--input", metavar="DIR", help="Your own texts, JSON, CSV and images.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="A real model; the key is read from OPENAI_API_KEY.", show_default=False
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url", metavar="URL", help="Where the model is served (Chat Completions).", show_default=False
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Leave the data in a new or empty directory.", show_default=False),
    ] = None,
    output: OutputOption = None,
) -> None:
    """
    Run the main job and check every promise: six users of three tenants on one agent, at once.

    The tools return files of installed packages, or yours. Exits 0 only if every check holds.
    """
    outer: Invocation = context.find_root().obj
    with reported():
        if outer.data is not None or outer.config is not None:
            raise Refusal("The demo brings its own data directory; use --keep to have it left.", code=ExitCode.USAGE)
        if base_url is not None and model is None:
            raise Refusal("--base-url says where a model is; give --model too.", code=ExitCode.USAGE)
        with _prepared(keep):
            report = _run(input_folder=input_folder, model=model, base_url=base_url, keep=keep)
        _show(report, Output(output or outer.format or OutputFormat.TABLE))
        if keep is not None:
            note(f"Kept. Look at it with: tenancy sessions list --data {keep}")
        if not report.ok:
            raise Refusal("Not every check holds; see above.", code=ExitCode.FAILED)


def _run(*, input_folder: Path | None, model: str | None, base_url: str | None, keep: Path | None) -> "Report":
    # Imported here: no other command should wait for Haystack and its generators.
    from tenancy.demo.agent import ModelChoice
    from tenancy.demo.demo import Demo
    from tenancy.demo.documents import InputRefused
    from tenancy.demo.progress import steps

    with _ended_cleanly(), tempfile.TemporaryDirectory(prefix="tenancy-demo-") as scratch, steps() as on_step:
        on_step("Looking for documents")
        try:
            return Demo(
                Path(scratch, "data"),
                documents=_documents(input_folder),
                model=ModelChoice(model, base_url),
                keep=keep,
                on_step=on_step,
            ).run()
        except InputRefused as refused:
            raise Refusal(str(refused), code=ExitCode.USAGE) from None


def _documents(folder: Path | None) -> "list[Document]":
    from tenancy.demo.folder import documents_in
    from tenancy.demo.installed import installed_documents
    from tenancy.demo.people import SCOPES

    return installed_documents(each=len(SCOPES)) if folder is None else documents_in(folder)


def _show(report: "Report", output: Output) -> None:
    output.show(
        report.document,
        Table(columns=("", "check", "what it says"), rows=report.check_rows),
        Table(columns=("figure", ""), rows=report.figure_rows),
    )
    for what, kind in report.problems.items():
        note(f"{what}: {kind}")


@contextmanager
def _prepared(keep: Path | None) -> Iterator[None]:
    """Have the directory for keeping there from the start, and not there in the end if nothing came of it."""
    if keep is None:
        yield
        return
    try:
        keep.mkdir(mode=0o700)
        is_new = True
    except FileExistsError:
        is_new = False
        if keep.is_symlink() or not keep.is_dir() or any(keep.iterdir()):
            raise Refusal(f"--keep: {keep} must be a new or empty directory.", code=ExitCode.USAGE) from None
    except OSError:
        raise Refusal(f"--keep: {keep} cannot be made.", code=ExitCode.USAGE) from None
    try:
        yield
    finally:
        if is_new and not any(keep.iterdir()):
            keep.rmdir()


@contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Have a polite end of the process (`kill`, `timeout`) remove the data as Ctrl-C does."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
