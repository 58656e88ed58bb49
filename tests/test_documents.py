"""What the documents say of the code is so."""

import ast
import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, get_args

import pytest
import yaml

from stores.reserve import RESERVE_BYTES, reserve_names
from tenancy.events import Event
from tenancy.keys import aws_kms
from tenancy.keys.locations import BUILT_IN, parse_location
from tenancy.keys.plugins import GROUP
from tenancy.settings import Settings
from tenancy.unknown import GRACE, ONE_IN

CHECKOUT = Path(__file__).parent.parent
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def named(document: str) -> list[tuple[str, str]]:
    """Each file of tests a document names, with the test in it or none."""
    return _NAMED.findall((CHECKOUT / document).read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", ["docs/security.md"])
def test_every_test_a_document_names_is_there(document: str) -> None:
    missing = []
    for path, test in named(document):
        file = CHECKOUT / path
        tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if not file.is_file() or (test and test not in defined):
            missing.append(f"{path}::{test}")
    assert missing == []
    assert len(named(document)) > 30


OPERATIONS: Final = (CHECKOUT / "docs" / "operations.md").read_text(encoding="utf-8")


KEYS: Final = (CHECKOUT / "docs" / "keys.md").read_text(encoding="utf-8")


def blocks(language: str, document: str = OPERATIONS) -> list[str]:
    """The fenced blocks of one language in a document, the handbook of operations or another, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document, flags=re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run something with this environment's commands first on the path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAYSTACK_TENANCY_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = str(CHECKOUT)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_examples_of_the_handbook_run(tmp_path: Path) -> None:
    thread, task = blocks("python")
    # A server that starts, serves and stops.
    serve = "\nasync def serve():\n    async with lifespan(None) as state:\n        assert state['manager']\n"
    program = f"{thread}\n{task}\n{serve}\nasyncio.run(serve())\n"
    done = run([sys.executable, "-W", "error", "-c", program], tmp_path)
    assert done.returncode == 0, done.stderr
    for script in blocks("sh"):
        done = run(["bash", "-euo", "pipefail", "-c", script], tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_examples_for_agents_run_one_after_the_other(tmp_path: Path) -> None:
    document = (CHECKOUT / "docs" / "agents.md").read_text(encoding="utf-8")
    program = "\n".join(blocks("python", document))
    assert len(blocks("python", document)) > 7
    # Haystack says so itself at each start, of its own compactors.
    named = ("SlidingWindowCompactor", "SummarizationCompactor", "CompactionHook")
    experimental = [part for name in named for part in ("-W", f"ignore:'{name}'")]
    done = run([sys.executable, "-W", "error", *experimental, "-c", program], tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_copy_is_restored_although_a_killed_process_has_left_a_log(tmp_path: Path) -> None:
    program = """
import os, signal, sqlite3
from contextlib import closing
from tenancy import SessionManager

manager = SessionManager.local("tenancy-data")
for number in range(20):
    manager.session(tenant="acme", user="ann", session=f"{number % 4}").write(b"before" * 500)
with closing(sqlite3.connect("tenancy-data/catalogue.sqlite3")) as one, closing(sqlite3.connect("copy")) as other:
    one.backup(other)
manager.close()
manager = SessionManager.local("tenancy-data")
for number in range(40):
    manager.session(tenant="acme", user="ann", session=f"later {number % 9}").write(b"after" * 900)
manager.delete_session(tenant="acme", user="ann", session="1")
manager.session(tenant="acme", user="ann", session="last").write(b"after" * 900)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run([sys.executable, "-c", program], tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    catalogue = tmp_path / "tenancy-data" / "catalogue.sqlite3"
    assert catalogue.with_name("catalogue.sqlite3-wal").stat().st_size > 0
    before, after = OPERATIONS.split("To restore, ")[1].split("Then bring back")
    for script, copies in ((before, True), (after, False)):
        (first,) = re.findall(r"^```sh\n(.*?)^```$", script.split("\n## ")[0], flags=re.MULTILINE | re.DOTALL)
        done = run(["bash", "-euo", "pipefail", "-c", first], tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        if copies:
            shutil.copyfile(tmp_path / "copy", catalogue)
    assert re.search(r"checked results +20$", done.stdout, flags=re.MULTILINE)


def test_the_jobs_of_the_handbook_say_what_their_readers_understand(tmp_path: Path) -> None:
    (job,) = (yaml.safe_load(block) for block in blocks("yaml"))
    container = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    service, timer = (configparser.ConfigParser(strict=True) for _ in range(2))
    for unit, text in zip((service, timer), blocks("ini"), strict=True):
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(text)
    commands = [container["command"], service["Service"]["ExecStart"].split(), blocks("crontab")[0].split()[6:-1]]
    assert timer["Timer"]["OnCalendar"]
    made = run(["tenancy", "--data", str(tmp_path / "data"), "init"], tmp_path)
    assert made.returncode == 0, made.stderr
    for command in commands:
        assert Path(command[0]).name == "tenancy"
        assert command[1:3] == ["--config", "/etc/tenancy/tenancy.toml"]
        done = run(["tenancy", "--data", str(tmp_path / "data"), *command[3:]], tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_commands_that_show_the_promises_are_there() -> None:
    table = OPERATIONS.split("## How it is known")[1]
    modules = re.findall(r"`python -m ([\w.]+)", table)
    assert len(modules) > 5
    for module in modules:
        place = CHECKOUT.joinpath(*module.split("."))
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), module
    for folder in re.findall(r"`pytest -m slow ([\w/]+)`", table):
        assert list((CHECKOUT / folder).glob("test_*.py"))


def test_the_handbook_explains_every_event_and_no_other() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", OPERATIONS.split("| event |")[1], flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(get_args(Event))


def test_the_numbers_of_the_handbook_are_those_of_the_code() -> None:
    assert f"reserve of {RESERVE_BYTES // 2**20} MiB" in OPERATIONS
    first, *_, last = reserve_names("catalogue.sqlite3")
    assert f"`{first}` to `{last.removeprefix('catalogue.sqlite3')}`" in OPERATIONS
    assert (GRACE.days, ONE_IN) == (1, 100)


#: A manager with the provider of the example, which it finds as an installed package.
INSTALLED: Final = """
import os
from tenancy import SessionManager, Settings
from tenancy.upgrade import upgrade

def test_a_manager_works_with_it(tmp_path):
    (tmp_path / "2030-01.key").write_bytes(os.urandom(32))
    url = f"sqlite:///{tmp_path}/catalogue.sqlite3"
    upgrade(url)
    settings = Settings(database_url=url, store_url="database:", keys=f"folder:{tmp_path}")
    for _ in range(2):
        with SessionManager.from_settings(settings) as manager:
            session = manager.session(tenant="acme", user="ann")
            assert session.read(session.write("text")) == "text"
"""


def test_the_provider_of_the_example_keeps_the_contract_and_serves_a_manager(tmp_path: Path) -> None:
    provider, suite = blocks("python", KEYS)
    tables = [tomllib.loads(block) for block in blocks("toml", KEYS)]
    (points,) = (table["project"]["entry-points"] for table in tables if "project" in table)
    (tmp_path / "folder_keys.py").write_text(provider, encoding="utf-8")
    (tmp_path / "test_folder_keys.py").write_text(suite, encoding="utf-8")
    (tmp_path / "test_installed.py").write_text(INSTALLED, encoding="utf-8")
    information = tmp_path / "folder_keys-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: folder-keys\nVersion: 1.0\n")
    lines = [f"[{group}]\n{name} = {target}" for group, names in points.items() for name, target in names.items()]
    (information / "entry_points.txt").write_text("\n".join(lines))
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."], tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^(3[0-9]|[4-9][0-9]) passed", done.stdout, flags=re.MULTILINE)


def test_what_the_page_on_keys_says_of_settings_and_limits_is_so() -> None:
    setting, others = (tomllib.loads(block) for block in blocks("toml", KEYS) if block.startswith("keys"))
    assert parse_location(setting["keys"])[0] == "aws-kms"
    required = {"database_url": "sqlite:////srv/catalogue.sqlite3", "store_url": "database:"}
    (own,) = Settings(**required, **others).other_keys
    assert f"--to {own}" in KEYS
    (policy,) = map(json.loads, blocks("json", KEYS))
    assert policy["Statement"][0]["Resource"] == setting["keys"].removeprefix("aws-kms:")
    named = re.findall(r"^\| `([a-z-]+):", KEYS, flags=re.MULTILINE)
    assert sorted(named) == sorted(BUILT_IN)
    assert "after three attempts, each with 3 seconds to connect and 5 to answer" in KEYS
    assert (aws_kms._ATTEMPTS, aws_kms._CONNECT_SECONDS, aws_kms._READ_SECONDS) == (3, 3, 5)
    assert f"`{aws_kms.CONTEXT_NAME}`, with a digest" in KEYS
    assert f'"{GROUP}"' in KEYS
