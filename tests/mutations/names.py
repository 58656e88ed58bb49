"""Mutants of what a name, a reference and an identifier may be."""

from collections.abc import Iterator
from typing import Final

from tests.mutations.operators import calls_left_out, patterns, refusals
from tests.mutations.sources import Mutant, sources_in

_GRAMMARS: Final = ("stores/names.py", "stores/ranges.py", "tenancy/references.py", "tenancy/scope.py")


def grammars() -> Iterator[Mutant]:
    """Every part of every grammar, every refusal of one, and every place where one is asked."""
    for source in sources_in(*_GRAMMARS):
        yield from patterns("names", source)
        yield from refusals("names", source, returns=True)
    for source in sources_in("stores/*.py", "tenancy/**/*.py"):
        if not source.path.endswith("testing.py"):
            yield from calls_left_out(
                "names", source, ("require_name", "require_ranges", "require_identifier", "require_owner")
            )
