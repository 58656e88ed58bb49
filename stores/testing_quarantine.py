"""The part of the suite of `stores.testing` on what a store sets aside."""

# ruff: noqa: S101 - this is a test suite, which speaks in asserts

from typing import Any

import pytest

from stores.blob import BlobStore
from stores.errors import BlobNotFound, StoreDenied, StoreUnavailable
from stores.hostile_names import HOSTILE_NAMES
from stores.names import mint_name


class QuarantineContract:
    """What a store promises of its quarantine, or of having none."""

    def test_a_blob_set_aside_is_in_no_room_and_a_store_without_a_quarantine_refuses(self, store: BlobStore) -> None:
        outer, inner, name, stays = mint_name(), mint_name(), mint_name(), mint_name()
        room = store.namespace(outer, inner)
        for each in (name, stays):
            room.put(each, b"bytes")
        if not store.sets_aside:
            with pytest.raises(StoreDenied):
                room.set_aside(name)
            assert room.get(name, size_bytes=5) == b"bytes"
            return
        assert room.set_aside(name)
        assert not room.set_aside(name)
        with pytest.raises(BlobNotFound):
            room.get(name, size_bytes=5)
        assert [blob.name for blob in room.list()] == [stays]
        assert list(store.namespaces()) == [(outer, inner)]
        # It is another room's as little, and the name can be given again.
        assert not store.namespace(outer, mint_name()).set_aside(name)
        room.put(name, b"other")
        assert room.set_aside(name)
        room.destroy()
        assert list(store.namespaces()) == []

    @pytest.mark.parametrize("hostile", HOSTILE_NAMES, ids=lambda name: repr(name)[:40])
    def test_what_is_no_stored_name_is_not_set_aside(self, store: BlobStore, hostile: Any) -> None:
        room, name = store.namespace(mint_name(), mint_name()), mint_name()
        room.put(name, b"there")
        with pytest.raises(ValueError, match="stored name"):
            room.set_aside(hostile)
        assert [blob.name for blob in room.list()] == [name]

    def test_a_closed_store_sets_nothing_aside(self, store: BlobStore) -> None:
        room, name = store.namespace(mint_name(), mint_name()), mint_name()
        room.put(name, b"x")
        store.close()
        with pytest.raises(StoreUnavailable if store.sets_aside else StoreDenied):
            room.set_aside(name)
