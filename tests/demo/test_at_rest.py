"""The search of the disk finds what is there."""

import base64
import json
import secrets
from pathlib import Path

import pytest

from tenancy.demo.at_rest import Found, Search, keys_in, read_everything
from tenancy.demo.script import SeenPage
from tenancy.sealing.segments import zstd
from tests.demo.conftest import prose

PIECE = b"the canary of all canaries"


def put(folder: Path, name: str, data: bytes) -> Found:
    folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    folder.joinpath(name).write_bytes(data)
    return read_everything(folder)


def test_every_file_is_read_wherever_it_lies(tmp_path: Path) -> None:
    put(tmp_path, "a/b/.hidden-wal", b"one")
    found = put(tmp_path, "top", b"three")
    assert found.contents == {"a/b/.hidden-wal": b"one", "top": b"three"}
    assert found.size_bytes == 8


def test_what_was_read_shows_nothing_of_itself(tmp_path: Path) -> None:
    found = put(tmp_path, "keys.json", PIECE)
    assert found.contents == {"keys.json": PIECE}
    for shown in (repr(found), repr(Search(found, (found,), PIECE)), repr(SeenPage(0, 1, True, PIECE.decode()))):
        assert PIECE.decode() not in shown
        assert "keys.json" not in shown


@pytest.mark.parametrize(
    "data",
    [
        PIECE,
        b"\0" * 5000 + PIECE + b"\xff" * 5000,
        base64.b64encode(b"x" + PIECE + b"yz"),
        PIECE.hex().encode(),
        PIECE.decode().encode("utf-16-le"),
        b"head" + zstd.compress(prose(1, chars=500).encode() + PIECE) + b"tail",
        zstd.compress(b"nothing") + zstd.compress(PIECE),
    ],
)
def test_a_piece_is_found_in_whatever_form(tmp_path: Path, data: bytes) -> None:
    assert put(tmp_path, "file", data).holds([b"never there", PIECE])


def test_a_piece_is_found_in_a_name(tmp_path: Path) -> None:
    assert put(tmp_path, f"{PIECE.decode()}/file", b"").holds([PIECE])


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    found = put(tmp_path, "file", secrets.token_bytes(100_000) + zstd.compress(b"nothing"))
    assert not found.holds([PIECE])
    assert not Search(Found(b"", {}), (found,), log=PIECE[:-1]).finds_none_of([])
    assert Search(Found(b"", {}), (found,), log=PIECE[:-1]).finds_none_of([PIECE])


def test_a_broken_frame_is_no_obstacle(tmp_path: Path) -> None:
    assert put(tmp_path, "file", b"\x28\xb5\x2f\xfd" + b"garbage" * 10 + zstd.compress(PIECE)).holds([PIECE])


def test_a_piece_in_any_state_or_in_the_log_counts() -> None:
    clean, dirty = Found(b"", {"file": b"clean"}), Found(b"", {"file": PIECE})
    assert not Search(clean, (clean, dirty), log=b"").finds_none_of([PIECE])
    assert not Search(clean, (clean,), log=b"event " + PIECE).finds_none_of([PIECE])


def test_what_the_software_itself_wrote_is_not_the_users() -> None:
    schema = Found(b"", {"file": b"CREATE TABLE something long"})
    assert Search(schema, (schema,), log=b"").finds_none_of([PIECE, b"CREATE TABLE something"])


def test_nothing_searched_is_nothing_found_out() -> None:
    nothing = Found(b"", {})
    assert not Search(nothing, (nothing,), log=b"").finds_none_of([PIECE])


def test_keys_may_stand_in_the_key_file_only() -> None:
    key = secrets.token_bytes(32)
    document = json.dumps({"keys": [{"id": "k", "key": base64.urlsafe_b64encode(key).decode()}]}).encode()
    nothing = Found(b"", {})
    kept = Found(b"", {"keys.json": document, "other": b"x"})
    assert keys_in(document) == [key]
    assert Search(nothing, (kept,), log=b"").finds_keys_only_in("keys.json")
    for leak in (key, base64.b64encode(key), key.hex().encode()):
        spilt = Found(b"", {"keys.json": document, "other": leak})
        assert not Search(nothing, (spilt,), log=b"").finds_keys_only_in("keys.json")
        assert not Search(nothing, (kept,), log=leak).finds_keys_only_in("keys.json")


def test_a_key_file_without_keys_proves_nothing() -> None:
    empty = Found(b"", {"keys.json": b'{"keys": []}'})
    assert not Search(Found(b"", {}), (empty,), log=b"").finds_keys_only_in("keys.json")
