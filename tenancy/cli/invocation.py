"""What every command has: where it works, how it prints, and how it fails."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from tenancy.cli.exits import reported
from tenancy.cli.output import Output, OutputFormat
from tenancy.cli.place import Place

P = ParamSpec("P")


def _named(written: str) -> Path:
    # An unset variable, `--data "$DIR"`, must not mean the current directory.
    if not written:
        raise typer.BadParameter("a path must not be empty.")
    return Path(written)


DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        parser=_named,
        help="The data directory. [env: HAYSTACK_TENANCY_DATA]",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=_named,
        help="The TOML file of settings. [env: HAYSTACK_TENANCY_CONFIG]",
        show_default=False,
    ),
]


def choice(name: str, kind: type[StrEnum], *, help: str) -> Any:  # noqa: A002 - as typer calls it
    """Make an option that takes one of a few words, and whose refusal is in our words and not the parser's."""
    return typer.Option(name, parser=_one_of(name, kind), metavar=_metavar(kind), help=help, show_default=False)


def words(name: str, kind: type[StrEnum], *, help: str) -> Any:  # noqa: A002 - as typer calls it
    """Make an argument of that sort."""
    return typer.Argument(parser=_one_of(name, kind), metavar=_metavar(kind), help=help, show_default=False)


def _one_of(name: str, kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(written: str) -> StrEnum:
        if written not in tuple(kind):
            raise typer.BadParameter(f"must be one of {', '.join(kind)}.", param_hint=f"'{name}'")
        return kind(written)

    return parse


def _metavar(kind: type[StrEnum]) -> str:
    return f"[{'|'.join(kind)}]"


OutputOption = Annotated[OutputFormat | None, choice("--output", OutputFormat, help="How to print. [default: table]")]

_SHARED: Final = {"data": DataOption, "config": ConfigOption, "output": OutputOption}


@dataclass(frozen=True, slots=True)
class Invocation:
    """
    The shared options of one command, wherever on the command line they stood.

    :param data: `--data`.
    :param config: `--config`.
    :param format: `--output`.
    """

    data: Path | None
    config: Path | None
    format: OutputFormat | None

    @property
    def output(self) -> Output:
        """Where this command's data goes."""
        return Output(self.format or OutputFormat.TABLE)

    def place(self) -> Place:
        """
        Find out where to work.

        :raises Refusal: If that is not clear.
        :raises ConfigurationError: If the settings are not usable.
        """
        return Place.find(data=self.data, config=self.config)


def command(app: typer.Typer, name: str) -> Callable[[Callable[Concatenate[Invocation, P], None]], Callable[..., None]]:
    """
    Make a function a command that also takes the shared options, and whose errors end in a sentence and a code.

    :param app: The command or group it belongs to.
    :param name: What it is called there.
    """

    def register(function: Callable[Concatenate[Invocation, P], None]) -> Callable[..., None]:
        @wraps(function)
        def run(context: typer.Context, **options: Any) -> None:
            # What stands after the sub-command is nearer, so it wins over what stands before.
            outer: Invocation = context.find_root().obj
            invocation = Invocation(
                data=options.pop("data") or outer.data,
                config=options.pop("config") or outer.config,
                format=options.pop("output") or outer.format,
            )
            with reported():
                function(invocation, **options)  # type: ignore[call-arg]

        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *own,
            *(
                inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
                for each, annotation in _SHARED.items()
            ),
        ]
        # typer reads the signature and the annotations, each for itself.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name)(run)
        return run

    return register
