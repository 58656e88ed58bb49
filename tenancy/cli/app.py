"""The commands, put together. Each module of a command says what it does; this one says only what it is called."""

from enum import StrEnum
from typing import Annotated

import typer

from tenancy.cli import cleanup, db, doctor, erase, init, key_files, keys, limits, sessions, usage, verify
from tenancy.cli.demo import demo
from tenancy.cli.invocation import ConfigOption, DataOption, Invocation, OutputOption, choice, command
from tenancy.version import __version__


class LogLevel(StrEnum):
    """Which log records are shown on stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# Plain help and errors: a sentence in a box is cut into lines that no script can find. No pretty exceptions: they
# print local variables, and with them keys and content.
app = typer.Typer(
    name="tenancy",
    help="Isolated, encrypted, quota-bound tool-result stores for multi-user Haystack agents.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _group(name: str, about: str) -> typer.Typer:
    group = typer.Typer(name=name, help=about, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group)
    return group


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"haystack-tenancy {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    *,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = None,
    log_level: Annotated[
        LogLevel | None, choice("--log-level", LogLevel, help="Show log records from this level on, on stderr.")
    ] = None,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    context.obj = Invocation(data=data, config=config, format=output)
    if log_level is not None:
        import logging

        # The default handler writes to stderr, where everything goes that is not data.
        logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")


command(app, "init")(init.init)
command(app, "usage")(usage.usage)
command(app, "cleanup")(cleanup.cleanup)
command(app, "verify")(verify.verify)
command(app, "doctor")(doctor.doctor)
# Not `command`: it brings its own data directory and takes neither --data nor --config.
app.command("demo")(demo)

_db = _group("db", "The schema of the database.")
command(_db, "upgrade")(db.upgrade)
command(_db, "check")(db.check)

_sessions = _group("sessions", "The live sessions.")
command(_sessions, "list")(sessions.list_sessions)
command(_sessions, "show")(sessions.show)
command(_sessions, "delete")(sessions.delete)

_limits = _group("limits", "How much may be stored.")
command(_limits, "show")(limits.show)
command(_limits, "set")(limits.set_limits)

_keys = _group("keys", "The keys that everything is encrypted with.")
command(_keys, "list")(keys.list_keys)
command(_keys, "rotate")(keys.rotate)
command(_keys, "rewrap")(keys.rewrap)
command(_keys, "move")(keys.move)
command(_keys, "disable")(key_files.disable)
command(_keys, "enable")(key_files.enable)
command(_keys, "destroy")(key_files.destroy)

_erase = _group("erase", "Remove a user or a tenant for good.")
command(_erase, "user")(erase.user)
command(_erase, "tenant")(erase.tenant)
command(_erase, "receipt")(erase.receipt)
