"""A trace of everything a manager does to files: each name one component, relative to a descriptor, never followed."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.audit import SHAPES, breaches, shapes
from tests.attacks.tracer import Call, Place, TracingFailed, trace
from tests.stores.files import INNER, NAME
from tests.tracing.path_calls import UNSEEN

ROOT = "/data/results"
HELD = Place(True, f"{ROOT}/{INNER}", NAME)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
NOFOLLOW, REMOVEDIR, EMPTY_PATH = 0x100, 0x200, 0x1000


def traced_workload(part: str, folder: Path) -> list[Call]:
    command = [sys.executable, "-m", "tests.attacks.workload", part, str(folder)]
    return trace(command, calls=folder / f"{part}.jsonl")


def plant(root: Path, outside: Path) -> None:
    """Put links, a directory and a pipe in place of files, and leftovers into the trash."""
    outside.write_bytes(b"of somebody else")

    def directory(path: Path) -> None:
        (path / "deeper").mkdir(parents=True)
        (path / "deeper" / "file").touch()

    kinds: list[Callable[[Path], object]] = [
        directory,
        os.mkfifo,
        lambda path: path.symlink_to(outside),
        lambda path: path.symlink_to(root),
        lambda path: os.link(outside, path),
    ]
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    assert len(files) > len(kinds)
    for number, path in enumerate(files):
        path.unlink()
        kinds[number % len(kinds)](path)
    directory(root / "trash" / "left over")


@pytest.mark.case(20)
def test_every_name_below_the_root_is_one_component_relative_to_a_descriptor_and_never_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "data" / "results", tmp_path / "outside"
    filled = traced_workload("fill", tmp_path)
    plant(root, outside)
    emptied = traced_workload("empty", tmp_path)
    assert breaches(filled + emptied, root=str(root)) == []
    # Nothing that a store can do is missing: the audit of a workload that does less than it says would say little.
    assert shapes(filled, root=str(root)) >= SHAPES - {"unlink"}
    assert shapes(emptied, root=str(root)) == SHAPES
    assert [path.name for path in root.rglob("*")] == ["trash"]
    assert outside.read_bytes() == b"of somebody else"


@pytest.mark.parametrize(
    "call",
    [
        Call("openat", (Place(False, "/data", "results"),), DIRECTORY),
        Call("openat", (Place(True, "/data", "results"),), DIRECTORY),
        Call("mkdirat", (Place(True, "/data", "results"),), 0),
        Call("openat", (HELD,), DIRECTORY),
        Call("openat", (Place(True, ROOT, "."),), DIRECTORY),
        Call("openat", (HELD,), CREATE),
        Call("openat", (HELD,), READ),
        Call("newfstatat", (HELD,), NOFOLLOW),
        Call("newfstatat", (Place(True, ROOT, ""),), EMPTY_PATH),
        Call("statx", (Place(True, HELD.directory, ""),), EMPTY_PATH),
        Call("unlinkat", (HELD,), 0),
        Call("renameat", (HELD, Place(True, f"{ROOT}/trash", NAME)), 0),
        # Not below the root, and nobody's business here.
        Call("openat", (Place(False, "/data", "catalogue.sqlite3"),), os.O_RDWR | os.O_CREAT),
        Call("openat", (Place(False, "/data/results2", NAME),), os.O_RDONLY),
        Call("stat", (Place(False, "/data", "results"),), 0),
    ],
)
def test_what_a_store_does_is_no_breach(call: Call) -> None:
    assert breaches([call], root=ROOT) == []


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (Call("openat", (Place(False, ROOT, NAME),), READ), "not relative"),
        (Call("openat", (Place(False, HELD.directory, NAME),), READ), "not relative"),
        (Call("openat", (Place(False, "/", f"data/results/{NAME}"),), READ), "not relative"),
        (Call("openat", (Place(True, ROOT, f"{INNER}/{NAME}"),), READ), "more than one component"),
        (Call("openat", (Place(True, "/data", f"results/{NAME}"),), READ), "more than one component"),
        (Call("openat", (Place(True, ROOT, ".."),), DIRECTORY), "more than one component"),
        (Call("openat", (Place(True, ROOT, "/etc/passwd"),), READ), "more than one component"),
        (Call("openat", (Place(True, ROOT, "."),), READ), "no name"),
        (Call("unlinkat", (Place(True, ROOT, ""),), 0), "no name"),
        (Call("openat", (HELD,), READ & ~os.O_NOFOLLOW), "without O_NOFOLLOW"),
        (Call("openat", (HELD,), READ & ~os.O_CLOEXEC), "without O_CLOEXEC"),
        (Call("openat", (HELD,), READ & ~os.O_NONBLOCK), "without O_NONBLOCK"),
        (Call("openat2", (HELD,), READ & ~os.O_NONBLOCK), "without O_NONBLOCK"),
        (Call("openat", (HELD,), READ & ~os.O_NOCTTY), "without O_NOCTTY"),
        (Call("openat", (HELD,), CREATE & ~os.O_EXCL), "without O_EXCL"),
        (Call("openat", (HELD,), CREATE & ~os.O_NOFOLLOW), "without O_NOFOLLOW"),
        (Call("openat", (HELD,), CREATE & ~os.O_CLOEXEC), "without O_CLOEXEC"),
        (Call("openat", (HELD,), CREATE & ~os.O_CREAT), "without O_CREAT"),
        (Call("openat", (HELD,), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "without O_EXCL"),
        (Call("openat", (HELD,), CREATE | os.O_TRUNC), "with O_TRUNC"),
        (Call("openat", (HELD,), DIRECTORY & ~os.O_NOFOLLOW), "without O_NOFOLLOW"),
        (Call("openat", (HELD,), DIRECTORY & ~os.O_CLOEXEC), "without O_CLOEXEC"),
        (Call("openat", (Place(False, "/data", "results"),), DIRECTORY & ~os.O_NOFOLLOW), "without O_NOFOLLOW"),
        (Call("openat", (Place(True, "/data", "results"),), READ), "without O_DIRECTORY"),
        (Call("newfstatat", (HELD,), 0), "follows a link"),
        (Call("renameat", (HELD, Place(True, "/data", NAME)), 0), "leads in or out"),
        (Call("renameat", (HELD, Place(False, f"{ROOT}/trash", NAME)), 0), "not relative"),
        (Call("linkat", (HELD, HELD), 0), "no store needs this"),
        (Call("symlinkat", (HELD,), 0), "no store needs this"),
        (Call("fchmodat", (HELD,), 0), "no store needs this"),
        (Call("truncate", (Place(False, ROOT, NAME),), 0), "no store needs this"),
        (Call("chdir", (Place(False, "/data/results", INNER),), 0), "no store needs this"),
        *((Call(name, (), 0), "nobody can see") for name in UNSEEN),
    ],
)
def test_a_call_that_breaks_one_rule_is_a_breach(call: Call, wrong: str) -> None:
    found = breaches([call], root=ROOT)
    assert found
    assert any(wrong in breach for breach in found)


#: Opens the root as it should, and goes on as it should not. The second argument is a link to the root.
_OPEN = (
    "import os, signal, subprocess, sys, threading;"
    "root = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW);"
)
_IN_A_THREAD = "thread = threading.Thread(target=lambda: {}); thread.start(); thread.join()"
_IN_A_CHILD = "child = os.fork(); child or os._exit({} is None); os.waitpid(child, 0)"


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], list[Call]]:
    """Runs a few lines of Python over a root with a file `file` in a directory `d`."""
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d" / "file").touch()
    (tmp_path / "link").symlink_to(root)

    def traced(program: str) -> list[Call]:
        command = [sys.executable, "-ISc", _OPEN + program, str(root), str(tmp_path / "link")]
        return trace(command, calls=tmp_path / "calls.jsonl")

    return traced


@pytest.mark.parametrize(
    ("program", "call", "wrong"),
    [
        ("os.open(sys.argv[1] + '/d/file', os.O_RDONLY)", "openat", "not relative"),
        ("os.open(sys.argv[2] + '/d/file', os.O_RDONLY)", "openat", "not relative"),
        ("os.chdir(sys.argv[1]); os.open('d/file', os.O_RDONLY)", "openat", "not relative"),
        ("os.listdir(sys.argv[1] + '/d')", "openat", "not relative"),
        ("os.truncate(sys.argv[1] + '/d/file', 0)", "truncate", "not relative"),
        ("os.open('d/file', os.O_RDONLY, dir_fd=root)", "openat", "more than one component"),
        ("os.open('d', os.O_RDONLY, dir_fd=root)", "openat", "without O_NOFOLLOW"),
        ("os.mkdir('d/e', dir_fd=root)", "mkdirat", "more than one component"),
        ("os.unlink('d/file', dir_fd=root)", "unlinkat", "more than one component"),
        ("os.rename('d', '../d', src_dir_fd=root, dst_dir_fd=root)", "renameat", "more than one component"),
        ("os.link('d/file', 'e', src_dir_fd=root, dst_dir_fd=root)", "linkat", "no store needs this"),
        ("os.symlink('d', 'e', dir_fd=root)", "symlinkat", "no store needs this"),
        ("os.stat('d', dir_fd=root)", "newfstatat", "follows a link"),
        (_IN_A_THREAD.format("os.mkdir('d/e', dir_fd=root)"), "mkdirat", "more than one component"),
        (_IN_A_CHILD.format("os.stat('d', dir_fd=root)"), "newfstatat", "follows a link"),
        ("subprocess.run(['cat', sys.argv[1] + '/d/file'])", "open", "not relative"),
    ],
)
def test_a_program_that_breaks_a_rule_is_caught(
    run: Callable[[str], list[Call]], tmp_path: Path, program: str, call: str, wrong: str
) -> None:
    found = breaches(run(program), root=str(tmp_path / "root"))
    assert [breach for breach in found if breach.startswith(call) and wrong in breach]


def test_a_program_runs_under_the_trace_as_it_does_without(run: Callable[[str], list[Call]], tmp_path: Path) -> None:
    program = (
        "signal.signal(signal.SIGUSR1, lambda *_: os.mkdir('signalled', dir_fd=root));"
        "os.kill(os.getpid(), signal.SIGUSR1)"
    )
    assert breaches(run(program), root=str(tmp_path / "root")) == []
    assert (tmp_path / "root" / "signalled").is_dir()


@pytest.mark.parametrize("program", ["sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "1 / 0"])
def test_a_program_that_fails_is_no_trace_to_rely_on(run: Callable[[str], list[Call]], program: str) -> None:
    with pytest.raises(TracingFailed):
        run(program)


def test_where_nothing_can_be_traced_that_is_said_and_waited_for_by_nobody(tmp_path: Path) -> None:
    # Whoever is traced already cannot be traced by another.
    inner = [sys.executable, "-m", "tests.attacks.tracer", str(tmp_path / "inner.jsonl"), "true"]
    with pytest.raises(TracingFailed, match="lets nobody trace"):
        trace(inner, calls=tmp_path / "outer.jsonl")
