import base64
import copy
import errno
import json
import os
import socket
import stat
import traceback
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.errors import ConfigurationError, KeyDestroyed, ResultCorrupt, TenancyError
from tenancy.keys.files import read_key_file, remove_leftovers
from tenancy.keys.keyset import KeysetError, KeyState, new_entry, parse_keyset, render_keyset
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import DisabledKey, UnknownKey, WrappedKey, create_key_file, open_key_provider

CANARY = bytes(range(60, 92))
ENCODED = base64.urlsafe_b64encode(CANARY).decode()
CONTEXT = b"context"


def entry(key_id, state="primary", **changes):
    encoded = base64.urlsafe_b64encode(key_id[:1].encode() * 32).decode()
    key = None if state == "destroyed" else encoded
    return {"id": key_id, "state": state, "created_at": "2030-01-31T12:00:00Z", "key": key} | changes


def keyset(*entries, **changes):
    return {"version": 1, "keys": list(entries or (entry("a"),))} | changes


@pytest.fixture
def open_keyset(write_keyset):
    def open_keyset(*entries):
        return open_key_provider(f"file:{write_keyset(keyset(*entries))}")

    return open_keyset


@pytest.fixture
def open_variable(monkeypatch):
    def open_variable(value):
        monkeypatch.setenv("TENANCY_TEST_KEYS", value)
        return open_key_provider("env:TENANCY_TEST_KEYS")

    return open_variable


def require_refused(location, *, says, shows_not=()):
    """One clear sentence; and no value in it, in what caused it, or in a traceback that prints variables."""
    with pytest.raises(ConfigurationError) as refusal:
        open_key_provider(location)
    message = str(refusal.value)
    assert says in message
    assert message.endswith(".")
    assert "\n" not in message
    # From our first frame on: this test's own hold what they compare with.
    frames = traceback.walk_tb(refusal.value.__traceback__.tb_next)
    printed = "".join(traceback.StackSummary.extract(frames, capture_locals=True).format())
    for secret in (ENCODED, repr(CANARY), CANARY.hex(), *shows_not):
        assert secret not in printed
        assert secret not in repr(refusal.value.__context__)
    return message


WRONG = {
    "not JSON": (b"{", "not one JSON document"),
    "no text": (b"\xff\xfe\x00", "not one JSON document"),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(keyset()).encode(), "not one JSON document"),
    "empty": (b"", "not one JSON document"),
    "followed by data": (json.dumps(keyset()).encode() + b"{}", "not one JSON document"),
    "followed by a NUL": (json.dumps(keyset()).encode() + b"\0", "not one JSON document"),
    "deep": (b"[" * 200_000, "not one JSON document"),
    "huge": (b" " * (1 << 20) + json.dumps(keyset()).encode(), "too large"),
    "a list": ([], "fields version and keys"),
    "an unknown field": (keyset(comment="x"), "fields version and keys"),
    "a missing field": ({"version": 1}, "fields version and keys"),
    "an older version": (keyset(version=0), "version 1"),
    "a newer version": (keyset(version=2), "version 1"),
    "a version of text": (keyset(version="1"), "version 1"),
    "a version of truth": (keyset(version=True), "version 1"),
    "keys that are no list": (keyset(keys={}), "list"),
    "no keys": (keyset(keys=[]), "exactly one primary"),
    "a key that is no object": (keyset("a"), "exactly the fields"),
    "a key with an unknown field": (keyset(entry("a", comment="x")), "exactly the fields"),
    "a key without a date": (keyset({"id": "a", "state": "primary", "key": ENCODED}), "exactly the fields"),
    "two keys of one id": (keyset(entry("a"), entry("a", "enabled")), "same id"),
    "an unknown state": (keyset(entry("a", "retired")), "state"),
    "a state of another case": (keyset(entry("a", "Primary")), "state"),
    "a state that is no text": (keyset(entry("a") | {"state": ["primary"]}), "state"),
    "two primaries": (keyset(entry("a"), entry("b")), "exactly one primary"),
    "no primary": (keyset(entry("a", "enabled")), "exactly one primary"),
    "an empty id": (keyset(entry("")), "id"),
    "a long id": (keyset(entry("a" * 64)), "id"),
    "an id with a newline": (keyset(entry("a\n")), "id"),
    "an id in upper case": (keyset(entry("A")), "id"),
    "an id that is a number": (keyset(entry("a", id=1)), "id"),
    "a key of 16 bytes": (keyset(entry("a", key=base64.urlsafe_b64encode(CANARY[:16]).decode())), "32 bytes"),
    "a key of 31 bytes": (keyset(entry("a", key=base64.urlsafe_b64encode(CANARY[:31]).decode())), "32 bytes"),
    "a key of 33 bytes": (keyset(entry("a", key=base64.urlsafe_b64encode(CANARY + b"a").decode())), "32 bytes"),
    "a key in hex": (keyset(entry("a", key=CANARY.hex())), "32 bytes"),
    "a key without padding": (keyset(entry("a", key=ENCODED.rstrip("="))), "32 bytes"),
    "a key with white space": (keyset(entry("a", key=ENCODED + "\n")), "32 bytes"),
    "a key with spare bits": (keyset(entry("a", key="A" * 42 + "B=")), "32 bytes"),
    "a key in the other alphabet": (keyset(entry("a", key=base64.b64encode(b"\xff" * 32).decode())), "32 bytes"),
    "a key that is a number": (keyset(entry("a", key=7)), "32 bytes"),
    "a key with letters outside ASCII": (keyset(entry("a", key="\u00e9" * 44)), "32 bytes"),
    "a destroyed key that is there": (keyset(entry("a"), entry("b", "destroyed", key=ENCODED)), "still there"),
    "an enabled key that is not": (keyset(entry("a"), entry("b", "enabled", key=None)), "still there"),
    "a date without a zone": (keyset(entry("a", created_at="2030-01-31T12:00:00")), "created_at"),
    "a date in another spelling": (keyset(entry("a", created_at="2030-1-31T12:00:00Z")), "created_at"),
    "a date that is none": (keyset(entry("a", created_at="2030-02-31T12:00:00Z")), "created_at"),
    "a date that is a number": (keyset(entry("a", created_at=7)), "created_at"),
}
DOUBLE = b'{"version": 1, "version": 1, "keys": []}'


@pytest.mark.case(41)
@pytest.mark.parametrize(("document", "says"), WRONG.values(), ids=WRONG)
def test_a_key_file_with_anything_wrong_in_it_is_refused(write_keyset, document, says):
    path = write_keyset(document)
    before = path.read_bytes()
    assert str(path) in require_refused(f"file:{path}", says=says)
    assert path.read_bytes() == before


@pytest.mark.case(41)
def test_a_field_that_stands_twice_is_refused(write_keyset):
    require_refused(f"file:{write_keyset(DOUBLE)}", says="same field twice")


def test_a_key_that_is_refused_with_its_document_is_shown_nowhere(write_keyset, monkeypatch):
    good = json.dumps(keyset(entry("a", key=ENCODED))).encode()
    changes = {b"primary": b"secret", b'"version": 1': b'"v": 1', b"}]}": b"}]}x", b"]}": b"", b'"id": "a"': b'"id": 7'}
    for before, after in changes.items():
        document = good.replace(before, after)
        assert document != good
        require_refused(f"file:{write_keyset(document)}", says="The key file")
        monkeypatch.setenv("TENANCY_TEST_KEYS", document.decode())
        require_refused("env:TENANCY_TEST_KEYS", says="TENANCY_TEST_KEYS")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_a_document_that_is_no_keyset_is_refused_and_nothing_else(document):
    with pytest.raises(KeysetError):
        parse_keyset(document)


@pytest.mark.case(41)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o666, 0o610, 0o601, 0o777])
def test_a_key_file_that_others_can_reach_is_refused(write_keyset, mode):
    path = write_keyset(keyset(), mode=mode)
    require_refused(f"file:{path}", says="0600")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_key_file_that_only_its_owner_can_read_is_accepted(write_keyset):
    for mode in (0o600, 0o400):
        assert open_key_provider(f"file:{write_keyset(keyset(), mode=mode)}").primary_key_id == "a"


def test_a_key_file_of_another_user_is_refused(write_keyset):
    with pytest.raises(KeysetError, match="another user"):
        read_key_file(write_keyset(keyset()), owner_uid=os.geteuid() + 1)


def test_a_key_file_that_is_a_link_is_refused(write_keyset, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(write_keyset(keyset()))
    require_refused(f"file:{link}", says="symbolic link")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nothing")
    require_refused(f"file:{dangling}", says="symbolic link")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    require_refused(f"file:{tmp_path / 'fifo'}", says="regular file")
    require_refused(f"file:{tmp_path}", says="regular file")
    require_refused("file:/dev/null", says="regular file")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        require_refused(f"file:{tmp_path / 'socket'}", says="cannot be opened")


def test_a_key_file_that_is_missing_is_named(tmp_path):
    path = tmp_path / "keys.json"
    assert str(path) in require_refused(f"file:{path}", says="does not exist")
    require_refused("file:a\0b", says="cannot be opened")


NOWHERE = ["", "file:", "env:", ENCODED, "awskms:arn", "FILE:x", "env:a=b", "env:" + ENCODED, "other:", ":rest"]


@pytest.mark.parametrize("location", NOWHERE)
def test_a_setting_that_names_no_provider_is_refused_and_not_repeated(location):
    with pytest.raises(ConfigurationError) as refusal:
        open_key_provider(location)
    message = str(refusal.value)
    assert message.startswith(
        "The setting keys must say where the key is, file:PATH, env:NAME with NAME in upper case, "
    )
    assert ENCODED not in message
    assert "env:a=b" not in message


def test_a_key_that_looks_like_a_provider_is_not_repeated():
    with pytest.raises(ConfigurationError) as refusal:
        open_key_provider("base64:" + ENCODED)
    assert ENCODED not in str(refusal.value)
    assert "base64" not in str(refusal.value)


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_variable_that_is_not_set_is_named(monkeypatch, value):
    monkeypatch.delenv("TENANCY_TEST_KEYS", raising=False)
    if value is not None:
        monkeypatch.setenv("TENANCY_TEST_KEYS", value)
    require_refused("env:TENANCY_TEST_KEYS", says="The environment variable TENANCY_TEST_KEYS should hold the key")


@pytest.mark.parametrize(
    "value",
    ["secret-value", ENCODED[:-1], ENCODED + ENCODED, CANARY.hex(), "{}", '{"version":1}', ENCODED + "\udcff"],
)
def test_a_variable_that_holds_no_key_is_refused_and_not_repeated(monkeypatch, value):
    monkeypatch.setenv("TENANCY_TEST_KEYS", value)
    require_refused("env:TENANCY_TEST_KEYS", says="TENANCY_TEST_KEYS", shows_not=[value])


def test_a_variable_may_hold_one_key_in_either_alphabet_or_a_keyset(open_variable):
    high = b"\xfb\xff" * 16
    keys = [
        open_variable(value)
        for value in (
            base64.b64encode(high).decode() + "\n",
            base64.urlsafe_b64encode(high).decode(),
            json.dumps(keyset(entry("a", key=base64.urlsafe_b64encode(high).decode()))),
        )
    ]
    assert [provider.name for provider in keys] == ["env"] * 3
    assert keys[0].primary_key_id == keys[1].primary_key_id != keys[2].primary_key_id == "a"
    with SecretKey(CANARY) as key:
        wrapped = keys[0].wrap(key, context=CONTEXT)
        assert keys[1].unwrap(wrapped, context=CONTEXT).equals(key)


def test_a_key_that_comes_without_an_id_gets_one_that_is_its_own_and_not_part_of_it(open_variable):
    ids = set()
    for _ in range(50):
        raw = os.urandom(32)
        key_id = open_variable(base64.b64encode(raw).decode()).primary_key_id
        assert key_id == open_variable(base64.urlsafe_b64encode(raw).decode()).primary_key_id
        assert len(key_id) == 12
        assert bytes.fromhex(key_id) not in raw
        ids.add(key_id)
    assert len(ids) == 50


def test_a_new_key_file_is_complete_private_and_opens(tmp_path):
    path = tmp_path / "keys.json"
    for umask in (0o000, 0o077, 0o777):
        before = os.umask(umask)
        try:
            create_key_file(path)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(tmp_path) == ["keys.json"]
        assert len(open_key_provider(f"file:{path}").primary_key_id) == 16
        path.unlink()


def test_two_new_key_files_have_nothing_in_common(tmp_path):
    create_key_file(tmp_path / "one")
    create_key_file(tmp_path / "two")
    (one,), (two,) = (parse_keyset((tmp_path / name).read_bytes()) for name in ("one", "two"))
    assert one.key_id != two.key_id
    assert not one.key.equals(two.key)


@pytest.mark.parametrize("there", ["file", "link", "dangling", "directory"])
def test_a_key_file_is_never_replaced(tmp_path, there):
    path, target = tmp_path / "keys.json", tmp_path / "target"
    target.write_bytes(b"mine")
    if there == "file":
        path.write_bytes(b"mine")
    elif there == "directory":
        path.mkdir()
    else:
        path.symlink_to(target if there == "link" else tmp_path / "nothing")
    names, status = sorted(os.listdir(tmp_path)), path.lstat()
    with pytest.raises(FileExistsError):
        create_key_file(path)
    assert sorted(os.listdir(tmp_path)) == names
    assert path.lstat().st_ino == status.st_ino
    assert target.read_bytes() == b"mine"


def test_who_is_slower_and_taken_for_dead_finds_the_first_ones_key_file(tmp_path, monkeypatch):
    path, link = tmp_path / "keys.json", os.link

    def outrun(source, *arguments, **settings):
        # Another process makes the file, starts, and removes what it takes for leftovers.
        monkeypatch.setattr(os, "link", link)
        create_key_file(path)
        remove_leftovers(path)
        link(source, *arguments, **settings)

    monkeypatch.setattr(os, "link", outrun)
    with pytest.raises(FileExistsError):
        create_key_file(path)
    assert os.listdir(tmp_path) == ["keys.json"]
    assert len(open_key_provider(f"file:{path}").primary_key_id) == 16


def test_a_key_file_whose_first_name_cannot_be_removed_is_made_all_the_same(tmp_path, monkeypatch):
    path = tmp_path / "keys.json"

    def unlink(*_, **__):
        raise OSError(errno.EINTR, "interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        create_key_file(path)
        remove_leftovers(path)
    assert len(os.listdir(tmp_path)) == 2
    remove_leftovers(path)
    assert os.listdir(tmp_path) == ["keys.json"]


def test_a_key_file_that_was_read_is_read_whatever_closing_it_says(tmp_path, monkeypatch):
    path = tmp_path / "keys.json"
    create_key_file(path)
    close = os.close

    def failing(descriptor):
        close(descriptor)
        raise OSError(errno.EIO, "lost")

    with monkeypatch.context() as patch:
        patch.setattr("tenancy.keys.files.os.close", failing)
        provider = open_key_provider(f"file:{path}")
    assert len(provider.primary_key_id) == 16


def test_a_key_file_that_cannot_be_made_leaves_nothing(tmp_path):
    for path in (tmp_path / "missing" / "keys.json", tmp_path / ("k" * 300)):
        with pytest.raises(ConfigurationError, match="cannot be made"):
            create_key_file(path)
    assert os.listdir(tmp_path) == []


def test_a_keyset_is_written_as_it_is_read():
    entries = (
        new_entry(now=datetime(2030, 1, 31, 12, tzinfo=UTC)),
        *parse_keyset(json.dumps(keyset(entry("b"), entry("c", "destroyed"))).encode())[1:],
    )
    read = parse_keyset(render_keyset(entries))
    assert [(one.key_id, one.state, one.created_at) for one in read] == [
        (one.key_id, one.state, one.created_at) for one in entries
    ]
    assert read[0].key.equals(entries[0].key)
    assert read[1].key is None


def test_a_key_wraps_and_unwraps_within_its_context_only(open_keyset):
    provider = open_keyset(entry("a"))
    with SecretKey(CANARY) as key:
        wrapped = provider.wrap(key, context=CONTEXT)
        assert wrapped.key_id == "a"
        assert len(wrapped.data) == 104
        assert CANARY not in wrapped.data
        assert wrapped.data != provider.wrap(key, context=CONTEXT).data
        assert provider.unwrap(wrapped, context=CONTEXT).equals(key)
    with pytest.raises(ResultCorrupt):
        provider.unwrap(wrapped, context=CONTEXT + b"x")


@pytest.mark.case(25)
def test_any_change_of_a_wrapped_key_is_refused(open_keyset):
    provider = open_keyset(entry("a"))
    wrapped = provider.wrap(SecretKey(CANARY), context=CONTEXT)
    changed = [
        wrapped.data[:at] + bytes([wrapped.data[at] ^ 1 << bit]) + wrapped.data[at + 1 :]
        for at in range(104)
        for bit in range(8)
    ]
    changed += [wrapped.data[:length] for length in range(104)]
    changed += [wrapped.data + b"\0", wrapped.data + wrapped.data]
    for data in changed:
        with pytest.raises(ResultCorrupt) as refusal:
            provider.unwrap(WrappedKey("a", data), context=CONTEXT)
        assert refusal.value.__cause__ is None


def test_the_primary_key_wraps_and_every_enabled_one_unwraps(open_keyset):
    old = open_keyset(entry("a"))
    wrapped = old.wrap(SecretKey(CANARY), context=CONTEXT)
    rotated = open_keyset(entry("a", "enabled"), entry("b", "primary"))
    assert rotated.primary_key_id == "b"
    assert rotated.wrap(SecretKey(CANARY), context=CONTEXT).key_id == "b"
    assert rotated.unwrap(wrapped, context=CONTEXT).equals(SecretKey(CANARY))


@pytest.mark.parametrize(
    ("state", "error"), [("disabled", DisabledKey), ("destroyed", KeyDestroyed), (None, UnknownKey)]
)
def test_a_key_that_may_not_be_used_says_how_and_not_that_anything_is_corrupt(open_keyset, state, error):
    wrapped = open_keyset(entry("a")).wrap(SecretKey(CANARY), context=CONTEXT)
    others = [entry("b")] if state is None else [entry("a", state), entry("b")]
    with pytest.raises(error) as refusal:
        open_keyset(*others).unwrap(wrapped, context=CONTEXT)
    assert type(refusal.value) is error
    assert refusal.value.retryable == (error is not KeyDestroyed)


def test_a_keyset_tells_which_of_its_keys_are_gone_for_good(open_keyset):
    provider = open_keyset(entry("a"), entry("b", "enabled"), entry("c", "disabled"), entry("d", "destroyed"))
    assert [provider.is_destroyed(key_id) for key_id in "abcd"] == [False, False, False, True]
    # One that was taken out may be kept elsewhere.
    assert provider.is_destroyed("e") is None


def test_another_key_of_the_same_id_opens_nothing(open_keyset):
    wrapped = open_keyset(entry("a")).wrap(SecretKey(CANARY), context=CONTEXT)
    with pytest.raises(ResultCorrupt):
        open_keyset(entry("a", key=ENCODED)).unwrap(wrapped, context=CONTEXT)


def test_a_key_is_looked_up_by_its_id_and_never_tried(open_keyset):
    provider = open_keyset(entry("a"), entry("b", "enabled"))
    wrapped = provider.wrap(SecretKey(CANARY), context=CONTEXT)
    with pytest.raises(ResultCorrupt):
        provider.unwrap(WrappedKey("b", wrapped.data), context=CONTEXT)


def test_a_closed_provider_holds_no_key(open_keyset):
    provider = open_keyset(entry("a"), entry("b", "enabled"), entry("c", "destroyed"))
    wrapped = provider.wrap(SecretKey(CANARY), context=CONTEXT)
    held = provider._keyset._reading.keyset
    buffers = [kept.key._memory.view.obj for kept in held._entries.values() if kept.key is not None]
    provider.close()
    provider.close()
    assert buffers == [bytes(32), bytes(32)]
    with pytest.raises(TenancyError):
        provider.unwrap(wrapped, context=CONTEXT)


def test_a_provider_shows_no_key(write_keyset):
    provider = open_key_provider(f"file:{write_keyset(keyset(entry('a', key=ENCODED)))}")
    shown = repr(provider) + repr(vars(provider)) + repr(provider.wrap(SecretKey(CANARY), context=CONTEXT))
    for secret in (ENCODED, repr(CANARY), CANARY.hex()):
        assert secret not in shown
    with pytest.raises(TypeError):
        copy.deepcopy(provider)


def test_the_states_are_the_four_of_the_page():
    assert list(KeyState) == ["primary", "enabled", "disabled", "destroyed"]
