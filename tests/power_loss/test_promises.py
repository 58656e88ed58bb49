"""Whatever breaks a promise is said, and nothing else is."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.power_loss.promises import Key, Promises, Seen, Who, faults
from tests.power_loss.seeing import digest_of

WHO: Who = ("acme", "ann", "chat")
ONE: Key = (*WHO, "one")
TWO: Key = (*WHO, "two")
NEW: Key = (*WHO, "new")
A, B = digest_of("a"), digest_of("b")


def promised(**changes: Any) -> Promises:
    return Promises(**{"kept": {ONE: A}, **changes})


def seen(read: Mapping[Key, str], **changes: Any) -> Seen:
    return Seen(read=read, **changes)


LEAVING = promised(kept={}, leaving={ONE: A, TWO: B})
COMING = promised(coming=frozenset({(WHO, B)}), files_coming=1)


@pytest.mark.parametrize(
    ("promises", "found"),
    [
        (promised(), seen({ONE: A})),
        (promised(gone=frozenset({TWO})), seen({ONE: A})),
        (LEAVING, seen({ONE: A, TWO: B})),
        (LEAVING, seen({})),
        (COMING, seen({ONE: A})),
        (COMING, seen({ONE: A, NEW: B})),
        (COMING, seen({ONE: A}, unknown_files=1)),
        (promised(started=False, kept={}), Seen(refused="SchemaOutdated")),
    ],
)
def test_what_keeps_its_promises_is_no_fault(promises: Promises, found: Seen) -> None:
    assert faults(promises, found, all_there=False) == []


@pytest.mark.parametrize(
    ("promises", "found", "said"),
    [
        (promised(), seen({}), "stored is lost"),
        (promised(), seen({ONE: B}), "stored is another"),
        (promised(), seen({ONE: "ResultCorrupt"}), "stored is ResultCorrupt"),
        (promised(), seen({ONE: A, NEW: B}), "nobody wrote"),
        (promised(gone=frozenset({TWO})), seen({ONE: A, TWO: B}), "there again"),
        (promised(gone=frozenset({TWO})), seen({ONE: A, TWO: "ResultCorrupt"}), "there again"),
        (LEAVING, seen({ONE: A}), "only some"),
        (LEAVING, seen({ONE: A, TWO: A}), "deleted is another"),
        (LEAVING, seen({ONE: A, TWO: "ResultCorrupt"}), "deleted is ResultCorrupt"),
        (COMING, seen({ONE: A, NEW: A}), "nobody wrote"),
        (COMING, seen({ONE: A, NEW: "ResultCorrupt"}), "nobody wrote"),
        (COMING, seen({ONE: A, ("acme", "bob", "chat", "new"): B}), "nobody wrote"),
        (COMING, seen({ONE: A, NEW: B, TWO: B}), "twice"),
        (COMING, seen({ONE: A}, unknown_files=2), "2 files"),
        (promised(), seen({ONE: A}, unknown_files=1), "1 files"),
        (promised(), seen({ONE: A}, problems=("Usage",)), "Usage"),
        (promised(), Seen(refused="SchemaOutdated"), "does not open: SchemaOutdated"),
    ],
)
def test_a_broken_promise_is_said(promises: Promises, found: Seen, said: str) -> None:
    (fault,) = faults(promises, found, all_there=False)
    assert said in fault


def test_where_nothing_is_lost_every_file_has_a_row() -> None:
    assert len(faults(COMING, seen({ONE: A}, unknown_files=1), all_there=True)) == 1


def test_a_program_promises_more_and_more_on_its_way() -> None:
    promises = Promises(started=False)
    promises = promises.after({"mark": "started"})
    assert promises == Promises()
    written = {"who": WHO, "digest": A, "in_file": 1}
    promises = promises.after({"mark": "writes", **written})
    assert promises == Promises(coming=frozenset({(WHO, A)}), files_coming=1)
    promises = promises.after({"mark": "wrote", "reference": "one", **written})
    assert promises == Promises(kept={ONE: A})
    leaving = promises.after({"mark": "deletes", "keys": [list(ONE)]})
    assert leaving == Promises(leaving={ONE: A})
    assert leaving.after({"mark": "deleted"}) == Promises(gone=frozenset({ONE}))
    assert promises.after({"mark": "expired", "keys": [list(ONE)], "offset_us": 5}) == Promises(
        gone=frozenset({ONE}), offset_us=5
    )
    assert promises.keys == leaving.keys == {ONE}
    with pytest.raises(ValueError, match="else"):
        promises.after({"mark": "something else"})
