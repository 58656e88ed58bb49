"""The tools a model reads stored results with: `SessionToolset()`."""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from haystack.components.agents.state import State
from haystack.core.serialization import generate_qualified_class_name
from haystack.token_counters import TokenCounter
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from tenancy.errors import ConfigurationError, ResultCorrupt, TenancyError
from tenancy.events import emit, facts_of
from tenancy.seam.answers import NO_SESSION, explained
from tenancy.seam.binding import session_of
from tenancy.seam.pages import Answer, Reader, Where
from tenancy.seam.searching import Searcher
from tenancy.seam.tokens import SafeTokenCounter, counter_from_dict
from tenancy.seam.tool_schemas import DESCRIPTIONS, NAMES, PARAMETERS, Purpose

if TYPE_CHECKING:
    from tenancy.session import Session

_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,40}\Z")
_MIN_PAGE_TOKENS: Final = 100


@dataclass
class ReadTool(Tool):
    """
    A tool that reads from the session of the run and from nothing else.

    Being a class of its own it stays recognisable when it is copied, renamed or prefixed: its answers are never
    offloaded. It takes the live `State`, which no model can supply, and answers in text whatever it is given.

    :param purpose: What it does: `"read"`, `"search"` or `"list"`.
    :param page_tokens: The most tokens an answer takes.
    :param images: Whether images come as `ImageContent`. Only for generators that take them in a tool result.
    :param files: Whether other files come as `FileContent`. Likewise.
    :param token_counter: Measures an answer. By default one that never asks the network.
    """

    purpose: Purpose = "read"
    page_tokens: int = 1000
    images: bool = False
    files: bool = False
    token_counter: TokenCounter | None = None

    def __post_init__(self) -> None:
        self.function = _function_of(self)
        takes_parts = self.purpose == "read" and (self.images or self.files)
        self.outputs_to_string = {"raw_result": True} if takes_parts else None
        super().__post_init__()

    def warm_up(self) -> None:
        """Load what the counter needs."""
        warm_up = getattr(self.token_counter, "warm_up", None)
        if callable(warm_up):
            warm_up()

    def invoke(self, /, **kwargs: Any) -> Any:
        """Answer a call. An argument named `self` would end the run with any other tool; here it is dropped."""
        kwargs.pop("self", None)
        return super().invoke(**kwargs)

    async def invoke_async(self, /, **kwargs: Any) -> Any:
        """Answer a call in a worker thread. See `invoke`."""
        kwargs.pop("self", None)
        return await super().invoke_async(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Serialise the settings; the function is made from them."""
        fields = ("name", "description", "parameters", "purpose", "page_tokens", "images", "files")
        data = {**{field: getattr(self, field) for field in fields}, **_counter_in(self.token_counter)}
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ReadTool":
        """Make the tool from what `to_dict` returned."""
        return cls(**_with_counter(data["data"]))


class SessionToolset(Toolset):
    """
    `read_result`, `search_result` and `list_results` for the session of the run.

    One toolset serves every agent, user and thread: it holds settings and no session. There is no tool that writes or
    deletes.
    """

    def __init__(
        self,
        *,
        prefix: str = "",
        page_tokens: int = 1000,
        images: bool = False,
        files: bool = False,
        token_counter: TokenCounter | None = None,
    ) -> None:
        """
        Make the tools.

        :param prefix: Goes before each name, where names would clash. Hints follow.
        :param page_tokens: The most tokens an answer takes, at least 100.
        :param images: Whether a stored image is read back as `ImageContent`. Chat Completions generators raise on that;
            the Responses generator takes it.
        :param files: Whether a stored PDF or office document is read back as `FileContent`. The same holds for that.
        :param token_counter: Measures the answers, each by itself and never a whole result. By default one that never
            asks the network.
        :raises ConfigurationError: If a value is not acceptable. The message names the argument.
        """
        if token_counter is not None and (isinstance(token_counter, type) or not hasattr(token_counter, "to_dict")):
            raise ConfigurationError("token_counter must be a Haystack TokenCounter.")
        if not isinstance(prefix, str) or not _PREFIX.match(prefix):
            raise ConfigurationError("prefix must have at most 40 letters, digits, underscores and hyphens.")
        if type(page_tokens) is not int or page_tokens < _MIN_PAGE_TOKENS:
            raise ConfigurationError(f"page_tokens must be a whole number of at least {_MIN_PAGE_TOKENS}.")
        self.prefix = prefix
        self.page_tokens = page_tokens
        self.images = images
        self.files = files
        self.token_counter = token_counter
        super().__init__(
            tools=[
                ReadTool(
                    name=prefix + NAMES[purpose],
                    description=DESCRIPTIONS[purpose],
                    parameters=deepcopy(PARAMETERS[purpose]),
                    purpose=purpose,
                    page_tokens=page_tokens,
                    images=images,
                    files=files,
                    token_counter=token_counter,
                )
                for purpose in NAMES
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Serialise the settings."""
        fields = ("prefix", "page_tokens", "images", "files")
        data = {field: getattr(self, field) for field in fields}
        data |= _counter_in(self.token_counter)
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SessionToolset":
        """Make the toolset from what `to_dict` returned."""
        return cls(**_with_counter(data["data"]))


def _counter_in(counter: TokenCounter | None) -> dict[str, Any]:
    return {} if counter is None else {"token_counter": counter.to_dict()}


def _with_counter(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "token_counter": counter_from_dict(data.get("token_counter"))}


def tool_named(state: State, name: str) -> Tool | None:
    """
    Return the tool of this step that is registered under a name.

    :param state: The Agent's live `State`.
    :param name: The name in a tool call.
    """
    return next((tool for tool in _tools_of(state) if tool.name == name), None)


def read_tool_of(state: State, purpose: Purpose = "read") -> ReadTool | None:
    """
    Return the read tool of this step for a purpose, whatever it is called.

    :param state: The Agent's live `State`.
    :param purpose: What it is to do.
    """
    return next((tool for tool in _tools_of(state) if isinstance(tool, ReadTool) and tool.purpose == purpose), None)


def _tools_of(state: State) -> list[Tool]:
    tools = state.data.get("tools")
    return [tool for tool in tools if isinstance(tool, Tool)] if isinstance(tools, list) else []


def _name_of(state: State, purpose: Purpose) -> str:
    tool = read_tool_of(state, purpose)
    return tool.name if tool is not None else NAMES[purpose]


def _function_of(tool: ReadTool) -> Callable[..., Answer]:
    # Haystack injects `state` by its annotation, which must be neither postponed nor defaulted. The models' arguments
    # are `Any`, and unknown ones are swallowed: a tool that raises shows all of its arguments to the model and the log.
    counter = tool.token_counter or SafeTokenCounter()
    reader = Reader(counter, page_tokens=tool.page_tokens, images=tool.images, files=tool.files)
    searcher = Searcher(counter, page_tokens=tool.page_tokens)

    def read_result(
        state: State,
        reference: Any = None,
        offset: Any = None,
        line: Any = None,
        lines: Any = None,
        path: Any = None,
        **unknown: Any,  # noqa: ARG001
    ) -> Answer:
        def answer(session: "Session") -> Answer:
            where = Where(offset=offset, line=line, lines=lines, path=path)
            return reader.read(session, reference=reference, where=where, name=_name_of(state, "read"))

        return _answered(state, answer)

    def search_result(
        state: State,
        query: Any = None,
        reference: Any = None,
        regex: Any = False,
        offset: Any = None,
        **unknown: Any,  # noqa: ARG001
    ) -> Answer:
        def answer(session: "Session") -> Answer:
            asked = {"query": query, "reference": reference, "is_pattern": regex, "offset": offset}
            return searcher.search(session, **asked, read_name=_name_of(state, "read"))

        return _answered(state, answer)

    def list_results(state: State, page: Any = 1, skip: Any = 0, **unknown: Any) -> Answer:  # noqa: ARG001
        def answer(session: "Session") -> Answer:
            names = {"read_name": _name_of(state, "read"), "name": _name_of(state, "list")}
            return searcher.listed(session, page=page, skip=skip, **names)

        return _answered(state, answer)

    functions: dict[Purpose, Callable[..., Answer]] = {
        "read": read_result,
        "search": search_result,
        "list": list_results,
    }
    return functions[tool.purpose]


def _answered(state: State, answer: "Callable[[Session], Answer]") -> Answer:
    session = session_of(state)
    if session is None:
        return NO_SESSION
    try:
        return answer(session)
    except TenancyError as error:
        if isinstance(error, ResultCorrupt):
            emit("corrupt", session=session.scope.short_hash)
        return explained(error, list_name=_name_of(state, "list"))
    except Exception as error:  # noqa: BLE001 - see `_function_of`
        emit("read_failed", session=session.scope.short_hash, **facts_of(error))
        return "This result could not be read."
