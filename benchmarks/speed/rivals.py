"""
What others sell for the same purpose, each with the store it has for one machine and nothing changed about it.

All of them come with the extra `bench`, and each is imported when it is opened: whoever lacks one measures the others.
Their async calls run in one event loop that lives as long as the store does, one call at a time; to hand a call to the
loop and to wait for it takes some 20 µs, which an application in that loop would not pay and which is left in. Each is
opened once and stays open, as ours does; an application that opens its session anew for each request pays more.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Rival:
    """
    An open store.

    :param write: Stores a text, and returns what `read` wants to have.
    :param reads_newest: Whether `read` gets the last text that was written, whatever it is asked for.
    """

    write: Callable[[str], Any]
    read: Callable[[Any], str | bytes]
    reads_newest: bool = False


@contextmanager
def _encrypted_session(folder: Path) -> Iterator[Rival]:
    from agents import SQLiteSession
    from agents.extensions.memory import EncryptedSession

    with asyncio.Runner() as runner, closing(SQLiteSession("chat", folder / "sessions.sqlite3")) as plain:
        run = runner.get_loop().run_until_complete
        session = EncryptedSession("chat", plain, secrets.token_urlsafe(32), ttl=24 * 3600)
        run(session.get_items(limit=1))

        def write(text: str) -> None:
            run(session.add_items([{"type": "function_call_output", "call_id": "1", "output": text}]))

        def read(_: object) -> str:
            # There is no other way to one item than from the end of the history.
            (item,) = run(session.get_items(limit=1))
            return str(item["output"])

        yield Rival(write, read, reads_newest=True)


@contextmanager
def _deepagents(folder: Path) -> Iterator[Rival]:
    from deepagents.backends import FilesystemBackend

    backend, numbers = FilesystemBackend(root_dir=folder, virtual_mode=True), count()

    def write(text: str) -> str:
        path = f"/{next(numbers)}.txt"
        if backend.write(path, text).error is not None:
            raise RuntimeError("deepagents could not write.")
        return path

    def read(path: str) -> str:
        return str(backend.read(path, limit=10**9).file_data["content"])

    yield Rival(write, read)


@contextmanager
def _langgraph(folder: Path) -> Iterator[Rival]:
    from langgraph.store.sqlite import SqliteStore

    with SqliteStore.from_conn_string(str(folder / "store.sqlite3")) as store:
        store.setup()
        numbers = count()

        def write(text: str) -> str:
            key = str(next(numbers))
            store.put(("acme", "u", "chat"), key, {"content": text})
            return key

        yield Rival(write, lambda key: str(store.get(("acme", "u", "chat"), key).value["content"]))


@contextmanager
def _google_adk(folder: Path) -> Iterator[Rival]:
    from google.adk.artifacts.file_artifact_service import FileArtifactService
    from google.genai import types

    with asyncio.Runner() as runner:
        run = runner.get_loop().run_until_complete
        service, numbers = FileArtifactService(folder), count()
        room = {"app_name": "acme", "user_id": "u", "session_id": "chat"}

        def write(text: str) -> str:
            name = f"{next(numbers)}.txt"
            run(service.save_artifact(**room, filename=name, artifact=types.Part(text=text)))
            return name

        yield Rival(write, lambda name: str(run(service.load_artifact(**room, filename=name)).text))


#: By name: how to open it in a folder.
RIVALS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Rival]]]] = {
    "OpenAI EncryptedSession": _encrypted_session,
    "deepagents": _deepagents,
    "LangGraph SqliteStore": _langgraph,
    "Google ADK": _google_adk,
}
