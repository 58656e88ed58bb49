"""The memory store."""

from collections.abc import Iterator

import pytest

from stores.memory import MemoryStore
from stores.testing import BlobStoreContract


class TestMemoryStore(BlobStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        store = MemoryStore()
        yield store
        store.close()
