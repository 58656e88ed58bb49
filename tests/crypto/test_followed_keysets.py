import contextlib
import json
import os
import threading
import traceback

import pytest

from tenancy.errors import ConfigurationError, KeyDestroyed, KeyUnavailable
from tenancy.keys import files, held_keysets, providers
from tenancy.keys.keyring import Keyring
from tenancy.keys.keyset_editing import add_primary_key, destroy_key, disable_key, enable_key, list_keys
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import create_key_file, open_key_provider
from tests.forked import in_a_child
from tests.stores.files import open_descriptors

IDS = {"tenant_id": "t" * 32, "user_id": "u" * 32, "session_id": "s" * 32}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "house").mkdir()
    create_key_file(tmp_path / "house" / "keys.json")
    return tmp_path / "house" / "keys.json"


@pytest.fixture
def provider(path):
    return open_key_provider(f"file:{path}")


class House:
    """A keyring with a session key that it has opened and keeps."""

    def __init__(self, provider):
        self.provider = provider
        self.keyring = Keyring(provider)
        self.tenant_key = self.keyring.new_tenant_key(tenant_id=IDS["tenant_id"])
        self.session_key = self.keyring.new_session_key(self.tenant_key, **IDS)

    def use(self):
        self.keyring.session_key(self.tenant_key, self.session_key, **IDS).close()


@pytest.fixture
def house(provider):
    return House(provider)


def held_by(house):
    """The bytes of the keys of the file, and of those that were opened with them."""
    entries = house.provider._keyset._reading.keyset._entries.values()
    keys = [*(entry.key for entry in entries), *(key for _, key in house.keyring._cache._kept.values())]
    return [key._memory.view.obj for key in keys]


def are_overwritten(buffers):
    return bool(buffers) and all(buffer == bytes(32) for buffer in buffers)


def test_a_key_that_another_process_disables_opens_nothing_from_the_next_use_on(path, provider, house):
    old = provider.primary_key_id
    house.use()
    assert in_a_child(lambda: [add_primary_key(path), disable_key(path, old)])[0] == provider.primary_key_id
    for use in (
        house.use,
        lambda: house.keyring.new_session_key(house.tenant_key, **IDS),
    ):
        with pytest.raises(KeyUnavailable, match="is disabled"):
            use()
    in_a_child(lambda: enable_key(path, old))
    house.use()
    in_a_child(lambda: destroy_key(path, old))
    with pytest.raises(KeyDestroyed):
        house.use()


def test_what_is_new_goes_under_the_new_primary_key_from_the_next_use_on(path, house):
    new = in_a_child(lambda: add_primary_key(path))
    assert house.keyring.new_tenant_key(tenant_id="x").key_id == new == house.keyring.primary_keys()["file"]
    house.use()


def test_the_old_keys_are_overwritten_when_the_file_has_changed(path, house):
    before = held_by(house)
    assert not any(are_overwritten([buffer]) for buffer in before)
    add_primary_key(path)
    house.use()
    assert are_overwritten(before)


def test_a_file_that_stays_as_it_is_is_read_once(path, provider, house, monkeypatch):
    before = provider.generation()
    read, descriptors = [], open_descriptors()
    monkeypatch.setattr(held_keysets, "read_key_file", lambda path: read.append(path))
    for _ in range(3):
        house.use()
        provider.wrap(SecretKey.generate(), context=b"c")
        assert provider.generation() == before
    assert read == []
    assert open_descriptors() == descriptors


def test_nobody_waits_for_another_thread_while_the_file_stays_as_it_is(provider):
    before, seen = provider.generation(), []
    thread = threading.Thread(target=lambda: seen.append(provider.generation()))
    with provider._keyset._lock:
        thread.start()
        thread.join(5)
        assert seen == [before]
    thread.join(60)


CHANGES = {
    "replaced": add_primary_key,
    "written in place": lambda path: path.write_text(path.read_text() + " "),
    "touched": lambda path: os.utime(path, ns=(1, 1)),
    "made read-only": lambda path: path.chmod(0o400),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whichever_way_a_file_changes_it_is_another_generation(path, provider, change):
    seen = [provider.generation()]
    for _ in range(2):
        change(path)
        seen.append(provider.generation())
        assert provider.generation() == seen[-1]
    assert seen == sorted(seen)
    assert seen[0] < seen[1]


def replaced(path, document):
    """As an editor of others would: in place, and whole when it is done."""
    path.write_bytes(document)


def unusable(path, document):
    """Each way in which a file can turn out not to be one to use, and what is said of it."""
    yield path.unlink, "does not exist"
    yield lambda: path.chmod(0o640), "open to group or others"
    yield lambda: replaced(path, document[:-10]), "not one JSON document"
    yield lambda: replaced(path, b""), "not one JSON document"
    yield lambda: replaced(path, document.replace(b"primary", b"enabled")), "exactly one primary"
    yield lambda: replaced(path, document.replace(b"primary", b"disabled")), "exactly one primary"
    yield lambda: (path.rename(path.parent / "moved"), path.symlink_to(path.parent / "moved")), "symbolic link"
    yield lambda: (path.unlink(), path.mkdir()), "not a regular file"
    yield lambda: (path.unlink(), os.mkfifo(path, 0o600)), "not a regular file"
    yield lambda: path.parent.rename(path.parent.parent / "away"), "does not exist"


NUMBER_OF_WAYS = 10


def test_every_way_in_which_a_file_can_fail_is_tried(path):
    assert len(list(unusable(path, b""))) == NUMBER_OF_WAYS


@pytest.mark.parametrize("number", range(NUMBER_OF_WAYS))
def test_while_the_file_is_not_to_be_used_nothing_opens_and_nothing_is_kept(path, provider, house, number):
    document = path.read_bytes()
    text = json.loads(document)["keys"][0]["key"]
    spoil, says = list(unusable(path, document))[number]
    wrapped = provider.wrap(SecretKey.generate(), context=b"c")
    before = held_by(house)
    spoil()
    uses = (
        house.use,
        lambda: house.keyring.new_session_key(house.tenant_key, **IDS),
        lambda: house.keyring.new_tenant_key(tenant_id="x"),
        lambda: provider.wrap(SecretKey.generate(), context=b"c"),
        lambda: provider.unwrap(wrapped, context=b"c"),
        lambda: provider.primary_key_id,
        provider.keys,
        provider.generation,
    )
    for use in (*uses, *uses):
        with pytest.raises(KeyUnavailable, match=says) as refusal:
            use()
        message = str(refusal.value)
        assert message.startswith("The key file was changed since it was opened, and now it ")
        assert str(path.parent) not in message
        assert refusal.value.__context__ is None
        frames = traceback.walk_tb(refusal.value.__traceback__.tb_next)
        assert text not in "".join(traceback.StackSummary.extract(frames, capture_locals=True).format())
    # Nor does any of it wait in memory for the file to come back.
    assert len(house.keyring._cache) == 0
    assert are_overwritten(before)


@pytest.mark.parametrize("number", range(NUMBER_OF_WAYS))
def test_once_the_file_is_right_again_everything_opens(path, provider, house, number):
    document = path.read_bytes()
    spoil, _ = list(unusable(path, document))[number]
    spoil()
    with pytest.raises(KeyUnavailable):
        house.use()
    path.parent.mkdir(exist_ok=True)
    with contextlib.suppress(IsADirectoryError, FileNotFoundError):
        path.unlink()
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()
    path.touch(0o600)
    replaced(path, document)
    house.use()


def test_a_file_that_is_moved_away_and_back_opens_again(path, house):
    path.rename(path.parent / "away")
    with pytest.raises(KeyUnavailable):
        house.use()
    (path.parent / "away").rename(path)
    house.use()


def test_a_failure_of_the_system_that_passes_does_no_harm(path, provider, house, monkeypatch):
    add_primary_key(path)

    def failing(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", failing)
        with pytest.raises(KeyUnavailable):
            house.use()
    house.use()


def test_who_reads_a_file_at_the_moment_it_is_replaced_reads_the_new_one(path, provider, monkeypatch):
    fstat, old = os.fstat, provider.primary_key_id
    news = []

    def replacing(descriptor):
        status = fstat(descriptor)
        monkeypatch.setattr(files.os, "fstat", fstat)
        # After this the opened file holds zeros.
        news.append(add_primary_key(path))
        destroy_key(path, old)
        return status

    monkeypatch.setattr(files.os, "fstat", replacing)
    os.utime(path)
    assert [provider.primary_key_id] == news


def test_a_file_that_is_changed_all_the_time_is_refused(path, provider, monkeypatch):
    monkeypatch.setattr(files, "file_version", lambda *_, **__: None)
    monkeypatch.setattr(held_keysets, "file_version", lambda *_, **__: None)
    with pytest.raises(ConfigurationError, match="is changed all the time"):
        open_key_provider(f"file:{path}")
    with pytest.raises(KeyUnavailable, match="is changed all the time"):
        provider.generation()


def test_threads_that_wrap_and_unwrap_never_see_half_a_change(path, provider):
    ends, wrong = threading.Event(), []
    old = provider.primary_key_id

    def work(number):
        context = b"%d" % number
        keyring = Keyring(provider)
        tenant_key = keyring.new_tenant_key(tenant_id="t")
        session_key = keyring.new_session_key(tenant_key, **IDS | {"tenant_id": "t"})
        try:
            while not ends.is_set():
                keyring.session_key(tenant_key, session_key, **IDS | {"tenant_id": "t"}).close()
                with SecretKey.generate() as key:
                    wrapped = provider.wrap(key, context=context)
                    with provider.unwrap(wrapped, context=context) as opened:
                        assert opened.equals(key)
                provider.generation()
                provider.keys()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            add_primary_key(path)
        assert provider.generation() > 0
    finally:
        ends.set()
        for thread in threads:
            thread.join(60)
    assert wrong == []
    assert old in [info.key_id for info in list_keys(path)]


def test_a_key_in_use_is_overwritten_after_its_use(path, provider, monkeypatch):
    wrap_key = providers.wrap_key
    seen = []

    def changed_meanwhile(key, *, under, context):
        add_primary_key(path)
        provider.generation()
        seen.append(under._memory.view.obj)
        return wrap_key(key, under=under, context=context)

    monkeypatch.setattr("tenancy.keys.providers.wrap_key", changed_meanwhile)
    with SecretKey.generate() as key:
        wrapped = provider.wrap(key, context=b"c")
        monkeypatch.setattr("tenancy.keys.providers.wrap_key", wrap_key)
        with provider.unwrap(wrapped, context=b"c") as opened:
            assert opened.equals(key)
    assert are_overwritten(seen)


def test_a_child_forked_while_a_thread_reads_the_file_does_not_wait_for_it(path, provider, house, monkeypatch):
    entered, leaves = threading.Event(), threading.Event()
    read = held_keysets.read_key_file

    def slow(path):
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            assert leaves.wait(60)
        return read(path)

    monkeypatch.setattr(held_keysets, "read_key_file", slow)
    add_primary_key(path)
    thread = threading.Thread(target=house.use)
    thread.start()
    assert entered.wait(60)
    try:
        assert in_a_child(house.use) is None
    finally:
        leaves.set()
        thread.join(60)


def test_a_closed_provider_reads_the_file_no_more(path, provider, house):
    held = held_by(house)
    house.keyring.close()
    assert are_overwritten(held)
    add_primary_key(path)
    for use in (house.use, provider.generation, provider.keys, lambda: provider.primary_key_id):
        with pytest.raises(KeyUnavailable, match="closed"):
            use()
    assert repr(provider) == "KeysetProvider('file', keys=0)"


def test_a_relative_path_stays_where_it_was(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    provider = open_key_provider("file:keys.json")
    monkeypatch.chdir(tmp_path)
    create_key_file(tmp_path / "keys.json")
    new = add_primary_key(path)
    assert provider.primary_key_id == new


def test_a_relative_path_from_nowhere_is_refused(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigurationError, match="working directory"):
        open_key_provider("file:keys.json")


def test_what_is_no_key_file_is_read_once(path, monkeypatch):
    monkeypatch.setenv("TENANCY_TEST_KEYS", path.read_text())
    for location in ("env:TENANCY_TEST_KEYS", f"secret-file:{path}"):
        house = House(open_key_provider(location))
        before = house.provider.keys(), house.provider.generation()
        monkeypatch.setenv("TENANCY_TEST_KEYS", "")
        add_primary_key(path)
        house.use()
        assert (house.provider.keys(), house.provider.generation()) == before
        assert house.provider.primary_key_id != list_keys(path)[-1].key_id
