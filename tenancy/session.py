"""A session: one room, open to one user of one tenant. Everything in it is reached through this handle and no other."""

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY

from tenancy.backend import Backend
from tenancy.catalogue.sessions import OpenedSession
from tenancy.cleanup import Cleaner
from tenancy.errors import ResultNotFound, SessionNotFound
from tenancy.quotas import Usage
from tenancy.reading import Page, Reader, Result
from tenancy.references import parse_reference
from tenancy.scope import Scope
from tenancy.seam.binding import SessionStore, unbound_context
from tenancy.seam.pointers import original_of
from tenancy.translation import translated
from tenancy.unwanted import Unwanted
from tenancy.writing import write

if TYPE_CHECKING:
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage
    from haystack.hooks.tool_result_offloading.types import ToolResultStore


class Session:
    """
    An open session. Get one from `SessionManager.session`; close it, or use it in a `with` block.

    Safe for threads. A handle holds no connection and no lock. Once it is closed, or the session has expired or was
    erased, everything raises `SessionNotFound`, also in a thread that outlived its run. It cannot be pickled, and a
    copy of it is itself.
    """

    def __init__(self, backend: Backend, opened: OpenedSession, scope: Scope) -> None:
        self.scope = scope
        self._backend = backend
        self._opened = opened
        self._reader = Reader(backend, opened.ids, scope)
        self._closed = False
        #: Takes back what a hook has stored and nobody is to see. What cannot be deleted at once is listed no
        #: more by this handle, and goes before its next write.
        self.unwanted = Unwanted(self.delete)

    @property
    def store(self) -> "ToolResultStore":
        """This session as Haystack's `ToolResultStore`."""
        return SessionStore(self)

    @property
    def hook_context(self) -> dict[str, Any]:
        """What binds a run to this session: pass it to `agent.run(hook_context=…)`. A new dict each time."""
        return self._context()

    def write(self, content: str | bytes, *, name: str = "result") -> str:
        """
        Store a result. When this returns, it is as durable as the manager was opened to be.

        :param content: Text (any `str`, lone surrogates included) or bytes. The kind is kept.
        :param name: What to call it. Any text; no part of it becomes a path.
        :returns: The reference, at most 39 ASCII characters, never used again in this session.
        :raises SessionNotFound: If the session is closed or has ended. As with all errors, nothing is stored.
        :raises ResultTooLarge: If one result may not be that large.
        :raises QuotaExceeded: If the session, the user or the tenant may not have that much.
        :raises StorageUnavailable: If the catalogue or the store is away.
        :raises StorageFull: If the disk is full.
        :raises KeyUnavailable: If the key service is away.
        """
        return self.write_result(content, name=name)

    def write_result(
        self, content: str | bytes, *, name: str = "result", tool: str | None = None, media_type: str | None = None
    ) -> str:
        """
        Store a result, and say which tool it came from. For hooks; see `write`.

        :param tool: The tool's name. Sealed like the content, and shown by listings.
        :param media_type: The content's MIME type, likewise.
        """
        self._require_open()
        if isinstance(content, str):
            # Tools return `Markup`, `numpy.str_` and the like, and Haystack hands them on as they are.
            content = str.__str__(content)
        elif type(content) is not bytes:
            raise TypeError("A result is a str or bytes.")
        if not isinstance(name, str):
            raise TypeError("A result's name is a str.")
        self.unwanted.settle()
        with translated():
            # Of two writers that both come after a rotation it does not matter whose look at the keys is kept.
            reference, self._opened = write(
                self._backend, self._opened, content, name=name, tool=tool, media_type=media_type
            )
            return str(reference)

    def read(self, reference: str) -> str | bytes:
        """
        Return a whole result, of exactly the kind it was written as.

        :raises ResultNotFound: If this session has no such result. Missing, expired, deleted and foreign look alike.
        :raises SessionNotFound: If the session is closed or has ended.
        :raises ResultCorrupt: If what is stored is not what was written. Nothing of it is returned.
        :raises KeyUnavailable: If the key service is away.
        """
        self._require_open()
        with translated():
            return self._reader.read(reference)

    def read_page(
        self,
        reference: str,
        *,
        offset: int = 0,
        line: int | None = None,
        max_chars: int,
        max_lines: int | None = None,
    ) -> Page:
        """
        Return a part of a text, opening only what the part needs. Pages tile the text exactly.

        :param offset: Where to begin, in characters; a negative number counts from the end. Beyond the end the page is
            empty, and before the beginning it begins there.
        :param line: The line to begin at, from 1 on, in place of an offset; a negative number counts from the end. A
            line ends with a newline and nothing else.
        :param max_chars: How many characters at most; at least 1.
        :param max_lines: How many lines at most; at least 1. `None`: no bound but that of `max_chars`.
        :raises ValueError: If the result is not text, or a number is out of range.
        :raises ResultNotFound: See `read`, for this and the other errors.
        """
        self._require_open()
        if max_chars < 1 or (max_lines is not None and max_lines < 1):
            raise ValueError("max_chars and max_lines must be at least 1.")
        if line == 0 or (line is not None and offset != 0):
            raise ValueError("A page begins at a line from 1 on, or from -1 back, or at an offset, and not at both.")
        with translated():
            return self._reader.read_page(reference, offset=offset, line=line, max_chars=max_chars, max_lines=max_lines)

    def result(self, reference: str) -> Result:
        """
        Return what is known of one result, without its content.

        :raises ResultNotFound: See `read`, for this and the other errors.
        """
        self._require_open()
        with translated():
            return self._reader.result(reference)

    def results(self) -> Iterator[Result]:
        """
        Go through the readable results, newest first. Read in pages, so results written meanwhile may be missing.

        :raises SessionNotFound: If the session is closed or has ended.
        :raises ResultCorrupt: At a result whose card is damaged.
        """
        self._require_open()
        return self._listed()

    def _listed(self) -> Iterator[Result]:
        with translated():
            for result in self._reader.results():
                if result.reference not in self.unwanted:
                    yield result
                # Closed means closed, also for a listing that is under way.
                self._require_open()

    def delete(self, reference: str) -> None:
        """
        Delete a result. From this on it is unreadable for good, and its charge is given back.

        :raises ResultNotFound: If this session has no such result.
        :raises StorageUnavailable: If its bytes could not be removed. It is unreadable; cleanup removes the bytes.
        """
        self._require_open()
        parsed = parse_reference(reference)
        if parsed is None:
            raise ResultNotFound
        backend, ids = self._backend, self._opened.ids
        with translated():
            doomed = backend.catalogue.results.doom(ids, parsed, drop=backend.drop_one(ids))
            if doomed is None:
                raise ResultNotFound if backend.catalogue.sessions.is_live(ids) else SessionNotFound
            if not doomed.inline:
                Cleaner(backend).finish(doomed)

    def usage(self) -> Usage:
        """Return what this session has in use and what it may have."""
        self._require_open()
        with translated():
            if not self._backend.catalogue.sessions.is_live(self._opened.ids):
                raise SessionNotFound
            return self._backend.catalogue.administration.usage_of(self._opened.ids)

    def resolve(self, message: "ChatMessage") -> Any:
        """
        Return the original content behind an offloaded message.

        :param message: A tool-result message, for instance `last_message` of a run that exits on a tool.
        :returns: The content; a list of contents if the result had several parts; the message's own result if it was
            not offloaded; its text if it is not a tool result.
        :raises ResultNotFound: If the content is not in this session any more, or was never stored.
        """
        return original_of(message, self.read)

    def run(self, agent: "Agent", messages: "list[ChatMessage]", **kwargs: Any) -> dict[str, Any]:
        """
        Run an agent in this session, also from inside a tool that is bound to another one.

        :param kwargs: For `agent.run`. A `hook_context` among them is kept and gets this session's store.
        """
        self._require_open()
        kwargs["hook_context"] = self._context(kwargs.get("hook_context"))
        answer: dict[str, Any] = unbound_context().run(agent.run, messages=messages, **kwargs)
        return answer

    async def run_async(self, agent: "Agent", messages: "list[ChatMessage]", **kwargs: Any) -> dict[str, Any]:
        """Run an agent in this session. See `run`."""
        self._require_open()
        kwargs["hook_context"] = self._context(kwargs.get("hook_context"))
        call = agent.run_async(messages=messages, **kwargs)
        answer: dict[str, Any] = await asyncio.create_task(call, context=unbound_context())
        return answer

    def close(self) -> None:
        """Close this handle; the session itself lives on. May be repeated."""
        self._closed = True

    async def write_async(self, content: str | bytes, *, name: str = "result") -> str:
        """`write` for coroutines."""
        return await asyncio.to_thread(self.write, content, name=name)

    async def read_async(self, reference: str) -> str | bytes:
        """`read` for coroutines."""
        return await asyncio.to_thread(self.read, reference)

    async def read_page_async(
        self,
        reference: str,
        *,
        offset: int = 0,
        line: int | None = None,
        max_chars: int,
        max_lines: int | None = None,
    ) -> Page:
        """`read_page` for coroutines."""
        return await asyncio.to_thread(
            self.read_page, reference, offset=offset, line=line, max_chars=max_chars, max_lines=max_lines
        )

    async def results_async(self) -> list[Result]:
        """`results` for coroutines, all at once."""
        return await asyncio.to_thread(lambda: list(self.results()))

    async def resolve_async(self, message: "ChatMessage") -> Any:
        """`resolve` for coroutines."""
        return await asyncio.to_thread(self.resolve, message)

    async def delete_async(self, reference: str) -> None:
        """`delete` for coroutines."""
        await asyncio.to_thread(self.delete, reference)

    async def usage_async(self) -> Usage:
        """`usage` for coroutines."""
        return await asyncio.to_thread(self.usage)

    async def close_async(self) -> None:
        """`close` for coroutines."""
        self.close()

    def _context(self, given: dict[str, Any] | None = None) -> dict[str, Any]:
        return {**(given or {}), RESULT_STORE_CONTEXT_KEY: self.store}

    def _require_open(self) -> None:
        if self._closed or self._backend.closed:
            raise SessionNotFound

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.scope.short_hash})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Pipelines copy their inputs; a copied handle must still be this one.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Session cannot be pickled. Open it where it is needed with manager.session(...).")
