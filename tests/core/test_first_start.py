"""A first start on a full disk says so, and leaves nothing that the next one would stumble over."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenancy import SessionManager, StorageFull
from tenancy.keys.providers import create_key_file

FULL = (errno.ENOSPC, errno.EDQUOT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let the system itself refuse to write more into a file, in the middle of it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refusing(real: Callable[..., Any], code: int, *, name: str = "") -> Callable[..., Any]:
    """A call that finds the disk full when it is about a file of this name."""

    def call(*arguments: Any, **settings: Any) -> Any:
        if name in str(arguments[0]):
            raise OSError(code, os.strerror(code), "/a/path/that/nobody/must/see")
        return real(*arguments, **settings)

    return call


def require_sentence(refusal: pytest.ExceptionInfo[StorageFull], path: Path) -> None:
    assert "full" in str(refusal.value)
    assert "/" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("code", FULL)
@pytest.mark.parametrize("step", ["open", "fsync", "link"])
def test_a_key_file_without_room_is_said_to_have_none_and_leaves_nothing(
    step: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, step, refusing(getattr(os, step), code, name=".keys.json" if step != "fsync" else ""))
        with pytest.raises(StorageFull) as refusal:
            create_key_file(tmp_path / "keys.json")
    require_sentence(refusal, tmp_path)
    create_key_file(tmp_path / "keys.json")


def test_half_a_key_file_is_not_kept(tmp_path: Path) -> None:
    with files_of_at_most(16), pytest.raises(StorageFull) as refusal:
        create_key_file(tmp_path / "keys.json")
    require_sentence(refusal, tmp_path)


@pytest.mark.parametrize("code", FULL)
@pytest.mark.parametrize(
    ("call", "name"),
    [("mkdir", ""), ("open", ".keys.json"), ("open", "catalogue.sqlite3")],
    ids=["data directory", "key file", "database"],
)
def test_a_first_start_says_that_the_disk_is_full_and_the_next_one_succeeds(
    call: str, name: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, call, refusing(getattr(os, call), code, name=name))
        with pytest.raises(StorageFull) as refusal:
            SessionManager.local(folder)
    assert "full" in str(refusal.value)
    assert "/" not in str(refusal.value)
    # A key that is whole is kept: the next start uses it.
    assert not folder.exists() or {path.name for path in folder.iterdir()} <= {"keys.json"}
    with SessionManager.local(folder) as manager:
        manager.session(tenant="acme", user="ann").write("there is room")
