"""The processes of a benchmark, and what they have to tell."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

#: Nothing of the parent's is in them: no thread, no connection.
PROCESSES: Final = multiprocessing.get_context("spawn")


def start_process(work: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """Start a process. The work gets, behind its arguments, the end of a pipe by which it tells."""
    hear, tell = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(*arguments, tell), daemon=True)
    process.start()
    # Only the child holds this end from now on, so that its death is heard.
    tell.close()
    return process, hear


def hear_from(process: Any, hear: Connection) -> Any:
    """Wait for the next thing a process tells."""
    try:
        return hear.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"A process of the benchmark died, with {process.exitcode}.") from None
