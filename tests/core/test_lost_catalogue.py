"""A data directory that has lost its catalogue is refused, never filled with a new and empty one."""

from pathlib import Path

import pytest

from tenancy import ConfigurationError, SchemaOutdated, SessionManager
from tenancy.keys.keyset import KeysetError, parse_keyset


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A directory whose results all stand in its catalogue, so that its folder of results is empty."""
    with SessionManager.local(tmp_path / "data", durability="process") as manager:
        manager.session(tenant="acme", user="ann").write("x")
    assert not any((tmp_path / "data" / "results").iterdir())
    return tmp_path / "data"


def _drop_catalogue(data: Path) -> None:
    for file in data.glob("catalogue.sqlite3*"):
        file.unlink()


@pytest.mark.case(140)
def test_a_missing_catalogue_is_not_made_anew(used: Path) -> None:
    _drop_catalogue(used)
    with pytest.raises(ConfigurationError, match="Restore it"):
        SessionManager.local(used)
    assert not (used / "catalogue.sqlite3").exists()


def test_a_directory_that_lost_its_key_too_is_given_no_new_one(used: Path) -> None:
    _drop_catalogue(used)
    (used / "keys.json").unlink()
    with pytest.raises(ConfigurationError, match="key file"):
        SessionManager.local(used)
    assert [path.name for path in used.iterdir()] == ["results"]


@pytest.mark.case(140)
def test_an_emptied_catalogue_is_not_filled_anew(used: Path) -> None:
    _drop_catalogue(used)
    (used / "catalogue.sqlite3").touch(0o600)
    for _ in range(2):
        with pytest.raises((ConfigurationError, SchemaOutdated)):
            SessionManager.local(used)


@pytest.mark.parametrize("name", ["a?b", "100%25", "c#d", "new\nline", "file:x"])
def test_a_directory_may_be_called_anything_a_text_can_hold(tmp_path: Path, name: str) -> None:
    with SessionManager.local(tmp_path / name, durability="process", inline_bytes=0) as manager:
        session = manager.session(tenant="acme", user="ann")
        assert session.read(session.write("x")) == "x"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["nul\0byte", "\udcff"])
def test_a_name_that_is_no_text_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError):
        SessionManager.local(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_five_thousand_digits_is_no_keyset() -> None:
    with pytest.raises(KeysetError, match="not one JSON document"):
        parse_keyset(b"9" * 5_000)
