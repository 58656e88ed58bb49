"""Commands of an installation whose key is in a key service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.crypto.kms import Service, running


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with running(monkeypatch) as service:
        yield service


def test_it_is_made_and_looked_after_as_any_other(kms: Service, run: Run, tmp_path: Path) -> None:
    key = kms.create_key()
    config = tmp_path / "tenancy.toml"
    config.write_text(
        f'database_url = "sqlite:///{tmp_path}/catalogue.sqlite3"\nstore_url = "database:"\nkeys = "aws-kms:{key}"\n'
    )

    def found() -> dict[str, dict[str, Any]]:
        ran = run("doctor", "--config", config, "--output", "json")
        assert "arn:" not in ran.out + ran.err
        return {each["name"]: each for each in ran.json["checks"]}

    made = run("init", "--config", config, "--output", "json")
    assert (made.code, made.json["created"]) == (0, ["schema"])
    assert (found()["key"]["status"], found()["catalogue"]["status"]) == ("ok", "ok")
    kms.admin.disable_key(KeyId=key[-36:])
    assert found()["key"]["status"] == "ok"
    assert found()["catalogue"]["detail"] == "The key of the key service is disabled."
    assert found()["catalogue"]["advice"] == "See that it answers, and try again."
    assert run("cleanup", "--config", config).code == 0
    kms.admin.enable_key(KeyId=key[-36:])
    assert found()["catalogue"]["status"] == "ok"
