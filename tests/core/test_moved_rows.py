"""Rows and bytes that somebody moved within the database: what is sealed opens where it was sealed and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest

from tenancy import ResultCorrupt, Session, SessionManager
from tests.core.ledger import Ledger

Open = Callable[..., Session]
#: What of a row says how it is sealed and what it is called.
SEALED = ("header", "card", "kind", "codec", "size_bytes", "stored_bytes", "format", "suite", "key_version")


def row_of(ledger: Ledger, name: str) -> dict[str, Any]:
    """The sealed columns of the only result of a session, and where its bytes are."""
    columns = ("tenant_id", "session_id", "result_id", "inline", *SEALED)
    query = f"SELECT {', '.join(f'r.{column}' for column in columns)} FROM tenancy_results r"
    query += " JOIN tenancy_sessions s ON s.session_id = r.session_id WHERE s.name = :name"
    return dict(zip(columns, ledger.all(query, name=name)[0], strict=True))


def write_row(ledger: Ledger, row: dict[str, Any], columns: tuple[str, ...], to: dict[str, Any]) -> None:
    changes = ", ".join(f"{column} = :{column}" for column in columns)
    values = {column: row[column] for column in columns}
    query = f"UPDATE tenancy_results SET {changes} WHERE result_id = :result_id"
    assert ledger.run(query, result_id=to["result_id"], **values) == 1


def copy_bytes(ledger: Ledger, source: dict[str, Any], target: dict[str, Any]) -> None:
    if source["inline"]:
        data = ledger.one("SELECT data FROM tenancy_blobs WHERE name = :name", name=source["result_id"])
        query = "UPDATE tenancy_blobs SET data = :data WHERE name = :name"
        assert ledger.run(query, data=data, name=target["result_id"]) == 1
    else:
        paths = {path.name: path for path in ledger.files}
        paths[target["result_id"]].write_bytes(paths[source["result_id"]].read_bytes())


def require_corrupt(session: Session, reference: str) -> None:
    for use in (session.read, lambda text: session.read_page(text, max_chars=1)):
        with pytest.raises(ResultCorrupt):
            use(reference)


@pytest.mark.case(30)
@pytest.mark.parametrize("columns", [("header",), ("card",), ("header", "card"), SEALED], ids="+".join)
def test_two_rows_that_changed_columns_are_both_damaged(
    manager: SessionManager, open_session: Open, ledger: Ledger, columns: tuple[str, ...]
) -> None:
    rooms = [open_session(name) for name in ("one", "two")]
    references = [room.write(f"of room {number}") for number, room in enumerate(rooms)]
    one, two = row_of(ledger, "one"), row_of(ledger, "two")
    write_row(ledger, one, columns, two)
    write_row(ledger, two, columns, one)
    for room, reference in zip(rooms, references, strict=True):
        require_corrupt(room, reference)
    assert {finding.kind: finding.count for finding in manager.verify().findings} == {"damaged": 2}
    write_row(ledger, one, columns, one)
    write_row(ledger, two, columns, two)
    assert [room.read(reference) for room, reference in zip(rooms, references, strict=True)] == [
        "of room 0",
        "of room 1",
    ]


@pytest.mark.case(31)
@pytest.mark.parametrize("where", [{}, {"user": "bob"}, {"tenant": "globex"}], ids=["session", "user", "tenant"])
@pytest.mark.parametrize("size", [10, 50_000])
def test_a_row_copied_with_its_bytes_opens_nothing_elsewhere(
    open_session: Open, ledger: Ledger, where: dict[str, str], size: int
) -> None:
    secret = "s" * size if size < 100 else "".join(f"{number * 7919 % 1_000_003} " for number in range(size // 4))
    theirs, mine = open_session("theirs"), open_session("mine", **where)
    reference, own = theirs.write(secret), mine.write("mine")
    source, target = row_of(ledger, "theirs"), row_of(ledger, "mine")
    if source["inline"] != target["inline"]:
        # A row that says where its bytes are can be edited as well.
        own = mine.write(secret[::-1])
        mine.delete(next(result.reference for result in mine.results() if result.size_bytes == 4))
        target = row_of(ledger, "mine")
    write_row(ledger, source, SEALED, target)
    copy_bytes(ledger, source, target)
    require_corrupt(mine, own)
    with pytest.raises(ResultCorrupt):
        list(mine.results())
    assert theirs.read(reference) == secret
