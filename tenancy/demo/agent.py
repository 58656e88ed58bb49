"""The one agent all users share, with tools that return what real tools return."""

import base64
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator, OpenAIChatGenerator
from haystack.dataclasses import ImageContent
from haystack.hooks import Hook, HookPoint
from haystack.hooks.tool_result_offloading import OffloadOverChars
from haystack.token_counters import TokenCounter
from haystack.tools import Toolset
from haystack.tools.tool import Tool
from haystack.utils import Secret

from tenancy.demo.documents import MIN_CHARS, Document, InputRefused, Kind
from tenancy.demo.requests import SYSTEM_PROMPT, Call
from tenancy.demo.script import MAX_PAGES, Script
from tenancy.demo.witness import ToolCallingGenerator, WitnessedGenerator

#: Small, so that the whole of a conversation would not fit: a page at a time does.
CONTEXT_WINDOW: Final = 16_000
PAGE_TOKENS: Final = 2_000
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_TIMEOUT_SECONDS: Final = 60.0
#: A real model that goes round in circles costs money.
_STEPS_OF_A_MODEL: Final = 60


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """
    Which model answers.

    :param name: Of a real model; `None` for the script.
    :param base_url: Where it is served, if not at OpenAI.
    """

    name: str | None = None
    base_url: str | None = None

    def generator(self, script: ToolCallingGenerator) -> ToolCallingGenerator:
        """
        Make the generator.

        :param script: What to return for the script.
        :raises InputRefused: If the key is missing.
        """
        if self.name is None:
            return script
        if os.environ.get(_KEY_VARIABLE):
            key = Secret.from_env_var(_KEY_VARIABLE)
        elif self.base_url is not None:
            # A server of one's own asks for none, but the client insists on sending one.
            key = Secret.from_token("none")
        else:
            raise InputRefused(f"--model: set {_KEY_VARIABLE}, or give --base-url for a server that needs no key.")
        return OpenAIChatGenerator(
            model=self.name, api_base_url=self.base_url, api_key=key, timeout=_TIMEOUT_SECONDS, max_retries=2
        )


@dataclass(frozen=True, slots=True)
class SharedAgent:
    """
    The agent and what stands between it and its model.

    :param agent: Built once, for everybody.
    :param witness: Knows what the model saw.
    """

    agent: Agent
    witness: WitnessedGenerator


def build_agent(
    documents: Iterable[Document],
    *,
    model: ModelChoice,
    counter: TokenCounter,
    hooks: Callable[..., dict[HookPoint, list[Hook]]],
    toolset: Callable[..., Toolset],
) -> SharedAgent:
    """
    Build the agent.

    :param documents: What its tools can fetch.
    :param model: Who answers.
    :param counter: Counts conversations.
    :param hooks: `tenancy.session_hooks`.
    :param toolset: `tenancy.SessionToolset`.
    :raises InputRefused: If the model's key is missing.
    """
    script = MockChatGenerator(response_fn=Script(counter).reply)
    witness = WitnessedGenerator(model.generator(script), script=script, counter=counter)
    agent = Agent(
        chat_generator=witness,
        system_prompt=SYSTEM_PROMPT,
        tools=[*fetch_tools(documents), toolset(page_tokens=PAGE_TOKENS)],
        hooks=hooks(offload={"*": OffloadOverChars(MIN_CHARS - 1)}, context_window=CONTEXT_WINDOW),
        # The longest run of the script: every page of every document in a step of its own.
        max_agent_steps=MAX_PAGES * 20 if model.name is None else _STEPS_OF_A_MODEL,
    )
    return SharedAgent(agent, witness)


def fetch_tools(documents: Iterable[Document]) -> list[Tool]:
    """
    Return a tool for each kind of document: text, JSON and CSV as text, an image as an image.

    :param documents: What they can fetch.
    """
    shelf = {(document.kind, document.name): document for document in documents}
    return [_fetch_tool(kind, shelf) for kind in Kind]


def tool_name(kind: Kind) -> str:
    """What the tool for a kind of document is called."""
    return f"fetch_{kind}_document"


def fetching(document: Document) -> Call:
    """Return the tool call that fetches a document."""
    return tool_name(document.kind), {"name": document.name}


def result_of(document: Document) -> str | list[ImageContent]:
    """Return what the tool returns for a document."""
    if isinstance(document.content, str):
        return document.content
    encoded = base64.b64encode(document.content).decode("ascii")
    return [ImageContent(base64_image=encoded, mime_type=document.media_type, validation=False)]


def _fetch_tool(kind: Kind, shelf: dict[tuple[Kind, str], Document]) -> Tool:
    def fetch(name: str) -> Any:
        document = shelf.get((kind, name))
        if document is None:
            return f"There is no {kind} document of that name."
        return result_of(document)

    return Tool(
        name=tool_name(kind),
        description=f"Fetch a document of kind {kind}.",
        parameters={
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Its name, exactly as it was given."}},
            "required": ["name"],
        },
        function=fetch,
        outputs_to_string={"raw_result": True} if kind is Kind.IMAGE else None,
    )
