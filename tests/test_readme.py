"""Every example of the README runs as it stands."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tenancy.settings import Settings

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL: Final = "python3 -m venv .venv"


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def installations() -> list[str]:
    """Return the blocks that begin on a machine with nothing."""
    return [block for block in blocks("sh") if block.startswith(INSTALL)]


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block the way a reader does, with this environment's commands first on the path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAYSTACK_TENANCY_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tried(tmp_path: Path) -> Path:
    """A folder in which the Python examples have run, one after the other, in one program."""
    program = tmp_path / "readme.py"
    program.write_text("\n".join([*blocks("python"), "manager.close()"]), encoding="utf-8")
    done = run(f"python -W error {program}", tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_python_examples_run_in_order(tried: Path) -> None:
    assert len(blocks("python")) == 3
    assert (tried / "tenancy-data" / "catalogue.sqlite3").exists()


def test_the_first_example_has_about_fifteen_statements() -> None:
    code = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(code) <= 24


@pytest.mark.slow
def test_the_shell_examples_run_on_what_the_python_example_left(tried: Path) -> None:
    scripts = [block for block in blocks("sh") if block not in installations()]
    assert len(scripts) == 3
    for script in scripts:
        done = run(script, tried)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def test_the_two_installations_are_what_the_checks_run() -> None:
    demo, tests = installations()
    assert demo.strip().endswith("&& .venv/bin/pip install -e . && .venv/bin/tenancy demo")
    assert tests.strip().endswith("&& .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest")
    check = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "-e '.[dev]'" in check
    assert "step pytest" in check


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_first_installation_runs_in_a_fresh_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, files):
        target = checkout / os.fsdecode(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / os.fsdecode(name), target)
    done = run(installations()[0], checkout)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_the_configuration_is_one_the_settings_accept(tmp_path: Path) -> None:
    (document,) = blocks("toml")
    config = tmp_path / "tenancy.toml"
    config.write_text(document, encoding="utf-8")
    config.chmod(0o600)
    settings = Settings.load(config)
    # The roles of PostgreSQL stand there as comments, since the example is a SQLite file.
    roles = dict(re.findall(r"^# (\w+_url) = \"(\S+)\"", document, re.MULTILINE))
    others = tomllib.loads("\n".join(re.findall(r"^# (\[.*|[\w-]+-key = .*)", document, re.MULTILINE)))
    assert {*tomllib.loads(document), *roles, *others} == set(Settings.model_fields)
    assert Settings(database_url=roles["owner_url"], store_url="database:", keys="env:KEY", **roles, **others)
    assert settings.store_url == "file:///var/lib/tenancy/results"
    assert settings.limits.tenant_bytes is None


def test_the_cron_line_calls_a_command_that_exists(tmp_path: Path) -> None:
    (line,) = blocks("crontab")
    arguments = line.split("/tenancy --config /etc/tenancy/tenancy.toml ")[1].split()
    done = run(f"tenancy {arguments[0]} --help", tmp_path)
    assert done.returncode == 0
    assert arguments[1] in done.stdout
