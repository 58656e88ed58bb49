"""The shape of the house stays as designed: directions, rooms, sizes, and what lies at the top."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.imports import breaches

CHECKOUT = Path(__file__).parent.parent
_MAX_LINES = 320
_MAX_TEST_LINES = 600
_TOP_LEVEL = re.compile(
    r"pyproject\.toml|tenancy|stores|migrations|tests|alembic\.ini|README\.md|LICENSE|CHANGELOG\.md"
    r"|docs|examples|benchmarks|\..+"
)


def kept_files(*, ending: str = "") -> list[str]:
    """Every file that is in the repository, or would be once added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\0") if name.endswith(ending) and name and (CHECKOUT / name).exists()]


def sources() -> list[str]:
    return [name for name in kept_files(ending=".py") if name.startswith(("tenancy/", "stores/", "migrations/"))]


def misplaced(names: list[str]) -> set[str]:
    return {top for top in (name.split("/", 1)[0] for name in names) if not _TOP_LEVEL.fullmatch(top)}


def too_long(name: str, text: str) -> bool:
    return text.count("\n") > (_MAX_TEST_LINES if name.startswith("tests/") else _MAX_LINES)


def test_imports_go_down_only_and_each_package_stays_in_its_rooms() -> None:
    found = {name: breaches(name, (CHECKOUT / name).read_text(encoding="utf-8")) for name in sources()}
    assert {name: modules for name, modules in found.items() if modules} == {}
    assert len(found) > 20


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("stores/memory.py", "import tenancy"),
        ("stores/memory.py", "from tenancy.scope import Scope"),
        ("stores/memory.py", "def late():\n    from tenancy.scope import Scope"),
        ("stores/memory.py", "if TYPE_CHECKING:\n    from tenancy.scope import Scope"),
        ("stores/memory.py", "from ..tenancy import scope"),
        ("stores/memory.py", "import importlib\nimportlib.import_module('tenancy')"),
        ("stores/memory.py", "import importlib\nimportlib.import_module(name)"),
        ("stores/memory.py", "__import__('tenancy')"),
        ("tenancy/scope.py", "import migrations.env"),
        ("tenancy/scope.py", "from tests.postgres import PostgresServer"),
        ("tenancy/scope.py", "from stores.sql import Database, sqlalchemy\nimport sqlalchemy.orm"),
        ("tenancy/session.py", "import sqlalchemy as sa"),
        ("tenancy/catalogue/results.py", "import sqlite3"),
        ("tenancy/manager.py", "import psycopg"),
        ("tenancy/manager.py", "import alembic.command"),
        ("tenancy/manager.py", "from cryptography import cobblestone"),
        ("tenancy/catalogue/results.py", "import haystack"),
        ("tenancy/keys/providers.py", "def late():\n    import boto3"),
        ("tenancy/manager.py", "import typer"),
        ("tenancy/manager.py", "from rich import print"),
        ("tenancy/manager.py", "from pydantic import BaseModel"),
        ("tenancy/manager.py", "import pytest"),
        ("tenancy/manager.py", "import something_nobody_has_decided_on"),
        ("migrations/versions/0002_more.py", "import haystack"),
    ],
)
def test_the_fence_holds(path: str, source: str) -> None:
    assert len(breaches(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("migrations/env.py", "import sqlalchemy\nfrom alembic import context\nfrom tenancy.schema import METADATA"),
        ("tenancy/manager.py", "import os\nfrom stores.blob import BlobStore\nfrom tenancy.scope import Scope"),
        ("tenancy/catalogue/results.py", "import sqlalchemy as sa"),
        ("tenancy/sealing/cipher.py", "from cryptography import cobblestone"),
        ("stores/testing.py", "import pytest"),
        ("stores/driver_errors.py", "def late():\n    import psycopg"),
        ("tenancy/keys/aws_kms.py", "def late():\n    import boto3"),
        ("tenancy/testing.py", "import pytest"),
    ],
)
def test_the_fence_has_its_gates(path: str, source: str) -> None:
    assert breaches(path, source) == []


def test_the_top_of_the_checkout_is_what_the_design_allows() -> None:
    assert misplaced(kept_files()) == set()
    assert misplaced(["tenancy/scope.py", "scripts/run.sh", "uv.lock", ".ci/run"]) == {"scripts", "uv.lock"}


def test_no_file_has_more_lines_than_a_reader_can_hold() -> None:
    files = kept_files(ending=".py")
    assert [name for name in files if too_long(name, (CHECKOUT / name).read_text(encoding="utf-8"))] == []
    assert too_long("tenancy/scope.py", "\n" * (_MAX_LINES + 1))


def test_no_file_names_a_machine_or_a_registry() -> None:
    # Split, so that this very file does not hold what it looks for.
    wrong = re.compile("|".join(["pypi" + r"\.org", "python" + r"hosted", "npm" + r"js\.org", "/ro" + "ot/"]))
    found = [name for name in kept_files() if wrong.search((CHECKOUT / name).read_text("utf-8", errors="replace"))]
    assert found == []


def test_no_work_waits_for_a_later_day_and_no_test_waits_for_time() -> None:
    later = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|NotImpl" + r"ementedError)\b")
    asleep = re.compile(r"time\.sl" + r"eep\(|mark\.(sk" + r"ip|xf" + r"ail)|pytest\.sk" + r"ip\(")
    for name in kept_files(ending=".py"):
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        assert not later.search(text), name
        assert not (name.startswith("tests/") and asleep.search(text)), name
