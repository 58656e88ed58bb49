"""Python files as trees with positions, and the edits that make mutants of them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    One edit of one file.

    :param group: What kind of protection it takes away.
    :param path: The file inside the checkout, with forward slashes.
    :param owner: The statement, function or constant it stands in.
    :param taken: What stood there, in one line.
    :param given: What stands there instead, in one line.
    :param number: Tells it from another edit of the same owner that reads the same; 1 for the first.
    """

    group: str
    path: str
    owner: str
    taken: str
    given: str
    number: int = 1
    line: int = field(default=0, compare=False)
    start: int = field(default=0, compare=False, repr=False)
    end: int = field(default=0, compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What stays the same when the code around it changes."""
        return (self.path, self.owner, self.taken, self.given, self.number)

    def applied(self, source: str) -> str:
        """Return the file with the edit in it."""
        return source[: self.start] + self.text + source[self.end :]

    def __str__(self) -> str:
        again = f" (no. {self.number})" if self.number > 1 else ""
        return f"{self.path}:{self.line} {self.owner}: {self.taken} -> {self.given}{again}"


class Source:
    """
    One file of the library.

    :param path: Inside the checkout.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    @classmethod
    def read(cls, path: str) -> "Source":
        """Read a file of the checkout."""
        return cls(path, (CHECKOUT / path).read_text(encoding="utf-8"))

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Go through all nodes of these kinds, in the order they stand in the file."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, kinds)]
        return iter(sorted(found, key=lambda node: (node.lineno, node.col_offset)))  # type: ignore[attr-defined]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around this one."""
        return self._parents.get(node)

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around this one, from the inside."""
        around = self.parent(node)
        while around is not None:
            yield around
            around = self.parent(around)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, in characters."""
        begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return self._offset(*begin), self._offset(*end)

    def source_of(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def owner_of(self, node: ast.AST) -> str:
        """The name of the function a node stands in, and of what it is assigned to there."""
        names: list[str] = []
        for around in (node, *self.parents(node)):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.insert(0, around.name)
            elif isinstance(around, ast.Assign | ast.AnnAssign) and not names:
                target = around.targets[0] if isinstance(around, ast.Assign) else around.target
                names.insert(0, self.source_of(target).removeprefix("self."))
        return ".".join(names) or "<module>"

    def mutant(self, group: str, node: ast.AST, text: str, *, span: tuple[int, int] | None = None) -> Mutant:
        """
        Replace a node.

        :param text: What stands in its place.
        :param span: A part of the file to replace instead of the node's own.
        """
        start, end = span or self.span(node)
        return Mutant(
            group=group,
            path=self.path,
            owner=self.owner_of(node),
            taken=_one_line(self.text[start:end]),
            given=_one_line(text) or "nothing",
            line=self.text.count("\n", 0, start) + 1,
            start=start,
            end=end,
            text=text,
        )

    def _offset(self, line: int, column: int) -> int:
        # Columns of a tree are counted in bytes of UTF-8.
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)


def numbered(mutants: Iterator[Mutant]) -> list[Mutant]:
    """Leave out edits that were there already, and tell those apart that read the same."""
    found: dict[tuple[str, int, int, str], Mutant] = {}
    seen: dict[tuple[str, str, str, str], int] = {}
    for mutant in mutants:
        place = (mutant.path, mutant.start, mutant.end, mutant.text)
        if place in found or mutant.taken == mutant.given:
            continue
        name = mutant.key[:4]
        seen[name] = seen.get(name, 0) + 1
        found[place] = _with_number(mutant, seen[name])
    return list(found.values())


def sources_in(*patterns: str) -> list[Source]:
    """Read the files of the checkout whose paths match."""
    paths = sorted({path for pattern in patterns for path in CHECKOUT.glob(pattern)})
    return [Source.read(path.relative_to(CHECKOUT).as_posix()) for path in paths]


def _with_number(mutant: Mutant, number: int) -> Mutant:
    return Mutant(
        **{name: getattr(mutant, name) for name in Mutant.__dataclass_fields__ if name != "number"}, number=number
    )


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
