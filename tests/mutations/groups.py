"""All mutants, by what they take away, and the tests that should notice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.mutations.contexts import bound_contexts
from tests.mutations.files import file_checks
from tests.mutations.names import grammars
from tests.mutations.predicates import which_rows, whose_rows
from tests.mutations.row_security import policies
from tests.mutations.seam import bindings
from tests.mutations.sources import Mutant, numbered

_ONLY: Final = "not postgresql and not Postgres"


@dataclass(frozen=True, slots=True)
class Stage:
    """
    One call of pytest.

    :param tests: Files and folders, in the order in which they are run.
    :param only: What `-k` takes.
    """

    tests: tuple[str, ...]
    only: str = _ONLY


@dataclass(frozen=True, slots=True)
class Group:
    """
    Mutants of one kind.

    :param what: What is taken away, in a few words.
    :param stages: The likeliest and quickest to notice first. A mutant is caught by the first that fails.
    :param is_extra: Not a part of any promise: looked at when asked for. What is caught there tells how often something
        is checked twice, since most of these predicates stand behind others.
    """

    name: str
    what: str
    make: Callable[[], Iterator[Mutant]]
    stages: tuple[Stage, ...]
    is_extra: bool = False


def _stage(folder: str, *names: str, only: str = _ONLY) -> Stage:
    return Stage(tuple(f"tests/{folder}/test_{name}.py" for name in names), only)


#: What the core promises, without what only asks more of the machine.
_CORE: Final = _stage(
    "core",
    *("foreign_ids", "references", "listing", "lifetimes", "cleanup", "erasure", "verify", "limits", "quotas"),
    *("opening", "interrupted_writes", "interrupted_erasure", "tampering", "damaged_rows", "handles", "identifiers"),
    "receipts",
    "rotation",
)
GROUPS: Final = (
    Group(
        "whose",
        "a tenant, user or session predicate",
        whose_rows,
        (
            _stage("core", "statements", only="not sqlite and not postgresql"),
            _stage("stores", "database"),
            _CORE,
        ),
    ),
    Group(
        "which",
        "a predicate on a row or its state",
        which_rows,
        (_CORE,),
        is_extra=True,
    ),
    Group(
        "files",
        "a flag or check of a file",
        file_checks,
        (
            _stage("stores", "attacks", "filesystem", "roots", "reserve", "trash", "faults", only="not all_the_time"),
            _stage("stores", "truncating"),
            _stage("attacks", "system_calls", only="every_name_below"),
            Stage(("tests/test_upgrade.py",), "sqlite_file or new_file"),
        ),
    ),
    Group(
        "contexts",
        "a field of a bound context",
        bound_contexts,
        (
            _stage("crypto", "golden", "tampering", "keyring", "context", only="not another_ones_eviction"),
            _stage("core", "tampering", "references", "opening", "handles", "rotation"),
            Stage(("tests/crypto",)),
        ),
    ),
    Group(
        "names",
        "a part of a grammar, or one use of it",
        grammars,
        (
            _stage("stores", "names", "memory", "database", only=_ONLY),
            _stage("core", "references", "identifiers", "error_messages", "limits", "rotation"),
            _stage("stores", "filesystem", "attacks", "faults", only="not all_the_time"),
        ),
    ),
    Group(
        "seam",
        "a refusal, a binding, a forged argument",
        bindings,
        (
            _stage(
                *("haystack", "binding", "offload", "tools", "compaction", "outliving", "events"),
                only=f"{_ONLY} and not stored",
            ),
            Stage(("tests/haystack/matrix",), f"{_ONLY} and not stored"),
            _stage("haystack", "notices", "serialisation", "shapes", "state_view", only=f"{_ONLY} and not stored"),
        ),
    ),
    Group(
        "policies",
        "a part of row-level security",
        policies,
        (
            _stage("core", "row_security", only="not sqlite"),
            Stage(("tests/cli/test_roles.py", "tests/test_migrations.py", "tests/test_roles.py"), "not sqlite"),
            _stage("stores", "database", only="ostgres"),
        ),
    ),
)


def all_mutants() -> list[Mutant]:
    """Make every mutant of the checkout, group by group."""
    return numbered(mutant for group in GROUPS for mutant in group.make())
