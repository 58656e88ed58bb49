"""
What becomes of a tool's result, whoever runs the agent in whatever way: the one table.

A cell is a *way* to run an agent, the *shape* of the agent, the *part* of ours that is at work in it, and what the run
is *given* that says, or claims to say, whose it is. The way never makes a difference. Among the shapes only one does:
an agent with other agents below it has tools whose arguments reach an agent, a plain one has none. So the table has two
sheets, and each holds for all seven ways.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal

#: How a run is started. The streaming ones pass a callback, which sub-agents get too.
WAYS: Final = (
    "run",
    "run_async",
    "run, streaming",
    "run_async, streaming",
    "Pipeline.run",
    "Pipeline.run_async",
    "Pipeline.stream",
)
#: What is run. The innermost agent fetches and reads; those above it only delegate.
SHAPES: Final = ("plain", "AgentTool", "two levels of AgentTool", "ComponentTool(Agent)", "PipelineTool")
#: What of ours is at work in the innermost agent.
PARTS: Final = ("offload hook", "offload compactor", "pruning", "read tools")
#: What says whose the run is. The forged ones have a session too; a model adds the forgery to the arguments of every
#: delegation and every read.
GIVEN: Final = (
    "a session",
    "nothing",
    "{}",
    "None under the key",
    "a text under the key",
    "another's, when bound",  # another user's handle, for a run inside a tool that is bound to the caller's session
    "forged hook_context",
    "forged tools",
    "forged generation_kwargs",
)

Stored = Literal["nothing", "what was fetched", "what was fetched, but the newest", "what was there"]
Sight = Literal[
    "a pointer",
    "pointers, and the newest result whole",
    "pointers, old pages removed, and the newest page",
    "pages of its own session, and no such result elsewhere",
    "a bounded notice",
    "old results removed, and the newest whole",
    "old notices removed, and no session to read from",
    "no session to read from",
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What holds after the run, besides what holds in every cell.

    In every cell: the run completes; nobody else's session and no store of a constructor gets anything; no model sees
    anybody else's canary; each model is offered exactly its own tools and sampled as its developer said; the hooks of
    a sub-agent find nothing of a model's in `hook_context`; nothing is bound afterwards.

    :param stored: What is in the caller's session afterwards, to the letter, and nothing else.
    :param sight: What stands in the conversation of the innermost agent at its last step.
    :param event: The event the operator hears, or `None`. There are no others.
    """

    stored: Stored
    sight: Sight
    event: str | None = None


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """There is no such cell, and why."""

    reason: str


# With a session. What a model forges has no effect, so these are the outcomes of forgery too.
STORED = Outcome("what was fetched", "a pointer")
MOVED = Outcome("what was fetched, but the newest", "pointers, and the newest result whole")
PRUNED = Outcome("what was fetched", "pointers, old pages removed, and the newest page")
READ = Outcome("what was there", "pages of its own session, and no such result elsewhere")

# Without one. Compaction that stores nothing and reading lose nothing, so the operator need not hear of them.
NOTICE = Outcome("nothing", "a bounded notice", event="unbound")
REMOVED = Outcome("nothing", "old results removed, and the newest whole")
NOTICES = Outcome("nothing", "old notices removed, and no session to read from", event="unbound")
NO_SESSION = Outcome("what was there", "no session to read from")

# With somebody else's.
NOTICE_F = replace(NOTICE, event="foreign_session")
REMOVED_F = replace(REMOVED, event="foreign_session")
NOTICES_F = replace(NOTICES, event="foreign_session")
NO_SESSION_F = replace(NO_SESSION, event="foreign_session")

NO_AGENT = NotApplicable("No argument of a plain agent's tools reaches an agent. It is for the tool itself to take.")

Row = tuple[Outcome | NotApplicable, Outcome | NotApplicable, Outcome | NotApplicable, Outcome | NotApplicable]

# fmt: off
#: Agents with agents below them: `AgentTool`, two levels of it, `ComponentTool(Agent)` and `PipelineTool`.
NESTED: Final[dict[str, Row]] = {
    #                           offload hook  offload compactor  pruning    read tools
    "a session":                (STORED,      MOVED,             PRUNED,    READ),
    "nothing":                  (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "{}":                       (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "None under the key":       (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "a text under the key":     (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "another's, when bound":    (NOTICE_F,    REMOVED_F,         NOTICES_F, NO_SESSION_F),
    "forged hook_context":      (STORED,      MOVED,             PRUNED,    READ),
    "forged tools":             (STORED,      MOVED,             PRUNED,    READ),
    "forged generation_kwargs": (STORED,      MOVED,             PRUNED,    READ),
}
#: An agent of its own. A model's arguments reach its read tools, and nothing else of ours.
PLAIN: Final[dict[str, Row]] = {
    #                           offload hook  offload compactor  pruning    read tools
    "a session":                (STORED,      MOVED,             PRUNED,    READ),
    "nothing":                  (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "{}":                       (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "None under the key":       (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "a text under the key":     (NOTICE,      REMOVED,           NOTICES,   NO_SESSION),
    "another's, when bound":    (NOTICE_F,    REMOVED_F,         NOTICES_F, NO_SESSION_F),
    "forged hook_context":      (NO_AGENT,    NO_AGENT,          PRUNED,    READ),
    "forged tools":             (NO_AGENT,    NO_AGENT,          PRUNED,    READ),
    "forged generation_kwargs": (NO_AGENT,    NO_AGENT,          PRUNED,    READ),
}
# fmt: on

SHEETS: Final = {
    "plain": PLAIN,
    "AgentTool": NESTED,
    "two levels of AgentTool": NESTED,
    "ComponentTool(Agent)": NESTED,
    "PipelineTool": NESTED,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. Its text names it in a failure."""

    way: str
    shape: str
    part: str
    given: str

    def __str__(self) -> str:
        return f"[{self.way} | {self.shape} | {self.part} | {self.given}]"


def cells(*, way: str | None = None, shape: str | None = None) -> list[Cell]:
    """All cells, or those of one way and shape."""
    ways = WAYS if way is None else (way,)
    shapes = SHAPES if shape is None else (shape,)
    return [Cell(*combination) for combination in product(ways, shapes, PARTS, GIVEN)]


def expected(cell: Cell) -> Outcome | NotApplicable:
    """Look a cell up. A missing one is a `KeyError`."""
    return SHEETS[cell.shape][cell.given][PARTS.index(cell.part)]


def diagonal() -> list[Cell]:
    """
    One cell for each part and each given, in which every way meets every shape: seven and five share no divisor.

    Where the plain agent's cell is not applicable, the same one of the agent with one below it stands in.
    """
    turned = []
    for n, (part, given) in enumerate(product(PARTS, GIVEN)):
        cell = Cell(WAYS[n % len(WAYS)], SHAPES[n % len(SHAPES)], part, given)
        turned.append(cell if isinstance(expected(cell), Outcome) else replace(cell, shape="AgentTool"))
    return turned
