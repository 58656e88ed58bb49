import copy
import gc
import json
import os
import pickle
import threading
import traceback

import pytest

from tenancy.errors import KeyUnavailable
from tenancy.keys.material import SecretKey

SECRET = bytes(range(100, 132))
SPELLINGS = (repr(SECRET), SECRET.hex(), str(list(SECRET)), str(bytearray(SECRET)))


def assert_shows_nothing(text):
    assert not any(spelling in text for spelling in SPELLINGS)
    assert SECRET.decode("latin-1") not in text


@pytest.mark.case(43)
def test_a_key_shows_itself_nowhere():
    key = SecretKey(SECRET)
    assert repr(key) == str(key) == f"{key}" == "SecretKey(…)"
    with pytest.raises(TypeError):
        vars(key)
    for name in dir(key):
        if name not in ("__getstate__", "__reduce_ex__"):
            assert_shows_nothing(repr(getattr(key, name, None)))


@pytest.mark.case(43)
@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps, json.dumps, lambda key: key.__getstate__()])
def test_a_key_is_neither_copied_nor_serialised(copier):
    with pytest.raises(TypeError) as refusal:
        copier(SecretKey(SECRET))
    assert_shows_nothing(str(refusal.value))


@pytest.mark.case(43)
def test_a_printed_traceback_with_its_variables_shows_no_key():
    key = SecretKey(SECRET)

    def fails(key, view):
        raise RuntimeError(key)

    with key.exposed() as view, pytest.raises(RuntimeError) as failure:
        fails(key, view)
    printed = traceback.TracebackException.from_exception(failure.value, capture_locals=True)
    assert_shows_nothing("".join(printed.format()))


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_key_has_exactly_32_bytes(length):
    with pytest.raises(ValueError, match="32 bytes"):
        SecretKey(os.urandom(length))


def test_a_number_is_no_key():
    # `bytearray(32)` is 32 zeros.
    with pytest.raises(TypeError):
        SecretKey(32)


def test_closing_overwrites_the_bytes_and_ends_the_use():
    key = SecretKey(SECRET)
    buffer = key._memory.view.obj
    assert buffer == SECRET
    key.close()
    key.close()
    assert buffer == bytes(32)
    with pytest.raises(KeyUnavailable), key.exposed():
        pass
    with pytest.raises(KeyUnavailable):
        key.duplicate()


def test_leaving_a_block_closes_the_key():
    with SecretKey(SECRET) as key:
        buffer = key._memory.view.obj
    assert buffer == bytes(32)


def test_a_dropped_key_is_overwritten():
    key = SecretKey(SECRET)
    buffer = key._memory.view.obj
    del key
    gc.collect()
    assert buffer == bytes(32)


def test_a_key_that_is_in_use_is_overwritten_when_the_last_user_leaves():
    key = SecretKey(SECRET)
    buffer = key._memory.view.obj
    entered, leave = threading.Event(), threading.Event()
    seen = []

    def use():
        with key.exposed() as view:
            entered.set()
            leave.wait(10)
            seen.append(bytes(view))

    thread = threading.Thread(target=use)
    thread.start()
    entered.wait(10)
    key.close()
    assert buffer == SECRET
    leave.set()
    thread.join(10)
    assert seen == [SECRET]
    assert buffer == bytes(32)


def test_a_lent_view_is_read_only_and_ends_with_its_block():
    key = SecretKey(SECRET)
    with key.exposed() as view:
        with pytest.raises(TypeError):
            view[0] = 0
        assert bytes(view) == SECRET
    with pytest.raises(ValueError, match="released"):
        bytes(view)


def test_a_duplicate_outlives_its_original():
    key = SecretKey(SECRET)
    other = key.duplicate()
    key.close()
    with other.exposed() as view:
        assert bytes(view) == SECRET


def test_the_bytes_that_several_hold_are_overwritten_with_the_last_ones():
    key = SecretKey(SECRET)
    buffer = key._memory.view.obj
    other = key.duplicate()
    with other.exposed():
        key.close()
        other.close()
        assert buffer == SECRET
    assert buffer == bytes(32)


def test_a_key_is_copied_from_the_callers_buffer():
    buffer = bytearray(SECRET)
    key = SecretKey(buffer)
    buffer[:] = bytes(32)
    with key.exposed() as view:
        assert bytes(view) == SECRET


def test_new_keys_differ():
    keys = []
    for _ in range(100):
        with SecretKey.generate().exposed() as view:
            keys.append(bytes(view))
    assert len(set(keys)) == 100


def test_keys_are_compared_by_their_bytes():
    assert SecretKey(SECRET).equals(SecretKey(SECRET))
    assert not SecretKey(SECRET).equals(SecretKey(bytes(32)))


def test_a_block_is_entered_once():
    key = SecretKey(b"k" * 32)
    block, its_bytes = key.exposed(), key._memory.view.obj
    with block, pytest.raises(RuntimeError), block:
        pass
    key.close()
    assert its_bytes == bytes(32)
