"""What a run left behind, held against what the table says of it."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tests.haystack.matrix.agents import FORGERIES, Asked, fetched
from tests.haystack.matrix.table import Cell, Outcome, Sight
from tests.haystack.support import CANARY, POINTER, results_of

_NO_SESSION: Final = "This run has no session, so there are no stored results to read."
_REMOVED: Final = "[Tool result removed to free up context."
#: In place of a page of a result, with the reference of that result.
_STILL_STORED: Final = re.compile(
    r"\[Removed to free up context\. Read it again with read_result\(reference='(.*)'\)\.\]"
)
_UNKNOWN: Final = "There is no such result in this session"
#: No message that stands for a result is longer.
_BOUND_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    Everything that can be known after a run.

    :param canary: The caller's, which is in the question and in all that is fetched for it.
    :param earlier: What was in the caller's session before, by reference.
    :param stored: What is in it now, by reference.
    :param names: What the results in it are called.
    :param unwarranted: By how much the results and sessions of everybody grew, beyond those in the caller's session.
    :param asked: What the models were asked, in order.
    :param contexts: What the developer's hooks of each level found in `hook_context`.
    :param answer: What the run returned.
    :param events: The events, in order.
    :param noise: What else was logged from WARNING up.
    :param bound: Where something was still bound afterwards.
    :param chunks: How many chunks of a stream arrived.
    """

    canary: str
    earlier: dict[str, str]
    stored: dict[str, Any]
    names: list[str]
    unwarranted: int
    asked: list[Asked]
    contexts: list[tuple[str, dict[str, Any]]]
    answer: dict[str, Any]
    events: list[str] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    chunks: int = 0

    @property
    def seen(self) -> list[str]:
        """The tool results the innermost agent had before it at its last step."""
        return results_of([asked for asked in self.asked if asked.level == "inner"][-1].messages)

    def topics(self) -> list[str]:
        """What the innermost agent asked for, in order."""
        last = [asked for asked in self.asked if asked.level == "inner"][-1].messages
        calls = [call for message in last for call in message.tool_calls if call.tool_name == "fetch"]
        return [call.arguments["topic"] for call in calls]


def complaints(cell: Cell, outcome: Outcome, evidence: Evidence, *, streams: bool) -> Iterator[str]:
    """
    Say in a sentence each what is not as the table has it.

    :param streams: Whether the way of the cell has chunks.
    """
    if evidence.answer["last_message"].text != "done":
        yield f"the run ended with {evidence.answer['last_message']}"
    if not any(asked.level == "inner" for asked in evidence.asked):
        yield "the innermost agent never ran"
        return
    yield from _of_what_is_stored(outcome, evidence)
    if not _sees(outcome.sight, evidence):
        yield f"the model does not see {outcome.sight} but {[text[:80] for text in evidence.seen]}"
    if set(evidence.events) != ({outcome.event} if outcome.event else set()):
        yield f"the events are {evidence.events}"
    if evidence.noise:
        yield f"somebody logged {evidence.noise}"
    if evidence.unwarranted:
        yield f"{evidence.unwarranted} results or sessions too many somewhere else"
    if evidence.bound:
        yield f"still bound: {evidence.bound}"
    if streams != (evidence.chunks > 0):
        yield f"{evidence.chunks} chunks arrived"
    yield from _of_what_models_saw(cell, evidence)


def _of_what_is_stored(outcome: Outcome, evidence: Evidence) -> Iterator[str]:
    wanted = {
        "nothing": [],
        "what was there": list(evidence.earlier.values()),
        "what was fetched": [fetched(topic) for topic in evidence.topics()],
        "what was fetched, but the newest": [fetched(topic) for topic in evidence.topics()[:-1]],
    }[outcome.stored]
    if sorted(map(str, evidence.stored.values())) != sorted(wanted):
        yield f"stored are {[str(content)[:40] for content in evidence.stored.values()]}"
    by_compactor = outcome.stored == "what was fetched, but the newest"
    if any(name.startswith("compacted_") != by_compactor for name in evidence.names if evidence.earlier == {}):
        yield f"they are called {evidence.names}"


def _of_what_models_saw(cell: Cell, evidence: Evidence) -> Iterator[str]:
    everything = " ".join(repr(message) for asked in evidence.asked for message in asked.messages)
    if set(CANARY.findall(everything)) != {evidence.canary}:
        yield f"a model saw {set(CANARY.findall(everything))}"
    for asked in evidence.asked:
        if asked.tools != asked.own_tools or asked.generation_kwargs:
            yield f"the {asked.level} model was asked with {asked.tools} and {asked.generation_kwargs}"
    # Nobody but a model could have given them one: the developer gives it to the outermost agent only.
    outermost = "inner" if cell.shape == "plain" else "outer"
    below = [context for level, context in evidence.contexts if level != outermost]
    if any(below):
        yield f"the hooks below found {below}"
    forgery = FORGERIES.get(cell.given)
    sent = [call.arguments for asked in evidence.asked for message in asked.messages for call in message.tool_calls]
    if forgery is not None and not any(forgery.items() <= arguments.items() for arguments in sent):
        yield "nothing was forged"


def _sees(sight: Sight, evidence: Evidence) -> bool:
    # Fewer or more results than there should be do not unpack, and are not what should be seen.
    with suppress(ValueError):
        return SIGHTS[sight](evidence)
    return False


def _all_references(evidence: Evidence) -> bool:
    return {reference for text in evidence.seen for reference in POINTER.findall(text)} == set(evidence.stored)


def _a_pointer(evidence: Evidence) -> bool:
    (text,) = evidence.seen
    return text.startswith("Tool result offloaded") and _all_references(evidence) and len(text) < _BOUND_CHARS


def _pointers_and_the_newest(evidence: Evidence) -> bool:
    *old, newest = evidence.seen
    pointers = [text.startswith("Tool result offloaded") and len(text) < _BOUND_CHARS for text in old]
    return pointers == [True, True] and _all_references(evidence) and newest == fetched(evidence.topics()[-1])


def _pages_of_which_the_newest_stays(evidence: Evidence) -> bool:
    first, *pages, second, newest = evidence.seen
    return (
        first.startswith("Tool result offloaded")
        and second.startswith("Tool result offloaded")
        and _all_references(evidence)
        and all((left := _STILL_STORED.fullmatch(page)) is not None and left[1] in evidence.stored for page in pages)
        and newest.startswith("[characters 0-")
        and evidence.topics()[-1] in newest
    )


def _its_own_pages(evidence: Evidence) -> bool:
    own, *others, found, listed = evidence.seen
    (reference,) = evidence.earlier
    return (
        own.startswith("[characters 0-")
        and evidence.earlier[reference].startswith(own.partition("\n")[2])
        and len(others) == 3
        and all(text.startswith(_UNKNOWN) for text in others)
        and reference in found
        and reference in listed
        and len(listed.splitlines()) == 2
    )


def _a_notice(evidence: Evidence) -> bool:
    (text,) = evidence.seen
    return text.startswith("[Not stored: this run has no session") and len(text) < _BOUND_CHARS


def _removed_and_the_newest(evidence: Evidence) -> bool:
    *old, newest = evidence.seen
    return [text.startswith(_REMOVED) for text in old] == [True, True] and newest == fetched(evidence.topics()[-1])


def _notices_removed(evidence: Evidence) -> bool:
    first, *answers, second, newest = evidence.seen
    return (
        first.startswith(_REMOVED)
        and second.startswith((_REMOVED, "[Not stored: this run has no session"))
        and {*answers, newest} == {_NO_SESSION}
    )


def _nothing_to_read(evidence: Evidence) -> bool:
    return set(evidence.seen) == {_NO_SESSION}


SIGHTS: Final[dict[Sight, Callable[[Evidence], bool]]] = {
    "a pointer": _a_pointer,
    "pointers, and the newest result whole": _pointers_and_the_newest,
    "pointers, old pages removed, and the newest page": _pages_of_which_the_newest_stays,
    "pages of its own session, and no such result elsewhere": _its_own_pages,
    "a bounded notice": _a_notice,
    "old results removed, and the newest whole": _removed_and_the_newest,
    "old notices removed, and no session to read from": _notices_removed,
    "no session to read from": _nothing_to_read,
}
