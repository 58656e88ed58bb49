"""Asking before something is destroyed or put right, and never asking where nobody can answer."""

import sys
from typing import Annotated

import typer

from tenancy.cli.exits import ExitCode, Refusal

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


def require_terminal(*, yes: bool, what: str = "destroys data") -> None:
    """
    Refuse before anything is opened if the question could not be asked.

    :param what: What the command does.
    :raises Refusal: Without `--yes` and without a terminal.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refusal(
            f"This {what}, and there is no terminal to ask at; pass --yes, or --dry-run to look first.",
            code=ExitCode.USAGE,
        )


def ask(question: str, *, yes: bool) -> None:
    """
    Ask on stderr, unless `--yes` is given.

    :raises Refusal: If the answer is no, or none.
    """
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise Refusal("Cancelled; nothing was changed.", code=ExitCode.FAILED)
