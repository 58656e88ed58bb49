"""Which roots a filesystem store opens, and what it says about the others."""

import os
from pathlib import Path

import pytest

from stores.errors import StoreDenied
from stores.filesystem import FilesystemStore
from tests.stores.files import INNER, NAME, OUTER


def refusal(path: Path | str) -> str:
    """Return why a root is refused, after checking that the sentence has no path."""
    with pytest.raises(StoreDenied) as refused:
        FilesystemStore(path)
    said = str(refused.value)
    assert "/" not in said
    assert said.endswith(".")
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    return said


def test_a_missing_root_is_made_and_used(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path / "root")
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.close()
    assert (tmp_path / "root" / OUTER / INNER / NAME).exists()


def test_a_missing_parent_is_not_made(tmp_path: Path) -> None:
    assert "create it first" in refusal(tmp_path / "missing" / "root")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.case(21)
@pytest.mark.parametrize("tail", ["", "/", "//", "/."])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_symbolic_link_is_no_root_however_it_is_spelled(tmp_path: Path, tail: str, dangling: bool) -> None:
    target = tmp_path / "target"
    if not dangling:
        target.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(target)
    assert "symbolic link" in refusal(f"{tmp_path / 'link'}{tail}")
    assert target.exists() is not dangling


def test_links_above_the_root_are_the_operators_business(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    FilesystemStore(tmp_path / "link" / "root").close()
    assert (tmp_path / "disk" / "root").is_dir()


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert "no directory" in refusal(tmp_path / "file")


def test_the_file_system_itself_is_no_root() -> None:
    assert "directory of its own" in refusal("/")


@pytest.mark.case(21)
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o755, 0o750, 0o711, 0o707, 0o702, 0o720, 0o500, 0o600])
def test_a_root_of_another_mode_is_refused_and_left_as_it_is(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    assert "set it to 0700" in refusal(root)
    assert root.stat().st_mode & 0o7777 == mode
    assert list(root.iterdir()) == []


@pytest.mark.case(21, 22, 92)
def test_a_root_that_the_store_made_gets_its_mode_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o377)
    try:
        FilesystemStore(tmp_path / "root").close()
    finally:
        os.umask(before)
    assert (tmp_path / "root").stat().st_mode & 0o7777 == 0o700


@pytest.mark.case(21)
def test_another_users_root_is_refused_by_everybody_and_the_owner_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    owner = root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    said = refusal(root)
    assert f"user with id {owner} " in said
    assert "run it as the user that owns the root" in said


def test_a_platform_without_relative_opening_is_sent_to_the_database_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", os.supports_dir_fd - {os.open})
    assert "database store" in refusal(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_a_relative_root_is_one_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = FilesystemStore("root")
    monkeypatch.chdir("/")
    # The root is held: a later change of directory does not move it.
    store.namespace(OUTER, INNER).put(NAME, b"x")
    store.close()
    assert (tmp_path / "root" / OUTER / INNER / NAME).exists()
