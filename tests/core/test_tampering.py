"""Bytes and rows that somebody changed: read loudly, found by verify, deleted by nobody."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tenancy import ResultCorrupt, Session, SessionManager
from tenancy.verify import Finding
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]


def findings(manager: SessionManager) -> dict[str, int]:
    """What a check finds that changes nothing."""
    report = manager.verify()
    assert report.ok == (report.findings == ())
    assert not any(finding.repaired for finding in report.findings)
    return {finding.kind: finding.count for finding in report.findings}


@pytest.fixture
def filled(session: Session) -> dict[str, str | bytes]:
    """A small text, and two results that are always files."""
    contents: list[str | bytes] = ["small", b"x" * 50_000, b"y" * 50_000]
    return {session.write(content): content for content in contents}


def file_of(ledger: Ledger, number: int) -> Path:
    """The file of a result, by its number."""
    name = ledger.one("SELECT result_id FROM tenancy_results WHERE number = :number", number=number)
    (path,) = [path for path in ledger.files if path.name == name]
    return path


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x00")


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.case(25, 26, 27, 141)
@pytest.mark.parametrize("damage", [cut_short, empty, append, flip_a_bit])
def test_a_damaged_file_is_found_read_loudly_and_not_deleted(
    manager: SessionManager,
    session: Session,
    filled: dict[str, str | bytes],
    ledger: Ledger,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    reference = list(filled)[1]
    damage(file_of(ledger, 2))
    before = ledger.snapshot()
    assert findings(manager) == {"damaged": 1}
    report = manager.verify(repair=True)
    assert (report.ok, report.findings) == (False, (Finding("damaged", 1, repaired=False),))
    assert ledger.snapshot() == before
    for _ in range(2):
        with pytest.raises(ResultCorrupt):
            session.read(reference)
    assert [getattr(record, "event", "") for record in caplog.records] == ["corrupt"] * 2
    # Everything else is readable, and the damaged one can still be deleted.
    for other, content in filled.items():
        if other != reference:
            assert session.read(other) == content
    session.delete(reference)
    assert findings(manager) == {}
    ledger.require_balanced()


@pytest.mark.case(29, 34)
def test_two_files_that_were_swapped_are_both_damaged(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes], ledger: Ledger
) -> None:
    one, two = file_of(ledger, 2), file_of(ledger, 3)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert findings(manager) == {"damaged": 2}
    for reference in list(filled)[1:]:
        with pytest.raises(ResultCorrupt):
            session.read(reference)


@pytest.mark.case(32)
@pytest.mark.parametrize(
    "change",
    [
        "kind = 1 - kind",
        "size_bytes = size_bytes + 1",
        "codec = 1 - codec",
        "suite = 2",
        "format = 2",
        "header = card",
        "card = header",
    ],
)
def test_a_row_that_somebody_edited_is_damaged(
    manager: SessionManager, session: Session, filled: dict[str, str | bytes], ledger: Ledger, change: str
) -> None:
    ledger.run(f"UPDATE tenancy_results SET {change} WHERE number = 1")
    reference = next(iter(filled))
    found = findings(manager)
    # A size that is not what was charged is a counter that is wrong, too.
    assert found.pop("wrong_usage", 3) == 3
    assert found == {"damaged": 1}
    with pytest.raises(ResultCorrupt):
        session.read(reference)
    with pytest.raises(ResultCorrupt):
        list(session.results())


def test_two_rows_whose_numbers_were_swapped_are_not_taken_for_each_other(session: Session, ledger: Ledger) -> None:
    references = [session.write(letter * 50_000) for letter in "xyz"][1:]
    hashes = dict(ledger.all("SELECT number, reference_hash FROM tenancy_results"))
    for number, to in ((2, 102), (3, 2), (102, 3)):
        ledger.run("UPDATE tenancy_results SET number = :to WHERE number = :number", to=to, number=number)
    for number in (2, 3):
        ledger.run(
            "UPDATE tenancy_results SET reference_hash = :hash WHERE number = :number",
            hash=hashes[number],
            number=number,
        )
    for reference in references:
        with pytest.raises(ResultCorrupt):
            session.read(reference)
        with pytest.raises(ResultCorrupt):
            session.read_page(reference, max_chars=10)


@pytest.mark.case(31)
def test_a_row_copied_to_another_session_opens_nothing_there(
    session: Session, open_session: Open, filled: dict[str, str | bytes], ledger: Ledger, manager: SessionManager
) -> None:
    other = open_session("other")
    own = other.write("own")
    source, target = (
        ledger.all(
            "SELECT r.header, r.card, r.result_id, r.kind, r.codec, r.size_bytes, r.stored_bytes FROM tenancy_results r"
            " JOIN tenancy_sessions s ON s.session_id = r.session_id WHERE s.name = :name AND r.number = 1",
            name=name,
        )[0]
        for name in ("chat", "other")
    )
    changed = ledger.run(
        "UPDATE tenancy_results SET header = :header, card = :card, kind = :kind, codec = :codec, size_bytes = :size,"
        " stored_bytes = :stored WHERE result_id = :target",
        header=source[0], card=source[1], kind=source[3], codec=source[4], size=source[5], stored=source[6],
        target=target[2],
    )  # fmt: skip
    assert changed == 1
    with pytest.raises(ResultCorrupt):
        other.read(own)
    assert findings(manager)["damaged"] == 1


@pytest.mark.case(129)
def test_a_plaintext_where_a_sealed_result_should_be_is_refused(
    session: Session, manager: SessionManager, ledger: Ledger, make_manager: ManagerFactory
) -> None:
    reference = session.write("x" * 100)
    size = ledger.one("SELECT stored_bytes FROM tenancy_results")
    plaintext = b"p" * size
    if make_manager.inline_bytes:
        ledger.run("UPDATE tenancy_blobs SET data = :data", data=plaintext)
    else:
        ledger.files[0].write_bytes(plaintext)
    with pytest.raises(ResultCorrupt):
        session.read(reference)
    assert findings(manager) == {"damaged": 1}
    assert ledger.where() == ledger.ways(small=1)
