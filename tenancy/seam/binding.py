"""
The binding of a run to its session.

`hook_context` alone binds a run. What runs inside a tool (a sub-agent, a pipeline, a compactor) finds the session in a
context variable that our hooks set around the call and reset after it, so nothing is left behind in a pool thread, a
generator or a dependency.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from haystack.components.agents.state import State
from haystack.core.serialization import default_to_dict
from haystack.hooks.tool_result_offloading import RESULT_STORE_CONTEXT_KEY
from haystack.hooks.tool_result_offloading.types import ToolResultStore

from tenancy.errors import NoActiveSession, ResultNotFound, TenancyError
from tenancy.events import Event, emit, facts_of

if TYPE_CHECKING:
    from tenancy.session import Session


#: How many references in one text are looked up.
_MOST_ASKED: Final = 8
#: The key that `ToolResultOffloadCompactor` makes: the tool's name between a word and a UUID.
_COMPACTED: Final = re.compile(r"compacted_(.+)_[0-9a-f]{32}(?![0-9a-f])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Binding:
    """
    Where a run may write: into one session, or nowhere.

    :param session: The session, or `None`.
    :param refused_as: The event that says why a session was refused, or `None` if there simply is none. A refusal is
        inherited by everything that runs inside, so that it cannot be shaken off by one more level of nesting.
    :param written: Collects the references written under this binding, if somebody wants to know.
    """

    session: "Session | None" = None
    refused_as: Event | None = None
    written: list[str] | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class _Call:
    """What binds while one call runs. A task or thread that was started inside may outlive it, with a copy of this."""

    binding: Binding | None


#: `None` means that nothing binds: neither a session nor a refusal.
_BOUND: ContextVar[_Call | None] = ContextVar("tenancy_binding", default=None)


def _inherited() -> Binding | None:
    call = _BOUND.get()
    return None if call is None else call.binding


@contextmanager
def bound(binding: Binding) -> Iterator[None]:
    """
    Bind everything that runs inside the block, including threads and tasks that copy this context.

    What was started inside and goes on afterwards, such as a worker shared by all users, is bound to nothing from then
    on: it no longer runs for whoever happened to start it.

    :param binding: What to bind to.
    """
    call = _Call(binding)
    token = _BOUND.set(call)
    try:
        yield
    finally:
        call.binding = None
        # An abandoned coroutine is closed by the garbage collector, in a context of its own, in which nothing was set:
        # there is nothing to undo.
        with suppress(ValueError):
            _BOUND.reset(token)


def unbound_context() -> Context:
    """
    Return a copy of the current context in which no session is bound.

    `session.run()` runs its agent in it, so that it uses its own session also inside a tool bound to another one. The
    caller's context is not touched.
    """
    context = copy_context()
    context.run(_BOUND.set, None)
    return context


def binding_of(state: State) -> Binding:
    """
    Find the session of a run.

    The handle in `hook_context` counts if it is a live one of ours and does not differ, by scope, from the session this
    run inherits. Anything else under the key (`None`, a text, a host's own store) is treated as absent: the run then
    uses what it inherits.

    :param state: The Agent's live `State`.
    :returns: The binding. Its session is `None` if there is none or if it was refused.
    """
    inherited = _inherited()
    if inherited is not None and inherited.refused_as is not None:
        return inherited
    context = state.data.get("hook_context")
    handle = context.get(RESULT_STORE_CONTEXT_KEY) if isinstance(context, dict) else None
    if not isinstance(handle, SessionStore):
        return inherited or Binding()
    session = handle.session_or_none
    if session is None:
        # It came back with a restored State, so whoever serialised it is not known to be who runs now.
        return Binding(refused_as="unbound")
    if inherited is not None and inherited.session is not None and inherited.session.scope != session.scope:
        return Binding(refused_as="foreign_session")
    return Binding(session)


def session_of(state: State) -> "Session | None":
    """
    Return the session of a run, or `None`. A foreign one is reported, once, where it is found.

    :param state: The Agent's live `State`.
    """
    binding = binding_of(state)
    report_foreign(binding)
    return binding.session


def report_foreign(binding: Binding) -> None:
    """
    Emit `foreign_session` if the binding was refused for it just now, not further out.

    :param binding: What `binding_of` returned.
    """
    inherited = _inherited()
    if binding.refused_as == "foreign_session" and inherited is not binding:
        scope = inherited.session.scope.short_hash if inherited is not None and inherited.session is not None else None
        emit("foreign_session", session=scope)


class Holds:
    """
    Tells of references in a text whether a session has results under them; not, where that cannot be found out.

    It asks the session a few times at most, and not again when the storage did not answer: the text is a tool's.
    """

    def __init__(self, session: "Session | None") -> None:
        self._session = session
        self._left = _MOST_ASKED if session is not None else 0
        self._known: dict[str, bool] = {}

    def __call__(self, reference: str) -> bool:
        """Tell of one reference."""
        if reference not in self._known:
            self._known[reference] = self._asked(reference)
        return self._known[reference]

    def _asked(self, reference: str) -> bool:
        if self._left <= 0 or self._session is None:
            return False
        self._left -= 1
        try:
            self._session.result(reference)
        except ResultNotFound:
            return False
        except TenancyError:
            self._left = 0
            return False
        return True


class SessionStore(ToolResultStore):
    """
    One session as Haystack's `ToolResultStore`. The handle that goes into `hook_context`.

    A copy is the handle itself, since `Pipeline.run` and `State.get` copy what they pass on. Serialised, it holds
    nothing, and what comes back refuses everything. It cannot be pickled.
    """

    supports_binary_content = True

    def __init__(self, session: "Session | None") -> None:
        """
        Make a handle.

        :param session: The session, or `None` for a handle that refuses everything.
        """
        self._session = session

    @property
    def session_or_none(self) -> "Session | None":
        """The session, or `None` if this handle was revived from its serialised form."""
        return self._session

    def write(self, *, key: str, content: str | bytes, tool: str | None = None) -> str:
        """
        Store a result and return its reference.

        :param key: What the hook calls the result. Hostile text: it is sealed with the content and never a path.
        :param content: Text or bytes. Read back as exactly that.
        :param tool: The tool's name where it is known for sure. Haystack itself does not say.
        :raises NoActiveSession: If this handle was revived from its serialised form.
        :raises TenancyError: Whatever `Session.write` raises. An event `not_stored` tells the operator.
        """
        session = self._live()
        try:
            return session.write_result(content, name=key, tool=tool)
        except TenancyError as error:
            emit("not_stored", session=session.scope.short_hash, **facts_of(error))
            raise

    def read(self, reference: str) -> str | bytes:
        """
        Return what was stored, text as text and bytes as bytes.

        :param reference: What `write` returned.
        :raises NoActiveSession: If this handle was revived from its serialised form.
        :raises TenancyError: Whatever `Session.read` raises.
        """
        return self._live().read(reference)

    def to_dict(self) -> dict[str, Any]:
        """Serialise to a handle that refuses everything."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:  # noqa: ARG003 - nothing in it is trusted
        """Return a handle that refuses everything, whatever the data says."""
        return cls(None)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A session handle cannot be pickled. Open the session again where it is needed.")

    def __repr__(self) -> str:
        return f"SessionStore({'revived' if self._session is None else self._session.scope.short_hash})"

    def _live(self) -> "Session":
        if self._session is None:
            raise NoActiveSession
        return self._session


class RoutedStore(ToolResultStore):
    """
    The constructor store of every hook and compactor: finds the session bound to whatever is running, or refuses.

    It has no state and no default, so it serialises with the agent and nothing is ever written outside a session.
    """

    supports_binary_content = True

    def write(self, *, key: str, content: str | bytes) -> str:
        """
        Store a result in the bound session and return its reference.

        :param key: See `SessionStore.write`.
        :param content: See `SessionStore.write`.
        :raises NoActiveSession: If nothing is bound. An event `unbound` tells the operator.
        :raises TenancyError: Whatever `Session.write` raises.
        """
        binding = _inherited() or Binding()
        if binding.session is None:
            emit(binding.refused_as or "unbound")
            raise NoActiveSession
        found = _COMPACTED.match(key) if binding.written is not None else None
        tool = found[1] if found is not None else None
        reference = SessionStore(binding.session).write(key=key, content=content, tool=tool)
        if binding.written is not None:
            binding.written.append(reference)
        return reference

    def read(self, reference: str) -> str | bytes:
        """
        Return what was stored in the bound session.

        :param reference: What `write` returned.
        :raises NoActiveSession: If nothing is bound.
        :raises TenancyError: Whatever `Session.read` raises.
        """
        binding = _inherited() or Binding()
        return SessionStore(binding.session).read(reference)

    def to_dict(self) -> dict[str, Any]:
        """Serialise. There is nothing to hold."""
        return default_to_dict(self)

    def __repr__(self) -> str:
        return "RoutedStore()"
