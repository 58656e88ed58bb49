"""A limit below what is in use: nothing new, everything that is there, and nobody else's trouble."""

from collections.abc import Callable

import pytest

from tenancy import Limits, QuotaExceeded, ResultTooLarge, Session, SessionManager
from tenancy.quotas import FIELDS
from tests.core.ledger import Ledger

Open = Callable[..., Session]


@pytest.mark.case(52)
def test_whichever_limit_is_lowered_below_use_only_what_is_new_is_refused(
    manager: SessionManager, open_session: Open, ledger: Ledger
) -> None:
    other = open_session(tenant="globex")
    for field in FIELDS:
        require_new_is_refused(manager, open_session, ledger, field)
        # Somebody else's tenant is not concerned.
        other.write("zz")
        open_session(field, tenant="globex")
    ledger.require_balanced()


def require_new_is_refused(manager: SessionManager, open_session: Open, ledger: Ledger, field: str) -> None:
    tenant = f"lowered {field}"
    session, second = open_session("one", tenant=tenant), open_session("two", tenant=tenant)
    kept, doomed = session.write("x" * 10), session.write("y" * 10)
    manager.set_limits(Limits(**{field: 1}), tenant=tenant)

    def add(content: str) -> None:
        if field.endswith("_sessions"):
            open_session("new", tenant=tenant)
        else:
            session.write(content)

    before = ledger.counters()
    with pytest.raises(ResultTooLarge if field == "max_result_bytes" else QuotaExceeded):
        add("zz")
    assert ledger.counters() == before, field
    assert session.read(kept) == "x" * 10
    assert session.read_page(doomed, max_chars=3).text == "yyy"
    assert [result.reference for result in session.results()] == [doomed, kept]
    assert open_session("two", tenant=tenant).scope == second.scope
    session.delete(doomed)
    session.delete(kept)
    for name in ("one", "two"):
        assert manager.delete_session(tenant=tenant, user="ann", session=name).sessions == 1
    # With nothing in use there is room for one again.
    session = open_session("again", tenant=tenant)
    if not field.endswith("_sessions"):
        add("z")
