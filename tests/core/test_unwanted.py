"""What should not have been stored goes when it can, and nothing of it is forgotten."""

import pytest

from tenancy.errors import ResultNotFound, SessionNotFound, StorageUnavailable
from tenancy.unwanted import Unwanted


class Storage:
    """Deletes, unless something is the matter."""

    def __init__(self) -> None:
        self.matter: type[BaseException] | None = None
        self.deleted: list[str] = []

    def delete(self, reference: str) -> None:
        if self.matter is not None:
            raise self.matter
        self.deleted.append(reference)


@pytest.fixture
def storage() -> Storage:
    return Storage()


def test_what_can_be_deleted_goes_at_once(storage: Storage) -> None:
    unwanted = Unwanted(storage.delete)
    unwanted.add(["a", "b"])
    assert storage.deleted == ["a", "b"]
    assert "a" not in unwanted


@pytest.mark.parametrize("gone", [ResultNotFound, SessionNotFound])
def test_what_is_gone_is_not_asked_for_again(gone: type[BaseException], storage: Storage) -> None:
    unwanted = Unwanted(storage.delete)
    storage.matter = gone
    unwanted.add(["a", "b"])
    storage.matter = None
    unwanted.settle()
    assert storage.deleted == []


@pytest.mark.parametrize("matter", [StorageUnavailable, KeyboardInterrupt])
def test_what_cannot_be_deleted_now_is_kept_for_later(matter: type[BaseException], storage: Storage) -> None:
    unwanted = Unwanted(storage.delete)
    storage.matter = matter
    if matter is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            unwanted.add(["a", "b"])
    else:
        unwanted.add(["a", "b"])
    assert "a" in unwanted
    assert "b" in unwanted
    storage.matter = None
    unwanted.settle()
    assert sorted(storage.deleted) == ["a", "b"]
