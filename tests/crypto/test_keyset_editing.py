import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import stat
import tempfile
import traceback
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.errors import AlreadyRunning, ConfigurationError, KeyDestroyed, KeyUnavailable, StorageFull
from tenancy.keys import keyset, keyset_editing
from tenancy.keys.files import file_version, remove_leftovers
from tenancy.keys.keyset import KeyInfo, KeyState
from tenancy.keys.keyset_editing import add_primary_key, destroy_key, disable_key, enable_key, list_keys
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import create_key_file, open_key_provider
from tests.forked import in_children
from tests.stores.files import CALLS, fail_on_call, open_descriptors

EDITS = {"disabled": disable_key, "enabled": enable_key, "destroyed": destroy_key}
PRIMARY, ENABLED, DISABLED, DESTROYED = KeyState


@pytest.fixture
def path(tmp_path):
    """A key file with a primary key and one of each other state, alone in its directory."""
    (tmp_path / "house").mkdir()
    return made(tmp_path / "house")


def made(folder):
    path = folder / "keys.json"
    create_key_file(path)
    for edit in (destroy_key, disable_key, None):
        (primary,) = ids(path, PRIMARY)
        add_primary_key(path)
        if edit is not None:
            edit(path, primary)
    return path


def ids(path, state):
    return [info.key_id for info in list_keys(path) if info.state is state]


def states(path):
    return {info.key_id: info.state for info in list_keys(path)}


def key_texts(path):
    return {entry["id"]: entry["key"] for entry in json.loads(path.read_text())["keys"]}


def require_whole(path):
    """What can be opened, is private, and is alone."""
    open_key_provider(f"file:{path}").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_primary_key_wraps_and_the_former_one_unwraps(path):
    before, (former,) = states(path), ids(path, PRIMARY)
    provider = open_key_provider(f"file:{path}")
    with SecretKey.generate() as key:
        wrapped = provider.wrap(key, context=b"c")
        new = add_primary_key(path)
        assert states(path) == {**before, former: ENABLED, new: PRIMARY}
        after = open_key_provider(f"file:{path}")
        assert after.primary_key_id == after.wrap(key, context=b"c").key_id == new
        with after.unwrap(wrapped, context=b"c") as opened:
            assert opened.equals(key)


def test_a_key_is_disabled_enabled_again_and_destroyed_for_good(path):
    (primary,) = ids(path, PRIMARY)
    provider = open_key_provider(f"file:{path}")
    with SecretKey.generate() as key:
        wrapped = provider.wrap(key, context=b"c")
    add_primary_key(path)
    disable_key(path, primary)
    with pytest.raises(KeyUnavailable):
        open_key_provider(f"file:{path}").unwrap(wrapped, context=b"c")
    enable_key(path, primary)
    open_key_provider(f"file:{path}").unwrap(wrapped, context=b"c").close()
    text = key_texts(path)[primary]
    destroy_key(path, primary)
    assert key_texts(path)[primary] is None
    assert text not in path.read_text()
    with pytest.raises(KeyDestroyed):
        open_key_provider(f"file:{path}").unwrap(wrapped, context=b"c")


def test_keys_are_listed_with_state_and_age_and_without_what_is_secret(path):
    infos = list_keys(path)
    assert [info.state for info in infos] == [DESTROYED, DISABLED, ENABLED, PRIMARY]
    assert all(info.created_at.utcoffset() is not None for info in infos)
    assert not any(text in repr(infos) for text in key_texts(path).values() if text is not None)
    assert isinstance(infos[0], KeyInfo)
    assert open_key_provider(f"file:{path}").keys() == infos


REFUSED = [
    (disable_key, PRIMARY, "another one primary"),
    (destroy_key, PRIMARY, "another one primary"),
    (disable_key, DESTROYED, "destroyed"),
    (enable_key, DESTROYED, "destroyed"),
    *((edit, None, "no key of this id") for edit in EDITS.values()),
]


@pytest.mark.parametrize(("edit", "state", "says"), REFUSED)
def test_what_a_key_cannot_become_is_refused_and_changes_nothing(path, edit, state, says):
    (key_id,) = ["canary"] if state is None else ids(path, state)
    before = path.read_bytes(), file_version(path)
    with pytest.raises(ConfigurationError, match=says) as refusal:
        edit(path, key_id)
    assert str(refusal.value).startswith(f"The key file {path} has ")
    assert key_id not in str(refusal.value)
    assert (path.read_bytes(), file_version(path)) == before


UNCHANGING = [
    (destroy_key, DESTROYED),
    (disable_key, DISABLED),
    (enable_key, ENABLED),
    (enable_key, PRIMARY),
]


@pytest.mark.parametrize(("edit", "state"), UNCHANGING)
def test_what_a_key_is_already_leaves_the_file_as_it_is(path, edit, state):
    before = file_version(path)
    edit(path, *ids(path, state))
    assert file_version(path) == before


EDIT = st.tuples(st.sampled_from(["add", *EDITS]), st.integers(min_value=0, max_value=6))


@given(st.lists(EDIT, max_size=12))
@settings(deadline=None, max_examples=40)
def test_any_sequence_of_edits_keeps_a_keyset_with_exactly_one_primary_key(edits):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        create_key_file(path)
        known, texts = states(path), key_texts(path)
        for name, position in edits:
            if name == "add":
                known = {key_id: ENABLED if state is PRIMARY else state for key_id, state in known.items()}
                known[add_primary_key(path)] = PRIMARY
            else:
                key_id, goal = list(known)[position % len(known)], KeyState(name)
                if (known[key_id] is PRIMARY and goal is not ENABLED) or known[key_id] is DESTROYED is not goal:
                    with pytest.raises(ConfigurationError):
                        EDITS[name](path, key_id)
                else:
                    EDITS[name](path, key_id)
                    known[key_id] = PRIMARY if known[key_id] is PRIMARY else goal
            require_whole(path)
            assert list(states(path).items()) == list(known.items())
            texts = {key_id: texts.get(key_id) or text for key_id, text in key_texts(path).items()}
            # A key is there as it was, or gone.
            expected = {key_id: None if known[key_id] is DESTROYED else texts[key_id] for key_id in known}
            assert key_texts(path) == expected
        assert os.listdir(folder) == ["keys.json"]


def test_each_edit_makes_another_version_whatever_clock_and_inodes_do(path):
    # As after a clock that was put back.
    os.utime(path, ns=(1 << 61, 1 << 61))
    times = [path.stat().st_mtime_ns]
    (enabled,) = ids(path, ENABLED)
    for edit in (disable_key, enable_key) * 3:
        edit(path, enabled)
        times.append(path.stat().st_mtime_ns)
    assert times == sorted(set(times))


@pytest.mark.parametrize("edit", ["add", *EDITS])
def test_the_bytes_of_the_file_that_was_replaced_are_overwritten(path, edit):
    with open(path, "rb") as old:
        before = old.read()
        run(path, edit)
        old.seek(0)
        assert old.read() == bytes(len(before))
    assert path.read_bytes() != before
    assert os.listdir(path.parent) == ["keys.json"]


def run(path, edit):
    """An edit that changes something."""
    if edit == "add":
        add_primary_key(path)
    else:
        (key_id,) = ids(path, DISABLED if edit == "enabled" else ENABLED)
        EDITS[edit](path, key_id)


def test_a_file_that_somebody_keeps_under_another_name_is_left_to_him(path):
    before = path.read_bytes()
    os.link(path, path.parent / "backup")
    add_primary_key(path)
    assert (path.parent / "backup").read_bytes() == before


def test_nothing_is_overwritten_before_the_new_file_is_sure_to_stay(path, monkeypatch):
    fsync = os.fsync

    def failing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "lost")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with open(path, "rb") as old:
        before = old.read()
        with pytest.raises(ConfigurationError, match="did not confirm"):
            add_primary_key(path)
        old.seek(0)
        assert old.read() == before
    require_whole(path)


def test_what_a_dead_editor_left_behind_is_overwritten_and_removed_by_the_next(path):
    left = path.parent / f".keys.json.{'0' * 16}"
    other = path.parent / f".other.json.{'0' * 16}"
    for edit in (lambda: add_primary_key(path), lambda: destroy_key(path, ids(path, DESTROYED)[0])):
        for name in (left, other):
            name.write_bytes(b"canary")
        with open(left, "rb") as file:
            edit()
            assert file.read() == bytes(6)
        assert not left.exists()
        assert other.read_bytes() == b"canary"


def test_a_leftover_that_is_the_key_file_itself_is_removed_and_not_overwritten(path):
    # What a process leaves behind that died at making the file.
    before = path.read_bytes()
    for remove in (lambda: remove_leftovers(path), lambda: destroy_key(path, ids(path, DESTROYED)[0])):
        os.link(path, path.parent / f".keys.json.{'0' * 16}")
        remove()
        assert os.listdir(path.parent) == ["keys.json"]
        assert path.read_bytes() == before


def test_a_start_takes_no_file_away_from_an_editor(path, monkeypatch):
    rename = os.rename

    def starting(*arguments, **settings):
        remove_leftovers(path)
        rename(*arguments, **settings)

    monkeypatch.setattr(os, "rename", starting)
    add_primary_key(path)
    assert len(list_keys(path)) == 5


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EBADF, errno.EOPNOTSUPP])
def test_without_locks_nothing_is_edited_and_leftovers_are_removed(path, monkeypatch, code):
    def flock(*_):
        raise OSError(code, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    before = file_version(path)
    with pytest.raises(ConfigurationError, match="cannot be changed there"):
        add_primary_key(path)
    assert file_version(path) == before
    (path.parent / f".keys.json.{'0' * 16}").write_bytes(b"canary")
    remove_leftovers(path)
    assert os.listdir(path.parent) == ["keys.json"]


def test_an_editor_waits_for_another_one_and_not_for_ever(path):
    before = file_version(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        with pytest.raises(AlreadyRunning):
            add_primary_key(path, wait_seconds=0.05)
        assert file_version(path) == before
    finally:
        os.close(directory)
    add_primary_key(path, wait_seconds=0)


def test_what_two_processes_change_at_the_same_time_is_both_changed(path):
    def adds():
        return [add_primary_key(path) for _ in range(15)]

    (key_id,) = ids(path, ENABLED)

    def turns():
        for edit in (disable_key, enable_key) * 8:
            edit(path, key_id)
        destroy_key(path, key_id)

    before = states(path)
    first, second, _ = in_children([adds, adds, turns])
    after = states(path)
    assert {*before, *first, *second} == set(after)
    assert after[key_id] is DESTROYED
    assert sum(state is PRIMARY for state in after.values()) == 1
    require_whole(path)


def test_a_change_by_hand_at_the_same_time_is_not_lost(path, monkeypatch):
    write = keyset_editing.write_private

    def writing(*arguments, **settings):
        write(*arguments, **settings)
        path.write_bytes(path.read_bytes() + b" ")

    monkeypatch.setattr(keyset_editing, "write_private", writing)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="by somebody else"):
        add_primary_key(path)
    assert path.read_bytes() == before + b" "
    assert os.listdir(path.parent) == ["keys.json"]


def unsafe(path, what):
    if what == "link":
        path.rename(path.parent / "target")
        path.symlink_to(path.parent / "target")
    elif what == "missing":
        path.unlink()
    elif what == "open to others":
        path.chmod(0o644)
    else:
        path.write_bytes(path.read_bytes().replace(b'"primary"', b'"primaries"'))


@pytest.mark.parametrize("edit", [list_keys, add_primary_key, lambda path: disable_key(path, "a")])
@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("link", "symbolic link"),
        ("missing", "does not exist"),
        ("open to others", "0600"),
        ("no keyset", "state is not one of"),
    ],
)
def test_a_file_that_would_not_be_opened_is_not_edited_and_no_key_is_shown(path, edit, what, says):
    texts = [text for text in key_texts(path).values() if text is not None]
    unsafe(path, what)
    before = file_version(path)
    with pytest.raises(ConfigurationError, match=says) as refusal:
        edit(path)
    assert str(refusal.value).startswith(f"The key file {path} ")
    assert refusal.value.__context__ is None
    frames = traceback.walk_tb(refusal.value.__traceback__.tb_next)
    printed = "".join(traceback.StackSummary.extract(frames, capture_locals=True).format())
    assert not any(text in printed for text in texts)
    assert file_version(path) == before


@pytest.mark.parametrize("path", ["missing/keys.json", "a\0b/keys.json", "a\0b", "", "."])
def test_a_path_of_nothing_is_refused_in_a_sentence(path):
    with pytest.raises(ConfigurationError, match="The key file"):
        add_primary_key(Path(path))


def test_a_keyset_never_grows_larger_than_what_is_read(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(keyset, "MAX_DOCUMENT_BYTES", len(before) + 10)
    with pytest.raises(ConfigurationError, match="too large"):
        add_primary_key(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["keys.json"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_whichever_call_fails_the_file_is_the_old_one_or_the_new_one(path, code):
    descriptors, number, is_over, outcomes = open_descriptors(), 0, False, set()
    while not is_over:
        number += 1
        before, text = states(path), path.read_bytes()
        error = None
        with pytest.MonkeyPatch.context() as patch:
            was_reached = fail_on_call(patch, number, code)
            try:
                add_primary_key(path)
            except (ConfigurationError, StorageFull) as refusal:
                error = refusal
        is_over = not was_reached()
        require_whole(path)
        is_new = len(states(path)) == len(before) + 1
        assert is_new or path.read_bytes() == text
        # Only what the disk did not confirm is changed and refused, and says so.
        assert is_new == (error is None or "did not confirm" in str(error))
        assert isinstance(error, StorageFull) <= (code in (errno.ENOSPC, errno.EDQUOT))
        assert len(os.listdir(path.parent)) <= 1 + (error is not None)
        outcomes.add(type(error))
        assert open_descriptors() == descriptors
    assert number > 10
    assert outcomes >= {type(None), ConfigurationError}
    assert (StorageFull in outcomes) == (code in (errno.ENOSPC, errno.EDQUOT))


def test_a_disk_that_is_full_leaves_the_file_as_it_is(path):
    before = path.read_bytes()

    def with_no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), resource.RLIM_INFINITY))
        add_primary_key(path)

    assert in_children([with_no_room]) == ["StorageFull"]
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["keys.json"]


def killed_at(work, number, *, after):
    """Work in a child that is killed before or after its call of this number. Tells whether it was."""
    child = os.fork()
    if child == 0:
        made = 0

        def wrap(real):
            def call(*arguments, **options):
                nonlocal made
                made += 1
                is_last = made == number
                if is_last and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                outcome = real(*arguments, **options)
                if is_last:
                    os.kill(os.getpid(), signal.SIGKILL)
                return outcome

            return call

        with contextlib.suppress(BaseException):
            for name in (*CALLS, "utime"):
                setattr(os, name, wrap(getattr(os, name)))
            work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("after", [False, True])
def test_whenever_an_editor_is_killed_the_file_is_whole_and_the_next_one_edits(path, after):
    number, was_killed, news = 0, True, []
    while was_killed:
        number += 1
        (old,), before = ids(path, PRIMARY), states(path)
        was_killed = killed_at(lambda: add_primary_key(path), number, after=after)
        require_whole(path)
        new = {key_id: state for key_id, state in states(path).items() if key_id not in before}
        assert states(path) == ({**before, old: ENABLED, **new} if new else before)
        assert list(new.values()) == [PRIMARY] * len(new)
        news.append(len(new))
        # Also the copies it left behind are gone with the next edit, which does not wait for the dead.
        (disabled,) = ids(path, DISABLED)
        enable_key(path, disabled, wait_seconds=0)
        disable_key(path, disabled, wait_seconds=0)
        assert os.listdir(path.parent) == ["keys.json"]
    assert number > 10
    # Once it is the new one, it stays the new one.
    assert news == sorted(news)
    assert {*news} == {0, 1}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_editors_that_are_killed_at_random_lose_nothing_they_have_done(path):
    chance = Random(7)
    for _ in range(12):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                while True:
                    new = add_primary_key(path)
                    os.write(writing, new.encode())
            os._exit(1)
        os.close(writing)
        select.select([reading], [], [], 30)
        # Somewhere in the next few edits.
        select.select([], [], [], chance.random() / 20)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said = b""
        while part := os.read(reading, 4096):
            said += part
        os.close(reading)
        done = [said[start : start + 16].decode() for start in range(0, len(said), 16)]
        assert done
        require_whole(path)
        assert set(done) <= set(states(path))
    add_primary_key(path, wait_seconds=0)
    assert os.listdir(path.parent) == ["keys.json"]
