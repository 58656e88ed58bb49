"""Exit codes, and which error ends a command with which."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Final

import typer

from tenancy.cli.output import flush
from tenancy.errors import (
    AlreadyRunning,
    ConfigurationError,
    ResultNotFound,
    SchemaOutdated,
    ScopeError,
    SessionNotFound,
    TenancyError,
)


class ExitCode(IntEnum):
    """What a command's exit code says. They are pinned: scripts rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    PARTLY_DONE = 3
    NOT_FOUND = 4
    ALREADY_RUNNING = 5
    SCHEMA_NOT_CURRENT = 6


_INTERRUPTED: Final = 130
_CODES: Final = (
    (ConfigurationError, ExitCode.USAGE),
    (ScopeError, ExitCode.USAGE),
    (SchemaOutdated, ExitCode.SCHEMA_NOT_CURRENT),
    (AlreadyRunning, ExitCode.ALREADY_RUNNING),
    (SessionNotFound, ExitCode.NOT_FOUND),
    (ResultNotFound, ExitCode.NOT_FOUND),
)


class Refusal(Exception):
    """
    A command ends here.

    :param message: One sentence for the person at the terminal.
    :param code: What the exit code says.
    """

    def __init__(self, message: str, *, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: TenancyError) -> ExitCode:
    """Return the exit code for an error of the library."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


@contextmanager
def reported() -> Iterator[None]:
    """
    Turn what is raised inside into one sentence on stderr and an exit code; never a traceback for an error of ours or
    of the operating system's.

    :raises typer.Exit: With the code.
    """
    try:
        yield
        flush()
    except Refusal as refusal:
        message, code = str(refusal), int(refusal.code)
    except TenancyError as error:
        message, code = str(error) or type(error).__name__, int(code_of(error))
    except BrokenPipeError:
        # Nobody reads on, which is no error to speak of. typer ends the command.
        raise
    except OSError as error:
        message, code = _spoken(error), int(ExitCode.FAILED)
    except KeyboardInterrupt:
        message, code = "Interrupted.", _INTERRUPTED
    else:
        return
    with suppress(OSError):
        flush()
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code)


def _spoken(error: OSError) -> str:
    where = f" ({error.filename})" if isinstance(error.filename, str) else ""
    return f"The operating system refuses: {error.strerror or type(error).__name__}{where}."
