"""`tenancy demo` does the whole job and says so."""

from tests.demo.conftest import Run
from pathlib import Path
from tenancy.demo.checks import CHECKS


def test_every_check_holds(run: Run, folder: Path) -> None:
    ran = run("--input", folder, "--output", "json")
    print(ran.out, ran.err)
    assert ran.code == 0
