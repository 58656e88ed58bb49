"""What the demo works on: one installation, one agent, six people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haystack.hooks import Hook, HookPoint
from haystack.token_counters import TokenCounter
from haystack.tools import Toolset

from tenancy.demo.agent import ModelChoice, SharedAgent, build_agent
from tenancy.demo.people import Person
from tenancy.demo.requests import Call, request
from tenancy.demo.witness import Testimony
from tenancy.manager import SessionManager
from tenancy.seam.hooks import session_hooks
from tenancy.seam.tools import SessionToolset
from tenancy.session import Session
from tenancy.startup import RESULTS_FOLDER


@dataclass(frozen=True, slots=True)
class Parts:
    """
    What the demo puts to the test. Others can be put in its place.

    :param open_manager: Opens the installation in a directory.
    :param hooks: Makes the agent's hooks.
    :param toolset: Makes its tools for reading back.
    """

    # Looked up when a demo begins, so that it is put to the test what is there then.
    open_manager: Callable[[Path], SessionManager] = field(default_factory=lambda: SessionManager.local)
    hooks: Callable[..., dict[HookPoint, list[Hook]]] = session_hooks
    toolset: Callable[..., Toolset] = SessionToolset


@dataclass(slots=True)
class House:
    """
    One installation with its agent and people.

    :param folder: The data directory.
    :param manager: The one that is open at the moment.
    """

    folder: Path
    people: Sequence[Person]
    model: ModelChoice
    parts: Parts
    counter: TokenCounter
    shared: SharedAgent
    manager: SessionManager

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        people: Sequence[Person],
        model: ModelChoice,
        parts: Parts,
        counter: TokenCounter,
    ) -> "House":
        """
        Build the agent and open the installation.

        :raises InputRefused: If the model's key is missing.
        :raises TenancyError: Whatever opening the manager raises.
        """
        documents = [document for person in people for document in person.documents]
        shared = build_agent(documents, model=model, counter=counter, hooks=parts.hooks, toolset=parts.toolset)
        return cls(folder, people, model, parts, counter, shared, parts.open_manager(folder))

    @property
    def is_scripted(self) -> bool:
        """Whether the script answers everything, so that what the model does is known beforehand."""
        return self.model.name is None

    def files(self) -> frozenset[str]:
        """Name the files that results have on disk; those that are small go into the catalogue."""
        folder = self.folder / RESULTS_FOLDER
        return frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def reopen(self) -> None:
        """Open another manager on the same directory. The one before must have been closed."""
        self.manager = self.parts.open_manager(self.folder)

    def ask(self, session: Session, calls: Sequence[Call], *, run: str) -> Testimony:
        """
        Have the script make tool calls in a session, through the shared agent.

        :param session: Whose run it is.
        :param calls: What to call.
        :param run: A name for the run, used once.
        :returns: What the model saw.
        """
        session.run(self.shared.agent, [request(calls, run=run)])
        return self.shared.witness.testimony(run)

    def converse(self, session: Session, messages: list[Any], *, run: str) -> tuple[list[Any], Testimony]:
        """
        Carry on a conversation in a session.

        :param messages: The conversation, of which the last is the user's.
        :returns: The conversation with what has been added, and what the model saw.
        """
        result = session.run(self.shared.agent, messages)
        return list(result["messages"]), self.shared.witness.testimony(run)
