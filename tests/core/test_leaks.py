"""Nothing secret gets out by an error, a log record or a representation, whatever goes wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from stores.filesystem import FilesystemStore
from tenancy import (
    ConfigurationError,
    Page,
    Receipt,
    Result,
    ResultCorrupt,
    Session,
    SessionInfo,
    SessionManager,
    Settings,
    StorageFull,
    StorageUnavailable,
    TenancyError,
    Usage,
)
from tenancy import errors as tenancy_errors
from tenancy.backend import Backend
from tenancy.keys.cache import KeyCache
from tenancy.keys.keyring import Keyring
from tenancy.keys.material import SecretKey
from tenancy.keys.providers import KeysetProvider
from tenancy.references import parse_reference
from tenancy.seam.binding import SessionStore
from tests.conftest import ManagerFactory
from tests.core.failing import ELSEWHERE, FAILURES, SECOND, House
from tests.leaks import (
    CANARY,
    PASSWORD,
    TENANT,
    USER,
    WHO,
    everything_logged,
    key_forms,
    keys_in_memory,
    leaks_in,
    living_objects,
    locals_shown_by,
    objects_behind,
    shown_by,
    shown_by_error,
)

#: What they log of a connection, host and role, is theirs to say; a secret in it is nobody's.
DRIVERS = ("psycopg", "sqlalchemy")
#: What is searched with all its attributes: what a session, a key or a place is reached through.
WITH_ATTRIBUTES = (SessionManager, Session, SessionStore, FilesystemStore, Keyring, KeysetProvider, KeyCache)


@pytest.fixture
def house(make_manager: ManagerFactory) -> House:
    return House(make_manager)


def test_every_error_there_is_is_driven() -> None:
    family = {one for one in vars(tenancy_errors).values() if isinstance(one, type) and one is not TenancyError}
    assert set(FAILURES) == {one for one in family if issubclass(one, TenancyError)}


@pytest.mark.case(142)
@pytest.mark.parametrize("expected", FAILURES, ids=lambda kind: kind.__name__)
def test_no_error_and_nothing_logged_of_it_shows_a_secret(expected: type[TenancyError], house: House) -> None:
    errors: list[TenancyError] = []
    with everything_logged() as log:
        for call in FAILURES[expected](house):
            with pytest.raises(expected) as failure:
                call()
            errors.append(failure.value)
    assert errors
    keys = key_forms(keys_in_memory())
    assert keys
    # That one kind of error may name a local path.
    paths = [] if expected is ConfigurationError else house.paths
    for error in errors:
        assert leaks_in(shown_by_error(error), [CANARY, ELSEWHERE, *paths, *keys]) == []
        behind = objects_behind(error)
        assert leaks_in(shown_by(behind), [CANARY, ELSEWHERE, *paths, *keys]) == []
        assert leaks_in([locals_shown_by(error)], keys) == []
    assert leaks_in(log.texts(), [CANARY, *keys]) == []
    assert leaks_in(log.texts(but_of=DRIVERS), house.paths) == []


def while_handling(error: Exception, call: Callable[[], object]) -> None:
    try:
        raise error
    except type(error):
        call()


@pytest.mark.parametrize("expected", [ResultCorrupt, StorageFull, StorageUnavailable], ids=lambda kind: kind.__name__)
def test_an_error_hangs_on_nothing_but_what_its_caller_was_handling(expected: type[TenancyError], house: House) -> None:
    # Some trackers of errors follow `__context__` also where `from None` says not to.
    for number, call in enumerate(FAILURES[expected](house)):
        with pytest.raises(expected) as failure:
            call()
        if number < 2:
            assert (failure.value.__cause__, failure.value.__context__) == (None, None)
            mine = KeyError("the caller's own")
            with pytest.raises(expected) as failure:
                while_handling(mine, call)
            assert failure.value.__context__ is mine
            assert mine.__context__ is None


@pytest.mark.case(43)
@pytest.mark.case(142)
def test_no_object_of_ours_shows_a_secret_of_itself(house: House) -> None:
    reference = house.write()
    manager, session = house.manager, house.session
    with everything_logged() as log:
        given: list[Any] = [session.read_page(reference, max_chars=500), *session.results(), session.usage()]
        given += [*manager.sessions(), *manager.sessions(tenant=TENANT, user=USER), manager.usage(**WHO)]
        given += [manager.limits(**WHO), manager.cleanup(dry_run=True), manager.verify(), manager.session_async(**WHO)]
        given += [parse_reference(reference), session.scope, session.store, session.hook_context]
        given += [manager.delete_session(**SECOND), manager.session(**SECOND)]
        living = living_objects()
        given += [manager.erase_user(tenant=TENANT, user=USER), manager.erase_tenant(tenant=TENANT)]
    assert {Page, Result, SessionInfo, Usage, Receipt} <= {type(one) for one in given}
    assert {SessionManager, Session, SecretKey, Backend} <= {type(one) for one in living}
    shown = shown_by([*given, *living])
    keys = key_forms(keys_in_memory())
    assert leaks_in(shown, [CANARY, *house.paths, *keys]) == []
    # What an error tracker collects of a handle, a manager, a store and whatever holds a key.
    attributes = [repr(vars(one)) for one in living if isinstance(one, WITH_ATTRIBUTES)]
    assert len(attributes) >= 5
    assert leaks_in(attributes, [CANARY, *house.paths, *keys]) == []
    assert leaks_in(log.texts(), [CANARY, *keys]) == []
    assert leaks_in(log.texts(but_of=DRIVERS), house.paths) == []


@pytest.mark.case(142)
def test_settings_show_no_database_url_whatever_it_is_for() -> None:
    url = f"postgresql+psycopg://canary-role:{PASSWORD}@canary-host/canary"
    urls = {name: url for name in Settings.model_fields if name.endswith("_url") and name != "store_url"}
    settings = Settings(**urls, store_url="database:", keys="env:A_KEY")
    assert leaks_in([repr(settings), str(settings)], [CANARY]) == []
