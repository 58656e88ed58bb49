"""What users install: the wheel, its licence, and migrations that work without a checkout."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenancy.version import __version__

CHECKOUT = Path(__file__).parent.parent
#: Runs far from the checkout, with the unpacked wheel first on the path.
_INSTALLED = """
import sys
from pathlib import Path
from tenancy.upgrade import check, migrations_folder, upgrade
assert migrations_folder() == Path(sys.argv[1]) / "tenancy" / "migrations", migrations_folder()
upgrade(sys.argv[2])
check(sys.argv[2])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built here and now."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel lies as an installer would lay it out, below a name that alembic could take for a variable."""
    folder = tmp_path_factory.mktemp("site-packages 100 %(here)s")
    wheel.extractall(folder)
    return folder


def test_the_wheel_carries_the_packages_and_nothing_of_the_workshop(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {
        "tenancy",
        "stores",
        f"haystack_tenancy-{__version__}.dist-info",
    }
    needed = {"tenancy/__init__.py", "tenancy/py.typed", "stores/__init__.py", "stores/py.typed", "stores/testing.py"}
    assert needed <= set(names)
    assert not [name for name in names if "test_" in name or "__pycache__" in name or name.endswith((".pyc", ".ini"))]


def test_the_wheel_carries_every_source_file_and_every_revision(wheel: zipfile.ZipFile) -> None:
    expected = {
        path.relative_to(CHECKOUT).as_posix()
        for package in ("tenancy", "stores")
        for path in (CHECKOUT / package).rglob("*.py")
    }
    expected |= {f"tenancy/{path.relative_to(CHECKOUT).as_posix()}" for path in CHECKOUT.glob("migrations/**/*.py")}
    expected.add("tenancy/migrations/script.py.mako")
    assert expected <= set(wheel.namelist())


def test_an_installed_wheel_upgrades_a_database(unpacked: Path, empty_database_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INSTALLED, str(unpacked), empty_database_url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_licence_is_apache_2_and_goes_with_the_wheel(wheel: zipfile.ZipFile) -> None:
    information = f"haystack_tenancy-{__version__}.dist-info"
    licence = (CHECKOUT / "LICENSE").read_text()
    assert re.match(r"\s*Apache License\s+Version 2\.0, January 2004", licence)
    assert wheel.read(f"{information}/licenses/LICENSE").decode() == licence
    assert "License-Expression: Apache-2.0\n" in wheel.read(f"{information}/METADATA").decode()


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    entries = wheel.read(f"haystack_tenancy-{__version__}.dist-info/entry_points.txt").decode()
    assert "tenancy = tenancy.cli:main" in entries


def test_the_version_is_the_same_everywhere(wheel: zipfile.ZipFile) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    metadata = wheel.read(f"haystack_tenancy-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert f"\n## [{__version__}] - " in (CHECKOUT / "CHANGELOG.md").read_text()


def test_extras_are_those_the_documents_name() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == {"postgres", "aws", "bench", "dev"}
