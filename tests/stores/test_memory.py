"""The memory store."""

from collections.abc import Iterator

import pytest

from stores.memory import MemoryStore
from stores.testing import BlobStoreContract


@pytest.mark.case(34, 80, 110)
class TestMemoryStore(BlobStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        store = MemoryStore()
        yield store
        store.close()
