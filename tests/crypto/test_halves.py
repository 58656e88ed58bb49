"""Two threads do what one does, in order, and nothing of theirs is left."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.sealing.halves import in_two_threads


@given(st.lists(st.integers(), max_size=40))
def test_every_part_is_done_once_and_in_order(parts):
    assert in_two_threads(lambda some: [2 * each for each in some], parts) == [2 * each for each in parts]


def test_a_long_sequence_is_shared_and_a_short_one_is_not():
    def threads(parts):
        return len(set(in_two_threads(lambda some: [threading.get_ident()] * len(some), parts)))

    before = threading.active_count()
    assert (threads(range(7)), threads(range(8))) == (1, 2)
    assert threading.active_count() == before


def test_where_there_is_no_further_thread_one_does_it_all(monkeypatch):
    def none(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    assert in_two_threads(list, range(40)) == list(range(40))


@pytest.mark.parametrize("bad", [0, 39])
def test_what_fails_in_either_half_is_raised_when_both_have_ended(bad):
    done = []

    def work(some):
        if bad in some:
            raise LookupError(bad)
        done.extend(some)
        return list(some)

    with pytest.raises(LookupError):
        in_two_threads(work, range(40))
    assert len(done) == 20
    assert not [thread for thread in threading.enumerate() if thread.name == "tenancy-segments"]
