"""Roots that are not safe, and identifiers that look like places: refused, or taken for the plain texts they are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stores.names import is_name
from tenancy import ConfigurationError, ResultNotFound, SessionManager
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger
from tests.stores.files import modes_below


def link(results: Path) -> None:
    results.rename(results.with_name("elsewhere"))
    results.symlink_to("elsewhere")


def dangling_link(results: Path) -> None:
    results.rename(results.with_name("elsewhere"))
    results.symlink_to("missing")


def file(results: Path) -> None:
    results.rename(results.with_name("elsewhere"))
    results.touch(mode=0o600)


def pipe(results: Path) -> None:
    results.rename(results.with_name("elsewhere"))
    os.mkfifo(results, 0o700)


def mode(bits: int) -> Callable[[Path], None]:
    def change(results: Path) -> None:
        results.chmod(bits)

    return change


UNSAFE: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (link, "symbolic link"),
    "dangling link": (dangling_link, "symbolic link"),
    "file": (file, "no directory"),
    "pipe": (pipe, "no directory"),
    **{oct(bits): (mode(bits), "0700") for bits in (0o777, 0o1777, 0o750, 0o701, 0o500)},
}


@pytest.mark.case(21)
@pytest.mark.parametrize("unsafe", UNSAFE)
def test_no_manager_starts_on_an_unsafe_root_and_nothing_is_put_right_behind_the_operators_back(
    make_manager: ManagerFactory, ledger: Ledger, unsafe: str
) -> None:
    with make_manager(durability="process") as manager:
        manager.session(tenant="acme", user="ann").write(b"x" * 50_000)
    make_unsafe, word = UNSAFE[unsafe]
    make_unsafe(make_manager.results)
    before, status = ledger.snapshot(), make_manager.results.lstat()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=word) as refused:
            make_manager()
        assert str(make_manager.results) not in str(refused.value)
    assert ledger.snapshot() == before
    after = make_manager.results.lstat()
    assert (after.st_mode, after.st_ino, after.st_mtime_ns) == (status.st_mode, status.st_ino, status.st_mtime_ns)


@pytest.mark.case(21)
def test_no_manager_starts_on_a_root_of_another_users(
    make_manager: ManagerFactory, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_manager(durability="process").session(tenant="acme", user="ann").write(b"x" * 50_000)
    before = ledger.snapshot()
    owner = make_manager.results.stat().st_uid
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        if status.st_ino != make_manager.results.stat().st_ino:
            return status
        fields = list(status)
        fields[4] += 1  # the uid
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(ConfigurationError, match=f"user with id {owner + 1} ") as refused:
        make_manager()
    assert "run it as the user that owns the root" in str(refused.value)
    monkeypatch.undo()
    assert ledger.snapshot() == before


@pytest.mark.case(21)
def test_a_root_that_is_missing_is_made_for_its_owner_alone(make_manager: ManagerFactory) -> None:
    make_manager.results.rmdir()
    before = os.umask(0)
    try:
        manager = make_manager()
    finally:
        os.umask(before)
    manager.session(tenant="acme", user="ann").write(b"x" * 50_000)
    assert modes_below(make_manager.results) == {"directories": {0o700}, "files": {0o600}}


def descriptors() -> list[str]:
    """Everything this process has open, as a path that leads to it."""
    numbers = os.listdir("/dev/fd")
    return [f"{folder}/{number}" for folder in ("/proc/self/fd", "/dev/fd") for number in numbers]


@pytest.mark.case(24)
def test_a_descriptor_of_the_process_is_no_reference_and_as_an_identifier_a_text_like_any_other(
    make_manager: ManagerFactory, manager: SessionManager, ledger: Ledger
) -> None:
    session = manager.session(tenant="acme", user="ann")
    session.write(b"x" * 50_000)
    before = ledger.snapshot()
    texts = [*descriptors(), "/dev/stdin", "/proc/self/cwd", "/proc/self/root", str(make_manager.results)]
    for text in [*texts, *(f"{text}/{ledger.files[0].name}" for text in texts), str(ledger.files[0])]:
        for use in (session.read, session.delete, lambda reference: session.read_page(reference, max_chars=1)):
            with pytest.raises(ResultNotFound):
                use(text)
    assert ledger.snapshot() == before
    for text in texts[-4:] + texts[:2]:
        own = manager.session(tenant=text, user=text, session=text)
        reference = own.write(text + "x" * 50_000, name=text)
        assert own.read(reference) == text + "x" * 50_000
        assert [result.reference for result in own.results()] == [reference]
        assert manager.delete_session(tenant=text, user=text, session=text).results == 1
    parts = {part for path in make_manager.results.rglob("*") for part in path.relative_to(make_manager.results).parts}
    assert {part for part in parts if not is_name(part)} <= {"trash"}
    assert [str(path) for path in ledger.files] == [name for name, _ in before["files"]]
