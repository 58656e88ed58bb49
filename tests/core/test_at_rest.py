"""What lies on the disk, searched for everything that must not lie there."""

import base64
import gc
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tenancy import KeyUnavailable, Session, SessionManager
from tenancy.keys.material import SecretKey
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

Open = Callable[..., Session]
CANARY = "canary-plaintext-7f3a"
#: The last one would also be found in the hint of a reference.
SECRETS = [CANARY, "canary_tool", "canary-name", "canary/media", "canary"]


def keys_in_memory() -> list[bytes]:
    """Every key that this process holds in the clear: the key file's, the tenant's, the sessions'."""
    found = []
    for one in gc.get_objects():
        if isinstance(one, SecretKey):
            with suppress(KeyUnavailable), one.exposed() as view:
                found.append(bytes(view))
    return found


def fill(session: Session) -> None:
    """Texts and bytes, small and large, that compress and that do not; one of them deleted again."""
    for content in (CANARY, CANARY * 10_000, CANARY.encode(), CANARY.encode() * 10_000, "x" * 40_000 + CANARY):
        session.write_result(content, name="canary-name.txt", tool="canary_tool", media_type="canary/media")
    reference = session.write(CANARY * 3, name="canary_tool")
    assert reference.startswith("canary")
    session.delete(reference)
    # Names, references and all are read, listed and paged.
    for result in session.results():
        session.read(result.reference)


def forms(secret: bytes) -> list[bytes]:
    """A secret as it may have been written down."""
    text = [secret.hex().encode(), secret.hex().upper().encode()]
    return [secret, *text, base64.b64encode(secret).rstrip(b"="), base64.urlsafe_b64encode(secret).rstrip(b"=")]


def found_in(data: bytes, secrets: list[bytes]) -> list[bytes]:
    return [secret for secret in secrets if any(form in data for form in forms(secret))]


def dumped_rows(ledger: Ledger) -> bytes:
    """Every value of every table of ours."""
    tables = ["catalogue", "root_keys", "receipts"]
    values: list[bytes] = []
    for table in [*(f"tenancy_{name}" for name in tables), *ledger.counts()]:
        for row in ledger.all(f"SELECT * FROM {table}"):
            values += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    return b"\n".join(values)


@pytest.mark.case(42)
def test_no_row_and_no_file_holds_content_a_tool_a_name_or_a_key(
    make_manager: ManagerFactory,
    manager: SessionManager,
    ledger: Ledger,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    session = manager.session(tenant="acme", user="ann", session="chat")
    fill(session)
    keys = keys_in_memory()
    key_file = json.loads(make_manager.key_file.read_text())
    assert len(keys) >= 3  # the key file's, the tenant's, the session's
    secrets = [text.encode() for text in SECRETS] + keys
    rows = dumped_rows(ledger)
    assert len(rows) > 1000
    assert found_in(rows, secrets) == []
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(files) >= 1 + len(ledger.files)
    for path, data in files.items():
        if path != make_manager.key_file:
            assert found_in(data, secrets) == [], path.suffix
    # The search finds what is there: the key-encryption key, in its file and nowhere else.
    inside = found_in(files[make_manager.key_file], keys)
    assert len(inside) == 1
    assert len(key_file["keys"]) == 1
    assert not [path for path in files if SECRETS[1] in path.name or "canary" in path.name]
    assert found_in(caplog.text.encode(), secrets) == []
    # Four of the six compress to less than a page, or are small; the two of bytes do not.
    assert ledger.where() == ledger.ways(small=4, large=1)
    ledger.require_balanced()


def test_a_data_directory_holds_nothing_in_clear_while_it_is_in_use_and_afterwards(tmp_path: Path) -> None:
    for inline_bytes in (0, 32768):
        folder = tmp_path / f"data{inline_bytes}"
        with SessionManager.local(folder, inline_bytes=inline_bytes) as manager:
            fill(manager.session(tenant="acme", user="ann"))
            secrets = [text.encode() for text in SECRETS] + keys_in_memory()
            open_names = require_clean(folder, secrets)
            assert "catalogue.sqlite3-wal" in open_names
            manager.erase_user(tenant="acme", user="ann")
            require_clean(folder, secrets)
        require_clean(folder, secrets)


def require_clean(folder: Path, secrets: list[bytes]) -> set[str]:
    names = set()
    for path in folder.rglob("*"):
        if path.is_file():
            names.add(path.name)
            if path.name != "keys.json":
                assert found_in(path.read_bytes(), secrets) == [], path.name
    return names


@pytest.mark.case(33)
def test_the_same_plaintext_twice_has_nothing_in_common_at_rest(
    session: Session, ledger: Ledger, make_manager: ManagerFactory
) -> None:
    for _ in range(2):
        session.write(b"the same" * 100)
    headers, cards = zip(*ledger.all("SELECT header, card FROM tenancy_results"), strict=True)
    bodies = [path.read_bytes() for path in ledger.files] or [
        row[0] for row in ledger.all("SELECT data FROM tenancy_blobs")
    ]
    assert len(bodies) == 2
    for one, two in (headers, cards, bodies):
        assert one != two
        # No block of sixteen bytes at the same place, either.
        assert not [at for at in range(0, len(one) - 16, 16) if one[at : at + 16] == two[at : at + 16]]
    assert ledger.where() == ledger.ways(small=2)


def test_what_another_process_reads_needs_the_key_file(make_manager: ManagerFactory, manager: SessionManager) -> None:
    reference = manager.session(tenant="acme", user="ann").write(CANARY)
    program = (
        "import sys; from tenancy import SessionManager; from tenancy.settings import Settings\n"
        "settings = Settings(database_url=sys.argv[1], store_url=sys.argv[2], keys=sys.argv[3])\n"
        "print(SessionManager.from_settings(settings).session(tenant='acme', user='ann').read(sys.argv[4]))"
    )
    places = [make_manager.database_url, f"file://{make_manager.results}", f"file:{make_manager.key_file}", reference]
    command = [sys.executable, "-c", program, *places]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == CANARY
    make_manager.key_file.unlink()
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert CANARY not in refused.stdout + refused.stderr
    assert "ConfigurationError" in refused.stderr
