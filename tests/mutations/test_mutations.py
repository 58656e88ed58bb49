"""The mutants are the ones that were promised, and what is counted is what was caught."""

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.mutations.equivalents import LISTED, ListIsWrong, as_entry, read_equivalents, vanished
from tests.mutations.groups import GROUPS, Stage, all_mutants
from tests.mutations.operators import calls_left_out, elements, patterns, refusals, steps
from tests.mutations.report import Report
from tests.mutations.runner import Result
from tests.mutations.sources import CHECKOUT, Mutant, Source, numbered

ONE = Mutant("names", "stores/names.py", "is_name", "a", "b")


@functools.cache
def mutants() -> list[Mutant]:
    return all_mutants()


def text_of(path: str) -> str:
    return (CHECKOUT / path).read_text(encoding="utf-8")


def found_in(folder: str, pattern: str) -> int:
    """How often something is written in the library, comments and docstrings aside."""
    return sum(
        len(re.findall(pattern, re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text(encoding="utf-8"))))
        for path in (CHECKOUT / folder).rglob("*.py")
    )


def made(group: str, pattern: str) -> int:
    """How many mutants take something away that reads like this."""
    return sum(mutant.group == group and re.search(pattern, mutant.taken) is not None for mutant in mutants())


@pytest.mark.parametrize(
    ("group", "folder", "pattern"),
    [
        ("files", "stores", r"O_NOFOLLOW"),
        ("files", "stores", r"st_nlink"),
        ("files", "stores", r"S_IS(REG|DIR)\("),
        ("files", "stores", r"^.*follow_symlinks=False"),
        ("whose", "tenancy/catalogue", r"== (sa\.bindparam\(\"(of_)?tenant_id\"\)|_tenant_id)"),
        ("whose", "tenancy/catalogue", r"== sa\.bindparam\(\"(of_)?session(_id)?\"\)"),
        ("whose", "tenancy/catalogue", r"\.c\.tenant_id == \w+\.c\.tenant_id"),
        ("names", "stores", r"require_name\(\w+\)(?! ->)"),
        ("policies", "migrations", r"\"tenancy_\w+\": "),
        ("seam", "tenancy/seam", r"with bound\("),
    ],
)
def test_nothing_that_protects_is_left_out(group: str, folder: str, pattern: str) -> None:
    # Not the other way round: one place may be weakened in more than one way.
    assert made(group, pattern.removeprefix("^.*")) >= found_in(folder, pattern.removeprefix("^.*")) > 0


def test_every_mutant_is_one_edit_that_python_can_read() -> None:
    texts = {mutant.path: text_of(mutant.path) for mutant in mutants()}
    for mutant in mutants():
        text = texts[mutant.path]
        changed = mutant.applied(text)
        ast.parse(changed)
        assert changed != text, mutant
        assert (changed[: mutant.start], changed[mutant.start + len(mutant.text) :]) == (
            text[: mutant.start],
            text[mutant.end :],
        )
        assert text.splitlines()[mutant.line - 1].strip(), mutant


def test_every_mutant_has_a_name_of_its_own_that_no_line_number_is_part_of() -> None:
    assert len({mutant.key for mutant in mutants()}) == len(mutants())
    (moved,) = numbered(patterns("names", Source("stores/names.py", "\n\n" + text_of("stores/names.py"))))[:1]
    (there,) = [mutant for mutant in mutants() if mutant.key == moved.key]
    assert (moved.line, there.line) == (there.line + 2, there.line)


@pytest.mark.parametrize("stage", sorted({stage for group in GROUPS for stage in group.stages}, key=str), ids=str)
def test_what_is_run_is_there(stage: Stage) -> None:
    assert [path for path in stage.tests if not (CHECKOUT / path).exists()] == []


def edits(mutants: Iterator[Mutant]) -> list[str]:
    return [f"{mutant.owner}: {mutant.taken} -> {mutant.given}" for mutant in numbered(mutants)]


def test_a_refusal_is_taken_away_whole_and_in_parts() -> None:
    source = Source("a.py", "def f(a, b):\n    if a and not (b or a.c):\n        raise E\n    if a:\n        b()\n")
    assert edits(refusals("", source)) == [
        "f: a and not (b or a.c) -> False",
        "f: a -> True",
        "f: not (b or a.c) -> True",
        "f: b -> False",
        "f: a.c -> False",
    ]


def test_a_step_is_left_out_and_a_check_lets_everything_through() -> None:
    source = Source("a.py", "def f(a):\n    check(a)\n    a.b = check(a.c)\n    del a.d\n    c = 1\n")
    assert edits(steps("", source)) == ["f: check(a) -> pass", "f.a.b: a.b = check(a.c) -> pass", "f: del a.d -> pass"]
    assert edits(calls_left_out("", source, {"check"})) == ["f: check(a) -> None", "f.a.b: check(a.c) -> a.c"]


def test_an_element_goes_with_its_comma() -> None:
    source = Source("a.py", "x = (a,\n     b, c)\ny = (a, b)\n")
    left = [mutant.applied(source.text) for node in source.nodes(ast.Tuple) for mutant in elements("", source, node)]  # type: ignore[arg-type]
    assert [re.sub(r"\s", "", text) for text in left] == [
        "x=(b,c)y=(a,b)",
        "x=(a,c)y=(a,b)",
        "x=(a,b)y=(a,b)",
        "x=(a,b,c)y=(b,)",
        "x=(a,b,c)y=(a,)",
    ]


def test_a_grammar_is_loosened_at_its_end_in_its_letters_in_its_length_and_in_its_case() -> None:
    source = Source("a.py", 'N = re.compile(r"[a-z]{3}\\Z")\nM = re.compile(r"[a-z]")\n')
    assert [edit.split(" -> ")[1] for edit in edits(patterns("", source))] == [
        'r"[a-z]{3}$"',
        'r"[a-z]{3}"',
        r'r"[^\n]{3}\Z"',
        r'r"\w{3}\Z"',
        r'r"[a-z]{3,}\Z"',
        r'r"[a-z]{2,3}\Z"',
        r'r"[a-z]{3,4}\Z"',
        r're.compile(r"[a-z]{3}\Z", re.IGNORECASE)',
    ]


def test_what_is_said_to_change_nothing_exists_and_has_a_reason() -> None:
    assert vanished(read_equivalents(LISTED.read_text(encoding="utf-8")), mutants()) == []
    entry = as_entry(ONE).replace('reason = ""', 'reason = "as it was before and will be"\n')
    assert read_equivalents(entry) == {ONE.key: "as it was before and will be"}
    assert vanished({ONE.key: "gone"}, mutants()) == [ONE.key]
    for wrong in (entry + entry, as_entry(ONE), entry.replace("file", "path"), "[[mutant]]\nfile = 'a'"):
        with pytest.raises(ListIsWrong):
            read_equivalents(wrong)


def test_a_run_is_good_only_if_every_mutant_is_accounted_for() -> None:
    def report(*results: Result, listed: bool = False, gone: bool = False) -> Report:
        return Report(results, {ONE.key: "because"} if listed else {}, [ONE.key] if gone else [])

    caught, survived = Result(ONE, "caught", "tests/a.py::test_b", 1.0), Result(ONE, "survived", "", 2.0)
    assert report(caught).is_good
    assert report(survived, listed=True).is_good
    for bad in (
        report(survived),
        report(caught, listed=True),
        report(caught, gone=True),
        report(replace(caught, verdict="broken")),
    ):
        assert not bad.is_good
        assert "names.py" in "\n".join(bad.lines(GROUPS))
    *_, last = report(caught, replace(caught, by="timeout"), survived, listed=True).lines(GROUPS)
    assert (
        last
        == "all:       2/3 caught, 1 of them by running out of time, 1 change nothing  (0.1 minutes of a processor)"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_the_mutants_of_files_each_fourth_is_caught() -> None:
    # In a process of its own, whose workers import the library anew. All of them take longer than everything else.
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutations", "--only", "^files", "--every", "4", "--json"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout)["totals"]["files"]["caught"] >= 8
