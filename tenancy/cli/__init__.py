"""The command `tenancy`. Nothing here imports Haystack, SQLAlchemy, alembic or cryptography before a command runs."""

import io
import os
import sys

from tenancy.cli.app import app


def main() -> None:
    """Run the command line of this process and exit with one of `tenancy.cli.exits.ExitCode`, or 130 if interrupted."""
    # Haystack's telemetry writes an id into HOME when it is imported, which a service user may not have, and calls its
    # maker. An operator's tool does neither, unless this is set.
    os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that this terminal cannot print must not end a command half way.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="tenancy")


def _open_closed_streams() -> None:
    """
    Put `/dev/null` where a caller closed a stream (`2>&-`, some cron and init systems), for which Python has `None`.

    In this order, so that each takes its own descriptor again: a database must not be opened as descriptor 1 or 2.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the process
