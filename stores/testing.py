"""
The suite every store must pass, shipped so that a store of your own can join it. Needs pytest.

    pytest.register_assert_rewrite("stores.testing")  # in conftest.py, for failures that show their values

    from stores.testing import BlobStoreContract

    class TestMyStore(BlobStoreContract):
        @pytest.fixture
        def store(self):
            store = MyStore(...)
            yield store
            store.close()
"""

# ruff: noqa: S101 - this is a test suite, which speaks in asserts

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Barrier
from typing import Any, Final

import pytest

from stores.blob import BlobStore, Namespace
from stores.errors import BlobCorrupt, BlobExists, BlobNotFound, StoreUnavailable
from stores.hostile_names import HOSTILE_NAMES
from stores.names import mint_name
from stores.testing_quarantine import QuarantineContract
from stores.testing_ranges import RangeContract, content_of

#: Around the sizes at which a store may change its ways: nothing, a page, a pipe, several MiB.
SIZES: Final = (0, 1, 100, 4095, 4096, 4097, 65_536, 1_048_577, 5_000_000)


#: What must all be refused alike.
Calls = tuple[Callable[[], object], ...]


class BlobStoreContract(QuarantineContract, RangeContract):
    """What a store promises. Subclass it, call the class `Test…` and give it a fixture `store` with an empty store."""

    @pytest.fixture
    def room(self, store: BlobStore) -> Namespace:
        """A room that nobody has used."""
        return store.namespace(mint_name(), mint_name())

    @pytest.mark.parametrize("size", SIZES)
    def test_a_blob_comes_back_exactly(self, room: Namespace, size: int) -> None:
        name, data = mint_name(), content_of(size)
        room.put(name, data)
        found = room.get(name, size_bytes=size)
        assert type(found) is bytes
        assert found == data

    @pytest.mark.parametrize("first", [b"first", b""])
    @pytest.mark.parametrize("second", [b"first", b"other", b""])
    def test_a_name_is_given_once(self, room: Namespace, first: bytes, second: bytes) -> None:
        name = mint_name()
        room.put(name, first)
        with pytest.raises(BlobExists):
            room.put(name, second)
        assert room.get(name, size_bytes=len(first)) == first

    def test_of_eight_threads_that_put_one_name_exactly_one_wins(self, room: Namespace) -> None:
        for _ in range(5):
            name = mint_name()
            outcomes = _at_once(8, partial(_try_put, room, name))
            winners = [number for number, won in enumerate(outcomes) if won]
            assert len(winners) == 1
            assert room.get(name, size_bytes=1) == b"%d" % winners[0]

    def test_threads_do_not_get_into_each_others_way(self, store: BlobStore) -> None:
        outer = mint_name()
        rooms = [store.namespace(outer, mint_name()) for _ in range(4)]

        def work(number: int) -> int:
            for turn in range(8):
                room, name, data = rooms[(number + turn) % 4], mint_name(), content_of(1000 + number)
                room.put(name, data)
                assert room.get(name, size_bytes=len(data)) == data
                if turn % 2:
                    room.delete(name)
            return number

        assert _at_once(8, work) == list(range(8))
        assert sum(len(list(room.list())) for room in rooms) == 32

    def test_what_is_not_there_is_not_found(self, store: BlobStore) -> None:
        room, name = store.namespace(mint_name(), mint_name()), mint_name()
        with pytest.raises(BlobNotFound):
            room.get(name, size_bytes=0)
        room.put(mint_name(), b"another")
        with pytest.raises(BlobNotFound):
            room.get(name, size_bytes=7)
        with pytest.raises(BlobNotFound):
            room.get_range(name, start=0, length=1, size_bytes=7)

    def test_a_deleted_blob_is_not_found_and_the_others_stay(self, room: Namespace) -> None:
        gone, stays = mint_name(), mint_name()
        room.put(gone, b"gone")
        room.put(stays, b"stays")
        room.delete(gone)
        with pytest.raises(BlobNotFound):
            room.get(gone, size_bytes=4)
        assert room.get(stays, size_bytes=5) == b"stays"

    def test_deleting_what_is_not_there_is_success(self, room: Namespace) -> None:
        name = mint_name()
        room.delete(name)
        room.put(name, b"there")
        room.delete(name)
        room.delete(name)
        assert list(room.list()) == []
        room.put(name, b"other")
        assert room.get(name, size_bytes=5) == b"other"

    @pytest.mark.parametrize("wrong", [0, 4, 6, 5_000_000_000])
    def test_a_blob_of_another_size_is_corrupt(self, room: Namespace, wrong: int) -> None:
        name = mint_name()
        room.put(name, b"12345")
        with pytest.raises(BlobCorrupt):
            room.get(name, size_bytes=wrong)
        with pytest.raises(BlobCorrupt):
            room.get_range(name, start=0, length=min(wrong, 3), size_bytes=wrong)

    def test_a_room_holds_nothing_of_another(self, store: BlobStore) -> None:
        # Names that are equal but for one character at either end, or that change places.
        outer, inner, name = "a" * 32, "b" * 32, "c" * 32
        others = [("a" * 31 + "b", inner), ("b" + "a" * 31, inner), (outer, "b" * 31 + "a"), (inner, outer)]
        room = store.namespace(outer, inner)
        room.put(name, b"mine")
        for other in (store.namespace(*pair) for pair in others):
            assert list(other.list()) == []
            with pytest.raises(BlobNotFound):
                other.get(name, size_bytes=4)
            other.delete(name)
            other.destroy()
            assert room.get(name, size_bytes=4) == b"mine"
            other.put(name, b"other")
        assert room.get(name, size_bytes=4) == b"mine"
        room.destroy()
        assert [store.namespace(*pair).get(name, size_bytes=5) for pair in others] == [b"other"] * 4

    def test_a_listing_names_each_blob_once_with_its_size(self, room: Namespace) -> None:
        sizes = {mint_name(): size for size in range(50)}
        for name, size in sizes.items():
            room.put(name, b"x" * size)
        assert sorted((blob.name, blob.size_bytes) for blob in room.list()) == sorted(sizes.items())

    def test_a_listing_is_complete_however_long(self, room: Namespace) -> None:
        names = {mint_name() for _ in range(510)}
        for name in names:
            room.put(name, b"")
        assert sorted(blob.name for blob in room.list()) == sorted(names)
        room.destroy()
        assert list(room.list()) == []

    def test_a_time_in_a_listing_is_aware_and_about_now(self, room: Namespace) -> None:
        room.put(mint_name(), b"x")
        (blob,) = room.list()
        if blob.modified_at is not None:
            assert blob.modified_at.utcoffset() == timedelta(0)
            assert abs(datetime.now(UTC) - blob.modified_at) < timedelta(minutes=5)

    def test_two_listings_at_once_are_both_complete(self, room: Namespace) -> None:
        names = {mint_name() for _ in range(40)}
        for name in names:
            room.put(name, b"")
        listings = _at_once(6, lambda _: {blob.name for blob in room.list()})
        assert listings == [names] * 6

    def test_a_store_names_the_rooms_that_hold_anything(self, store: BlobStore) -> None:
        assert list(store.namespaces()) == []
        outer = mint_name()
        pairs = {(outer, mint_name()), (outer, mint_name()), (mint_name(), mint_name())}
        for pair in pairs:
            store.namespace(*pair).put(mint_name(), b"x")
            store.namespace(*pair).put(mint_name(), b"y")
        store.namespace(mint_name(), mint_name())
        emptied, name = store.namespace(outer, mint_name()), mint_name()
        emptied.put(name, b"z")
        emptied.delete(name)
        assert sorted(store.namespaces()) == sorted(pairs)

    def test_a_destroyed_room_is_gone_with_all_in_it(self, store: BlobStore) -> None:
        outer, inner, name = mint_name(), mint_name(), mint_name()
        neighbour = store.namespace(outer, mint_name())
        neighbour.put(name, b"stays")
        room = store.namespace(outer, inner)
        for other in (name, mint_name(), mint_name()):
            room.put(other, b"gone")
        room.destroy()
        assert list(room.list()) == []
        with pytest.raises(BlobNotFound):
            room.get(name, size_bytes=4)
        assert (outer, inner) not in set(store.namespaces())
        assert neighbour.get(name, size_bytes=5) == b"stays"

    def test_destroying_may_be_repeated_and_the_room_used_again(self, room: Namespace) -> None:
        name = mint_name()
        room.destroy()
        room.put(name, b"one")
        room.destroy()
        room.destroy()
        room.put(name, b"other")
        assert room.get(name, size_bytes=5) == b"other"
        assert [blob.name for blob in room.list()] == [name]

    def test_a_handle_of_a_room_destroyed_by_another_handle_does_not_lose_a_write(self, store: BlobStore) -> None:
        outer, inner, name = mint_name(), mint_name(), mint_name()
        first, second = store.namespace(outer, inner), store.namespace(outer, inner)
        first.put(name, b"x")
        assert second.get(name, size_bytes=1) == b"x"
        second.destroy()
        first.put(name, b"kept")
        assert second.get(name, size_bytes=4) == b"kept"

    @pytest.mark.parametrize("hostile", HOSTILE_NAMES, ids=lambda name: repr(name)[:40])
    def test_what_is_no_stored_name_is_refused_everywhere_and_does_nothing(
        self, store: BlobStore, hostile: Any
    ) -> None:
        outer, inner, name = mint_name(), mint_name(), mint_name()
        room = store.namespace(outer, inner)
        room.put(name, b"there")
        calls: Calls = (
            lambda: store.namespace(hostile, inner),
            lambda: store.namespace(outer, hostile),
            lambda: room.put(hostile, b"x"),
            lambda: room.get(hostile, size_bytes=1),
            lambda: room.get_range(hostile, start=0, length=1, size_bytes=1),
            lambda: room.get_ranges(hostile, [(0, 1), (0, 1)], size_bytes=1),
            lambda: room.delete(hostile),
        )
        for call in calls:
            with pytest.raises(ValueError, match="stored name") as refusal:
                call()
            assert len(str(refusal.value)) < 100
        assert [blob.name for blob in room.list()] == [name]
        assert list(store.namespaces()) == [(outer, inner)]

    def test_no_message_holds_a_name_or_content(self, store: BlobStore) -> None:
        outer, inner, name = mint_name(), mint_name(), mint_name()
        room = store.namespace(outer, inner)
        room.put(name, b"secret content")
        calls: Calls = (
            lambda: room.put(name, b"secret content"),
            lambda: room.get(name, size_bytes=3),
            lambda: room.get(mint_name(), size_bytes=3),
        )
        for call in calls:
            with pytest.raises((BlobExists, BlobCorrupt, BlobNotFound)) as refusal:
                call()
            said = str(refusal.value) + repr(refusal.value)
            assert not any(word in said for word in (outer, inner, name, "secret"))
            assert refusal.value.__cause__ is None
            assert refusal.value.__suppress_context__ or refusal.value.__context__ is None

    def test_a_closed_store_does_nothing_more(self, store: BlobStore) -> None:
        room, name = store.namespace(mint_name(), mint_name()), mint_name()
        room.put(name, b"x")
        store.close()
        store.close()
        calls: Calls = (
            lambda: room.put(mint_name(), b"x"),
            lambda: room.get(name, size_bytes=1),
            lambda: room.get_range(name, start=0, length=1, size_bytes=1),
            lambda: room.get_ranges(name, [(0, 1)], size_bytes=1),
            lambda: room.delete(name),
            lambda: list(room.list()),
            lambda: room.destroy(),
            lambda: list(store.namespaces()),
        )
        for call in calls:
            with pytest.raises(StoreUnavailable):
                call()

    def test_a_store_says_whether_it_joins_transactions(self, store: BlobStore, room: Namespace) -> None:
        assert store.joins_transactions is hasattr(room, "joined")


def _try_put(room: Namespace, name: str, number: int) -> bool:
    try:
        room.put(name, b"%d" % number)
    except BlobExists:
        return False
    return True


def _at_once(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work(number)` in so many threads that start together, and return what each gave."""
    barrier = Barrier(threads)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))
