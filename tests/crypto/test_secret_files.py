import base64
import json
import os

import pytest

from tenancy.errors import ConfigurationError
from tenancy.keys import files
from tenancy.keys.keyset import MAX_DOCUMENT_BYTES
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import create_key_file, open_key_provider

KEY = base64.b64encode(bytes(range(60, 92))).decode()


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(KEY + "\n")
    path.chmod(0o400)
    return path


@pytest.fixture
def seen_as(monkeypatch):
    """Have the system tell of a mount or an owner that no test can make."""

    def seen_as(*, is_read_only=False, uid=None):
        flags, status = files.os.fstatvfs, files.os.fstat

        class Flags:
            def __init__(self, descriptor):
                self.f_flag = flags(descriptor).f_flag & ~os.ST_RDONLY | (os.ST_RDONLY if is_read_only else 0)

        def owned(descriptor):
            found = status(descriptor)
            return found if uid is None else os.stat_result((*found[:4], uid, *found[5:]))

        monkeypatch.setattr(files.os, "fstatvfs", Flags)
        monkeypatch.setattr(files.os, "fstat", owned)

    return seen_as


def refused(path):
    with pytest.raises(ConfigurationError) as refusal:
        open_key_provider(f"secret-file:{path}")
    assert str(refusal.value).startswith(f"The secret file {path} ")
    assert KEY not in str(refusal.value)
    assert refusal.value.__context__ is None or KEY not in repr(refusal.value.__context__)
    return str(refusal.value)


@pytest.mark.parametrize("mode", [0o400, 0o600])
def test_a_file_of_ours_that_is_closed_to_others_opens(secret, mode):
    secret.chmod(mode)
    assert open_key_provider(f"secret-file:{secret}").name == "file"


@pytest.mark.parametrize("mode", [0o444, 0o440, 0o404, 0o644])
def test_what_others_can_read_opens_on_a_read_only_mount_only(secret, seen_as, mode):
    secret.chmod(mode)
    seen_as(is_read_only=False)
    assert "not on a read-only mount" in refused(secret)
    seen_as(is_read_only=True)
    assert open_key_provider(f"secret-file:{secret}").primary_key_id


@pytest.mark.parametrize("mode", [0o420, 0o402, 0o664, 0o666])
def test_what_others_can_write_is_refused_on_any_mount(secret, seen_as, mode):
    secret.chmod(mode)
    seen_as(is_read_only=True)
    assert "may be written" in refused(secret)


def test_it_belongs_to_root_or_to_us(secret, seen_as):
    secret.chmod(0o444)
    seen_as(is_read_only=True, uid=0)
    assert open_key_provider(f"secret-file:{secret}").primary_key_id
    seen_as(is_read_only=True, uid=os.geteuid() + 1)
    assert "belongs neither to root" in refused(secret)


def test_the_links_of_a_kubernetes_mount_are_followed(tmp_path):
    mount = tmp_path / "mount"
    (mount / "..2026_01_01").mkdir(parents=True)
    (mount / "..2026_01_01" / "keys").write_text(KEY)
    (mount / "..2026_01_01" / "keys").chmod(0o400)
    (mount / "..data").symlink_to("..2026_01_01")
    (mount / "keys").symlink_to("..data/keys")
    assert open_key_provider(f"secret-file:{mount / 'keys'}").primary_key_id
    # And what they lead to is what is looked at.
    (mount / "..2026_01_01" / "keys").chmod(0o444)
    refused(mount / "keys")
    (mount / "..data").unlink()
    assert "does not exist" in refused(mount / "keys")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert "regular file" in refused(tmp_path / "fifo")
    assert "regular file" in refused("/dev/null")
    assert "regular file" in refused(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be opened" in refused(tmp_path / "loop")
    assert "cannot be opened" in refused("/a\0b")


@pytest.mark.parametrize("path", ["", "secret", "./secret", "~/secret"])
def test_a_path_that_is_not_absolute_is_refused(path):
    with pytest.raises(ConfigurationError, match="secret-file:/ABSOLUTE/PATH"):
        open_key_provider(f"secret-file:{path}")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{", b"\xff" * 44, KEY.encode() * 2, KEY.encode() + b" " * MAX_DOCUMENT_BYTES]
)
def test_what_holds_no_key_is_refused(secret, content):
    secret.chmod(0o600)
    secret.write_bytes(content)
    refused(secret)


def test_a_keyset_that_moves_into_a_secret_opens_what_it_did(tmp_path):
    path = tmp_path / "keys.json"
    create_key_file(path)
    before = open_key_provider(f"file:{path}")
    with SecretKey.generate() as key:
        wrapped = before.wrap(key, context=b"c")
        moved = tmp_path / "secret"
        moved.write_text(json.dumps(json.loads(path.read_text())))
        moved.chmod(0o400)
        after = open_key_provider(f"secret-file:{moved}")
        assert (after.name, after.primary_key_id) == (before.name, before.primary_key_id)
        with after.unwrap(wrapped, context=b"c") as opened:
            assert opened.equals(key)
