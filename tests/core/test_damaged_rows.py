"""One damaged row is one error of ours: it stops no other work, and what SQLite keeps in a column is never trusted."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from stores.errors import StoreError
from tenancy import Lifetime, ResultCorrupt, Session, SessionManager, TenancyError
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger

only_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


def test_a_damaged_id_keeps_no_other_result_from_being_reclaimed(
    manager: SessionManager, open_session: Callable[..., Session], ledger: Ledger
) -> None:
    for tenant in ("a", "b", "c"):
        session = open_session(tenant=tenant, lifetime=Lifetime(result=timedelta(hours=1)))
        session.write("x")
        session.write("y")
    ledger.run(
        "UPDATE tenancy_results SET result_id = :damaged"
        " WHERE number = 1 AND session_id = (SELECT min(session_id) FROM tenancy_results)",
        damaged="dama" + "1" * 28,
    )
    manager.clock.advance(timedelta(hours=2))
    report = manager.cleanup()
    assert (report.results, report.complete) == (5, False)


def test_deleting_a_result_with_a_damaged_id_is_an_error_of_ours(session: Session, ledger: Ledger) -> None:
    reference = session.write("x")
    ledger.run("UPDATE tenancy_results SET result_id = 'damaged'")
    with pytest.raises(TenancyError):
        session.delete(reference)


def test_a_check_without_the_key_takes_a_damaged_id_for_damage(
    make_manager: ManagerFactory, session: Session, ledger: Ledger
) -> None:
    session.write("x")
    ledger.run("UPDATE tenancy_results SET result_id = 'damaged'")
    kinds = [finding.kind for finding in make_manager(keys="none:").verify().findings]
    assert kinds[0] == "damaged"


@only_sqlite
@pytest.mark.parametrize("column", ["size_bytes", "stored_bytes", "header", "card", "format", "suite", "kind", "codec"])
@pytest.mark.parametrize("value", ["'abc'", "x'00ff'", "3.5", "''", "-1"])
def test_a_column_of_another_type_is_damage(
    make_manager: ManagerFactory, manager: SessionManager, session: Session, ledger: Ledger, column: str, value: str
) -> None:
    reference = session.write("x" * 100)
    try:
        ledger.run(f"UPDATE tenancy_results SET {column} = {value}")
    except StoreError:
        # The table's own checks refuse it.
        assert session.read(reference) == "x" * 100
        return
    for call in (
        lambda: session.read(reference),
        lambda: session.read_page(reference, max_chars=3),
        lambda: list(session.results()),
    ):
        with pytest.raises(ResultCorrupt):
            call()
    assert [finding.kind for finding in manager.verify().findings] in (["damaged"], ["damaged", "wrong_usage"])
    # Without the key only the number of bytes can be told.
    kind = "damaged" if column == "stored_bytes" else "no_key"
    assert make_manager(keys="none:").verify().findings[0].kind == kind


@only_sqlite
@pytest.mark.parametrize("table", ["tenancy_session_keys", "tenancy_tenant_keys"])
def test_a_wrapped_key_of_another_type_is_damage(make_manager: ManagerFactory, ledger: Ledger, table: str) -> None:
    manager = make_manager(durability="process")
    session = manager.session(tenant="t", user="u")
    reference = session.write("x")
    ledger.run(f"UPDATE {table} SET wrapped = 'abc'")
    fresh = make_manager(durability="process")
    for call in (
        lambda: session.read(reference),
        lambda: list(session.results()),
        lambda: fresh.session(tenant="t", user="u").write("y"),
    ):
        with pytest.raises(ResultCorrupt):
            call()
    assert not manager.verify().ok


@only_sqlite
@pytest.mark.parametrize("value", ["'abc'", "4611686018427387904"])
def test_a_moment_that_is_none_is_damage_in_a_listing(session: Session, ledger: Ledger, value: str) -> None:
    session.write("x")
    ledger.run(f"UPDATE tenancy_results SET created_at_us = {value}")
    with pytest.raises(ResultCorrupt):
        list(session.results())
