"""Events carry sizes and short hashes, and nothing else."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenancy.errors import QuotaExceeded, ResultTooLarge, StorageUnavailable
from tenancy.events import emit, facts_of


def test_an_event_is_one_warning_with_a_fixed_name(events: Any) -> None:
    emit("not_stored", session="0123456789ab", result_bytes=7, error="StorageFull")
    (record,) = events.records
    assert (record.levelname, record.event, record.session, record.result_bytes) == (
        *("WARNING", "not_stored", "0123456789ab", 7),
    )
    assert record.getMessage() == (
        "A tool result was not stored. event=not_stored session=0123456789ab result_bytes=7 error=StorageFull"
    )


@given(st.text())
def test_what_an_error_says_is_not_logged(message: str) -> None:
    assert facts_of(StorageUnavailable(message)) == {"error": "StorageUnavailable"}
    assert facts_of(ValueError(message)) == {"error": "ValueError"}


def test_the_sizes_of_a_refusal_are_logged() -> None:
    quota = QuotaExceeded(level="user", unit="bytes", limit=5, used=4, requested=3)
    assert facts_of(quota) == {
        "error": "QuotaExceeded",
        "level": "user",
        "unit": "bytes",
        "limit": 5,
        "used": 4,
        "requested": 3,
    }
    assert facts_of(ResultTooLarge(limit_bytes=1, requested_bytes=2))["requested_bytes"] == 2
