"""Saying on stderr what is happening, since the result comes only at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """
    Show one step after the other: as a line that moves on a terminal, as a line each elsewhere.

    :returns: To be called with what happens next.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda title: console.print(f"{title} …", markup=False, highlight=False, soft_wrap=True)
        return
    columns = (
        SpinnerColumn(finished_text="[green]done[/green]"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        tasks = []

        def begin(title: str) -> None:
            _finish()
            tasks.append(progress.add_task(title, total=1))

        def _finish() -> None:
            if tasks:
                progress.update(tasks[-1], completed=1)

        yield begin
        _finish()
