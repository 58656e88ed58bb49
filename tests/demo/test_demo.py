"""`tenancy demo` does the whole job, says so, and leaves nothing behind but what it was asked to."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenancy.demo import installed
from tenancy.demo.agent import fetch_tools
from tenancy.demo.checks import CHECKS
from tenancy.demo.demo import Demo
from tenancy.demo.documents import Kind
from tenancy.demo.folder import documents_in
from tenancy.demo.house import Parts
from tenancy.demo.report import FIGURES
from tenancy.manager import SessionManager
from tenancy.seam.hooks import session_hooks
from tests.cli.conftest import PROGRAM, ROOT
from tests.demo.conftest import Run, prose


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.slow
def test_every_check_holds_on_files_of_installed_packages(run: Run, scratch: Path) -> None:
    ran = run("--output", "json")
    assert ran.code == 0, ran.out
    assert ran.json["ok"] is True
    assert ran.json["checks"] == dict.fromkeys(CHECKS, True)
    figures = ran.json["figures"]
    assert (figures["tenants"], figures["users"], figures["runs_at_once"]) == (3, 6, 6)
    assert figures["results"] >= 4 * 6 - 5
    assert figures["pages_read"] > figures["results"]
    assert figures["tokens_with"] * 20 < figures["tokens_without"]
    assert figures["peak_tokens"] <= figures["context_window"] < figures["tokens_without"] / 6
    assert figures["seconds"] < 60
    assert list(scratch.iterdir()) == []


def test_every_check_holds_on_ones_own_files(judged: Callable[[], dict[str, Any]]) -> None:
    report = judged()
    assert (report["ok"], report["code"], set(report["checks"])) == (True, 0, set(CHECKS))
    assert report["figures"]["results"] == 10
    assert report["figures"]["files"] > 0


def test_one_text_is_enough_for_everybody(run: Run, tmp_path: Path) -> None:
    (tmp_path / "only.txt").write_bytes(prose(7, chars=6_300).replace("\n", "\r\n").encode())
    ran = run("--input", tmp_path, "--output", "json")
    assert (ran.code, ran.json["figures"]["results"]) == (0, 6)


def test_the_table_names_each_check_and_the_progress_is_not_data(run: Run, folder: Path) -> None:
    ran = run("--input", folder)
    rows = [line.split() for line in ran.out.splitlines()]
    assert {row[1] for row in rows if row and row[0] == "ok"} == set(CHECKS)
    assert "FAILED" not in ran.out
    assert "not run" not in ran.out
    assert "with offloading" in ran.out
    assert "talk to one agent" in ran.err
    assert "talk to one agent" not in ran.out


def test_the_data_can_be_kept_for_a_look(run: Run, folder: Path, tmp_path: Path, scratch: Path) -> None:
    kept = tmp_path / "kept"
    ran = run("--input", folder, "--keep", kept, "--output", "json")
    assert ran.code == 0
    assert f"--data {kept}" in ran.err
    assert (kept.stat().st_mode & 0o777, (kept / "keys.json").stat().st_mode & 0o777) == (0o700, 0o600)
    with SessionManager.local(kept) as manager:
        infos = list(manager.sessions())
        assert {(info.tenant, info.user) for info in infos} == {
            (tenant, user) for tenant in ("acme", "globex", "initech") for user in ("ann", "bob")
        }
        contents = set()
        for info in infos:
            session = manager.session(tenant=info.tenant, user=info.user, session=info.session)
            contents |= {session.read(result.reference) for result in session.results()}
        assert manager.verify().ok
    assert contents == {document.content for document in documents_in(folder)}
    assert list(scratch.iterdir()) == []


def test_an_empty_directory_will_do_for_keeping(run: Run, folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    assert run("--input", folder, "--keep", kept).code == 0
    assert (kept / "catalogue.sqlite3").exists()
    assert kept.stat().st_mode & 0o777 == 0o700


def everything_in(folder: Path) -> dict[Path, tuple[int, int, int, int]]:
    """What there is and when it last changed. Not when it was last read: looking is no change."""
    return {
        path: (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
        for path in folder.rglob("*")
        for status in [path.lstat()]
    }


@pytest.mark.parametrize("obstacle", ["full", "file", "link", "no parent"])
def test_nothing_is_overwritten_for_keeping(run: Run, folder: Path, tmp_path: Path, obstacle: str) -> None:
    kept = tmp_path / "kept"
    if obstacle == "full":
        kept.mkdir()
        (kept / "mine").write_text("mine")
    elif obstacle == "file":
        kept.write_text("mine")
    elif obstacle == "link":
        (tmp_path / "elsewhere").mkdir()
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        kept = tmp_path / "missing" / "kept"
    before = everything_in(tmp_path)
    ran = run("--input", folder, "--keep", kept)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"Error: --keep: [^\n]+\n", ran.err)
    assert everything_in(tmp_path) == before


def test_nothing_is_kept_of_a_demo_that_never_was(run: Run, tmp_path: Path) -> None:
    assert run("--input", tmp_path, "--keep", tmp_path / "kept").code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--base-url", "http://127.0.0.1:9/v1"), "--model"),
        (("--model", "gpt-5-mini"), "OPENAI_API_KEY"),
        (("--input", "/nowhere/at/all"), "--input"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    run: Run, scratch: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    last = ran.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert sentence in last
    assert list(scratch.iterdir()) == []


def test_a_data_directory_of_ones_own_is_left_alone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from tenancy.cli.app import app

    result = CliRunner().invoke(app, ["--data", str(tmp_path / "data"), "demo"])
    assert result.exit_code == 2
    assert "--keep" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_kind_that_no_package_ships_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_SUFFIXES", {".json": Kind.JSON, ".csv": Kind.CSV})
    ran = run()
    assert ran.code == 2
    assert "no image file" in ran.err
    assert "--input" in ran.err


def test_the_subjects_come_in_by_constructor(folder: Path, tmp_path: Path) -> None:
    opened: list[Path] = []

    def open_manager(path: Path) -> SessionManager:
        opened.append(path)
        return SessionManager.local(path, inline_bytes=0)

    def hooks(**settings: Any) -> Any:
        return session_hooks(**{**settings, "preview_chars": 0})

    steps: list[str] = []
    report = Demo(
        tmp_path / "data",
        documents=documents_in(folder),
        parts=Parts(open_manager=open_manager, hooks=hooks),
        on_step=steps.append,
    ).run()
    assert report.ok, report.problems
    assert opened == [tmp_path / "data"] * 2
    assert report.figures["files"] == report.figures["results"]
    assert len(steps) > 5
    # Each is explained to people, and nothing is that there never is.
    assert set(report.figures) == set(FIGURES)


def test_a_step_that_breaks_down_costs_its_checks_and_no_others(folder: Path, tmp_path: Path) -> None:
    opened: list[Path] = []

    def open_manager(path: Path) -> SessionManager:
        opened.append(path)
        if len(opened) > 1:
            raise OSError("the disk with the secret name")
        return SessionManager.local(path)

    report = Demo(tmp_path / "data", documents=documents_in(folder), parts=Parts(open_manager=open_manager)).run()
    assert not report.ok
    assert report.problems == {"reopening": "OSError"}
    assert report.checks["conversations_stay_small"]
    assert report.checks["no_plaintext_at_rest"]
    assert not report.checks["readable_after_reopening"]
    assert not report.checks["erased_user_is_gone"]
    outcomes = {name: outcome for outcome, name, _ in report.check_rows}
    assert outcomes["no_plaintext_at_rest"] == "ok"
    assert outcomes["readable_after_reopening"] == "FAILED"
    assert {name for name in outcomes if outcomes[name] == "not run"} == {
        "expired_session_is_gone",
        "expired_session_is_reclaimed",
        "erased_user_is_gone",
        "usage_is_exact_and_zero_afterwards",
    }


def test_a_demo_that_breaks_down_at_once_says_that_nothing_was_checked(folder: Path, tmp_path: Path) -> None:
    class Counter:
        def count(self, *_: Any) -> int:
            raise OSError("no vocabulary")

    report = Demo(tmp_path / "data", documents=documents_in(folder), counter=Counter()).run()
    assert set(report.problems) == {"the conversations"}
    assert report.document["checks"] == dict.fromkeys(CHECKS, False)
    assert {outcome for outcome, _, _ in report.check_rows} == {"not run"}


def test_the_tools_return_what_tools_return(folder: Path) -> None:
    documents = {document.kind: document for document in documents_in(folder)}
    tools = {tool.name: tool for tool in fetch_tools(documents.values())}
    for kind in (Kind.TEXT, Kind.JSON, Kind.CSV):
        assert tools[f"fetch_{kind}_document"].invoke(name=documents[kind].name) == documents[kind].content
    (image,) = tools["fetch_image_document"].invoke(name=documents[Kind.IMAGE].name)
    assert (image.mime_type, len(image.base64_image) > 1000) == ("image/png", True)
    assert "no json document" in tools["fetch_json_document"].invoke(name="nobody's")


def test_a_killed_demo_removes_its_data(folder: Path, scratch: Path) -> None:
    demo = subprocess.Popen(
        [*PROGRAM, "demo", "--input", str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stderr is not None
    # The next step is announced before it is taken, so by then there is a directory, and there is work in it.
    for line in demo.stderr:
        if "talk to one agent" in line:
            break
    assert list(scratch.iterdir()) != []
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=60)
    assert (demo.returncode, list(scratch.iterdir())) == (143, [])


def test_it_runs_as_a_command_of_its_own(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", *PROGRAM[1:], "demo", "--input", str(folder), "--output", "json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    # Refusals are provoked, and their events are the demo's own business.
    assert "event=" not in done.stderr
