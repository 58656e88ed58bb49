"""A session that is being opened, for coroutines."""

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from tenancy.session import Session


class OpeningSession:
    """
    What `SessionManager.session_async` returns: awaitable, and an asynchronous context manager.

    :param opener: Opens the session; called in a thread.
    """

    def __init__(self, opener: Callable[[], Session]) -> None:
        self._opener = opener
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return asyncio.to_thread(self._opener).__await__()

    async def __aenter__(self) -> Session:
        self._session = await self
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.close()
